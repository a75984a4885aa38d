// Clusters and dependent launches: the cluster barrier, exits while others use a block's shared memory, griddepcontrol.
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "emulator/machine.h"

namespace swordfish::emu {
namespace {

struct Side {
  bool orders;
};

// Both ends of the cluster barrier, for the whole warp at once.
void complete(Cluster& c) {
  c.released = c.joined;
  c.joined = ClockRef();
  c.arrived = 0;
  ++c.phase;
  grid->idle = 0;
  ++grid->outcome.counters.barriers;
  for (Warp* w : c.waiting)
    for (std::uint32_t m = w->alive; m != 0; m &= m - 1) grid->set_ready(*w->lanes[static_cast<std::size_t>(std::countr_zero(m))]);
  c.waiting.clear();
}

// Run by the last lane of a warp to come.
void arrive(const WarpArgs& args) {
  Warp& w = *lane().warp;
  Cluster& c = *w.cta->cluster;
  if (w.cluster_pending) fail(FaultKind::barrier, "barrier.cluster.arrive twice without a wait", args.at);
  w.cluster_pending = true;
  ++w.cluster_phase;
  c.arrived += static_cast<std::uint32_t>(std::popcount(w.existing));
  if (static_cast<const Side*>(args.in[lane().index])->orders) c.joined.join(w.clock_of(w.existing));
  if (c.arrived >= c.alive) complete(c);
}

void check_wait(const WarpArgs& args) {
  if (!lane().warp->cluster_pending) fail(FaultKind::barrier, "barrier.cluster.wait without an arrive", args.at);
}

}  // namespace

void cluster_arrive(bool release, Loc at) {
  const Side side{release};
  warp_op("barrier.cluster.arrive", kWholeWarp, &side, nullptr, arrive, true, false, at);
}

void cluster_wait(bool, Loc at) {
  Lane& self = lane();
  Warp& w = *self.warp;
  Cluster& c = *w.cta->cluster;
  warp_op("barrier.cluster.wait", kWholeWarp, nullptr, nullptr, check_wait, true, false, at);
  // Each lane on its own from here: the barrier wakes whole warps.
  if (c.phase < w.cluster_phase) {
    if (std::find(c.waiting.begin(), c.waiting.end(), &w) == c.waiting.end()) c.waiting.push_back(&w);
    block("barrier.cluster.wait", at);
  }
  self.clock.join(c.released);
  // The last of the warp to pass: from now on the warp may arrive again, and shares one clock.
  warp_op(
      "barrier.cluster.wait", kWholeWarp, nullptr, nullptr, [](const WarpArgs&) { lane().warp->cluster_pending = false; }, true,
      true, at);
}

void recheck_cluster(Cluster& c) {
  if (c.arrived != 0 && c.arrived >= c.alive) complete(c);
}

void check_exit(Cta& cta) {
  Cluster& c = *cta.cluster;
  if (cta.remote_phase < static_cast<std::int64_t>(c.phase)) return;
  fail(FaultKind::cluster,
       fmt::format(
           "block {} of the cluster exits while another may still use its shared memory: no cluster barrier follows that use",
           cta.rank),
       cta.remote_at);
}

void dependency_wait(Loc) { lane().dependency = true; }
void launch_dependents(Loc) {}

}  // namespace swordfish::emu
