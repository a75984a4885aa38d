// The machine: scheduling of lanes, faults and deadlock, warp-synchronous instructions.
#include "emulator/machine.h"

#include <algorithm>
#include <bit>
#include <map>

#include <fmt/format.h>

namespace swordfish::emu {

constinit thread_local Grid* grid = nullptr;

namespace {

constexpr std::uint64_t kLivelock = 100000;  // polling loads in a row without anything else

std::string place(const Loc& at) { return fmt::format("{}:{}:{}", at.file_name(), at.line(), at.column()); }

// The lane that runs next, or null when none can.
Lane* pick(Warp* preferred) {
  Warp* w = preferred != nullptr && preferred->ready != 0 ? preferred : nullptr;
  if (w == nullptr) {
    if (grid->ready.empty()) return nullptr;
    w = grid->ready[grid->random(static_cast<std::uint32_t>(grid->ready.size()))];
  }
  const int r = static_cast<int>(grid->random(32));
  const int l = (std::countr_zero(std::rotr(w->ready, r)) + r) & 31;
  return w->lanes[static_cast<std::size_t>(l)];
}

void set_not_ready(Lane& l) {
  Warp& w = *l.warp;
  w.ready &= ~(1u << l.index);
  if (w.ready != 0) return;
  grid->ready.back()->list_position = w.list_position;
  grid->ready[static_cast<std::size_t>(w.list_position)] = grid->ready.back();
  grid->ready.pop_back();
  w.list_position = -1;
}

// Ends a lane: one that found a fault, or all others when the launch is then dropped, so that no frame is left behind with what it
// owns (under a sanitizer, also memory of its own).
struct Stop {};

void go(Lane& from, Lane* to) {
  if (to == &from) return;
  ++grid->outcome.counters.switches;
  if (to == nullptr) {
    grid->current = nullptr;
    from.fiber.switch_to(grid->main);
  } else {
    grid->current = to;
    from.fiber.switch_to(to->fiber);
  }
  if (grid->outcome.fault) throw Stop{};
}

void exit_lane(Lane& l) {
  l.state = LaneState::exited;
  set_not_ready(l);
  Warp& w = *l.warp;
  Cta& cta = *w.cta;
  w.alive &= ~(1u << l.index);
  --cta.alive;
  --cta.cluster->alive;
  grid->idle = 0;
  recheck_meetings(w);
  if (w.alive == 0) {
    recheck_barriers(cta);
    recheck_cluster(*cta.cluster);
  }
  if (cta.alive == 0) check_exit(cta);
}

void lane_main(void* argument) {
  Lane& self = *static_cast<Lane*>(argument);
  try {
    if (!grid->outcome.fault) {
      (*grid->kernel)();
      exit_lane(self);
    }
  } catch (const Stop&) {  // reported already; the switch must not happen in here
  }
  self.state = LaneState::exited;
  grid->current = nullptr;
  self.fiber.switch_to(grid->main, true);
}

// Who waits where: "96 of 128 threads at bar.sync 1, file:line".
void report_deadlock() {
  std::map<std::string, std::pair<std::uint32_t, Lane*>> waits;
  std::uint32_t alive = 0;
  for (const auto& cluster : grid->clusters) {
    for (const auto& cta : cluster->ctas) {
      for (const auto& l : cta->lanes) {
        if (l->state != LaneState::blocked) continue;
        ++alive;
        auto& entry = waits[fmt::format("{} at {}", l->waits_for, place(l->at))];
        ++entry.first;
        if (entry.second == nullptr) entry.second = l.get();
      }
    }
  }
  std::string text = fmt::format("all {} live threads wait:", alive);
  Lane* first = nullptr;
  for (const auto& [what, entry] : waits) {
    text += fmt::format(" {} threads in {} (such as block {} thread {});", entry.first, what, entry.second->registers.ctaid.x,
                        entry.second->registers.tid.x);
    if (first == nullptr) first = entry.second;
  }
  for (const auto& cluster : grid->clusters) {
    for (const auto& cta : cluster->ctas) {
      for (std::size_t i = 0; i < cta->barriers.size(); ++i) {
        const Barrier& b = cta->barriers[i];
        if (b.arrived != 0)
          text += fmt::format(" barrier {} of block {} has {} of {} threads;", i, cta->lanes[0]->registers.ctaid.x, b.arrived,
                              b.expected);
      }
    }
  }
  text.pop_back();
  Fault f;
  f.kind = FaultKind::deadlock;
  f.kernel = grid->options.kernel;
  f.text = std::move(text);
  if (first != nullptr) {
    f.cta = first->registers.ctaid;
    f.thread = first->registers.tid;
    f.file = first->at.file_name();
    f.line = first->at.line();
    f.column = first->at.column();
  }
  grid->outcome.fault = std::move(f);
}

}  // namespace

const char* name(FaultKind kind) {
  switch (kind) {
    case FaultKind::out_of_bounds: return "out of bounds";
    case FaultKind::misaligned: return "misaligned";
    case FaultKind::uninitialised: return "uninitialised read";
    case FaultKind::in_flight: return "asynchronous copy used before its wait";
    case FaultKind::race: return "race";
    case FaultKind::deadlock: return "deadlock";
    case FaultKind::livelock: return "livelock";
    case FaultKind::divergence: return "divergence";
    case FaultKind::barrier: return "barrier misuse";
    case FaultKind::dependency: return "dependent data touched before griddepcontrol.wait";
    case FaultKind::read_only: return "write to read-only memory";
    case FaultKind::undefined_value: return "undefined value";
    case FaultKind::cluster: return "cluster";
  }
  return "unknown";
}

std::string Fault::message() const {
  return fmt::format("{}, block ({},{},{}) thread ({},{},{}), {}:{}:{}: {}: {}", kernel, cta.x, cta.y, cta.z, thread.x, thread.y,
                     thread.z, file, line, column, name(kind), text);
}

std::uint32_t Lane::id() const { return 32 * warp->id + index; }

const Registers& registers() { return lane().registers; }

void fail(FaultKind kind, std::string text, const Loc& at) {
  Lane& self = lane();
  Fault f;
  f.kind = kind;
  f.kernel = grid->options.kernel;
  f.cta = self.registers.ctaid;
  f.thread = self.registers.tid;
  f.file = at.file_name();
  f.line = at.line();
  f.column = at.column();
  f.text = std::move(text);
  grid->outcome.fault = std::move(f);
  throw Stop{};
}

void undefined_value(const char* what, Loc at) { fail(FaultKind::undefined_value, what, at); }

std::uint32_t Grid::random(std::uint32_t n) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<std::uint32_t>((random_state >> 32) * n >> 32);
}

void Grid::set_ready(Lane& l) {
  Warp& w = *l.warp;
  l.state = LaneState::ready;
  if (w.ready == 0) {
    w.list_position = static_cast<int>(ready.size());
    ready.push_back(&w);
  }
  w.ready |= 1u << l.index;
}

void block(const char* what, const Loc& at) {
  Lane& self = lane();
  self.state = LaneState::blocked;
  self.waits_for = what;
  self.at = at;
  set_not_ready(self);
  go(self, pick(self.warp));
}

void yield() {
  Lane& self = lane();
  if (++grid->idle > kLivelock)
    fail(FaultKind::livelock, fmt::format("{} polling loads in a row, nothing written in between", kLivelock), self.at);
  go(self, pick(nullptr));
}

// --- warp-synchronous instructions
// ------------------------------------------------------------------------------------------------
namespace {

// Joins or opens the meeting; the lane that completes it gets it, all others sleep and get null when they are woken.
Rendezvous* meet(const char* name, std::uint32_t mask, const void* in, void* out, bool aligned, bool any_place, const Loc& at) {
  Lane& self = lane();
  Warp& w = *self.warp;
  const std::uint32_t me = 1u << self.index;
  if ((mask & me) == 0)
    fail(FaultKind::divergence, fmt::format("{}: the calling lane {} is not in its mask {:#010x}", name, self.index, mask), at);
  if (aligned && w.alive != w.existing) {
    fail(FaultKind::divergence,
         fmt::format("{} needs the whole warp, of which lanes {:#010x} have exited", name, w.existing & ~w.alive), at);
  }
  Rendezvous* meeting = nullptr;
  Rendezvous* free_one = nullptr;
  for (Rendezvous& r : w.meetings) {
    if (r.name == nullptr) {
      free_one = &r;
      continue;
    }
    if (r.name == name && r.mask == mask && (any_place || same_place(r.args.at, at))) {
      meeting = &r;
      continue;
    }
    if ((r.mask & me) == 0 || (mask & r.arrived) == 0) continue;
    const std::uint32_t other = static_cast<std::uint32_t>(std::countr_zero(mask & r.arrived));
    fail(FaultKind::divergence,
         fmt::format("lane {} is at {} (mask {:#010x}) while lane {} of its warp waits for it at {} (mask {:#010x}), {}",
                     self.index, name, mask, other, r.name, r.mask, place(w.lanes[other]->at)),
         at);
  }
  if (meeting == nullptr) {
    if (free_one == nullptr) free_one = &w.meetings.emplace_back();
    meeting = free_one;
    meeting->name = name;
    meeting->mask = mask;
    meeting->arrived = 0;
    meeting->aligned = aligned;
    meeting->args.at = at;
  }
  meeting->arrived |= me;
  meeting->args.in[self.index] = in;
  meeting->args.out[self.index] = out;
  if ((meeting->mask & w.alive & ~meeting->arrived) == 0) return meeting;
  block(name, at);
  return nullptr;
}

// Wakes the others of a meeting and closes it.
void part(Warp& w, Rendezvous& meeting) {
  for (std::uint32_t m = meeting.arrived; m != 0; m &= m - 1) {
    Lane* l = w.lanes[static_cast<std::size_t>(std::countr_zero(m))];
    if (l->state == LaneState::blocked) grid->set_ready(*l);
  }
  meeting.name = nullptr;
}

void complete(Warp& w, Rendezvous& meeting, WarpFn f, bool orders) {
  ++grid->outcome.counters.warp_operations;
  meeting.args.lanes = meeting.arrived;
  if (f != nullptr) f(meeting.args);
  if (orders) order_lanes(w, meeting.arrived);
  part(w, meeting);
}

}  // namespace

void warp_op(const char* name, std::uint32_t mask, const void* in, void* out, WarpFn f, bool aligned, bool orders, Loc at) {
  Warp& w = *lane().warp;
  mask &= w.existing;
  if (Rendezvous* meeting = meet(name, mask, in, out, aligned, orders && f == nullptr, at)) {
    complete(w, *meeting, f, orders);
    return;
  }
  // Woken: either done by the last to come, or (a lane of the mask exited) asked to complete it.
  for (Rendezvous& r : w.meetings) {
    if (r.name == name && (r.arrived >> lane().index & 1)) {
      complete(w, r, f, orders);
      return;
    }
  }
}

void recheck_meetings(Warp& w) {
  for (Rendezvous& r : w.meetings) {
    if (r.name == nullptr) continue;
    Lane* waiting = w.lanes[static_cast<std::size_t>(std::countr_zero(r.arrived))];
    if (r.aligned) {
      fail(FaultKind::divergence,
           fmt::format("lane {} exits while lane {} of its warp waits at {}, which needs the whole warp", lane().index,
                       waiting->index, r.name),
           waiting->at);
    }
    if ((r.mask & w.alive & ~r.arrived) == 0 && waiting->state == LaneState::blocked) grid->set_ready(*waiting);
  }
}

// --- clocks ----------------------------------------------------------------------------------------------------------------------
ClockRef Warp::clock_of(std::uint32_t lanes_of_it) {
  ClockRef joined;
  bool waited = false;
  for (std::uint32_t m = lanes_of_it; m != 0; m &= m - 1) {
    const Lane& l = *lanes[static_cast<std::size_t>(std::countr_zero(m))];
    waited |= l.dependency;
    joined.join(l.clock);
  }
  const bool whole = lanes_of_it == existing;
  Clock& c = joined.edit();
  c.dependency |= waited;
  if (whole) {
    c.warp[id] = time;
    c.drop_covered();
  } else {
    for (std::uint32_t m = lanes_of_it; m != 0; m &= m - 1)
      c.add_thread(32 * id + static_cast<std::uint32_t>(std::countr_zero(m)), time);
  }
  ++time;
  return joined;
}

void order_lanes(Warp& w, std::uint32_t mask) {
  // The usual case first: the whole warp shares one clock, which is changed in place.
  const Clock* first = w.lanes[static_cast<std::size_t>(std::countr_zero(mask))]->clock.get();
  bool same = mask == w.existing && first->users == std::popcount(mask);
  bool waited = false;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    const Lane& l = *w.lanes[static_cast<std::size_t>(std::countr_zero(m))];
    same &= l.clock.get() == first;
    waited |= l.dependency;
  }
  if (same) {
    Clock& c = w.lanes[static_cast<std::size_t>(std::countr_zero(mask))]->clock.edit(32);
    c.dependency |= waited;
    c.warp[w.id] = w.time++;
    if (!c.threads.empty()) c.drop_covered();
    return;
  }
  const ClockRef joined = w.clock_of(mask);
  for (std::uint32_t m = mask; m != 0; m &= m - 1) w.lanes[static_cast<std::size_t>(std::countr_zero(m))]->clock = joined;
}

// --- CTA barriers ----------------------------------------------------------------------------------------------------------------
namespace {

struct BarrierArgs {
  int id, threads;
  bool wait;
  bool operator==(const BarrierArgs&) const = default;
};

void set_clock(Warp& w, const ClockRef& clock) {
  for (std::uint32_t m = w.alive; m != 0; m &= m - 1) w.lanes[static_cast<std::size_t>(std::countr_zero(m))]->clock = clock;
}

void wake(Warp& w) {
  for (std::uint32_t m = w.alive; m != 0; m &= m - 1) grid->set_ready(*w.lanes[static_cast<std::size_t>(std::countr_zero(m))]);
}

// Completes the barrier if everybody has come; `arriving` is the running warp, which needs no waking.
bool try_complete(Barrier& b) {
  if (b.arrived == 0 || b.arrived < b.expected) return false;
  for (Warp* w : b.waiting) {
    ClockRef own = b.joined;
    own.edit();
    set_clock(*w, own);
    wake(*w);
  }
  b = Barrier{};
  grid->idle = 0;
  ++grid->outcome.counters.barriers;
  return true;
}

}  // namespace

void barrier(int id, int threads, bool wait, Loc at) {
  Lane& self = lane();
  Warp& w = *self.warp;
  const char* name = wait ? "bar.sync" : "bar.arrive";
  const BarrierArgs args{id, threads, wait};
  Rendezvous* meeting = meet(name, w.existing, &args, nullptr, true, false, at);
  if (meeting == nullptr) return;
  ++grid->outcome.counters.warp_operations;
  for (std::uint32_t m = meeting->arrived; m != 0; m &= m - 1) {
    if (*static_cast<const BarrierArgs*>(meeting->args.in[std::countr_zero(m)]) != args)
      fail(FaultKind::barrier, fmt::format("{}: lanes of one warp name different barriers or counts", name), at);
  }
  Cta& cta = *w.cta;
  if (id < 0 || id > 15) fail(FaultKind::barrier, fmt::format("{} {}: barriers are 0 to 15", name, id), at);
  if (threads < 0 || threads % 32 != 0)
    fail(FaultKind::barrier, fmt::format("{} {}, {}: the count is no multiple of 32", name, id, threads), at);
  const auto own = static_cast<std::uint32_t>(std::popcount(w.existing));
  std::uint32_t expected = static_cast<std::uint32_t>(threads);
  if (threads == 0) {
    // Every thread of the CTA that has not exited.
    expected = cta.alive;
  }
  if (expected > (cta.lanes.size() + 31) / 32 * 32)
    fail(FaultKind::barrier,
         fmt::format("{} {}, {}: the block has only {} threads, so nobody can complete it", name, id, threads, cta.lanes.size()),
         at);
  Barrier& b = cta.barriers[static_cast<std::size_t>(id)];
  if (b.arrived != 0 && b.whole_cta != (threads == 0))
    fail(FaultKind::barrier,
         fmt::format("{} {}: other threads came with a count of {}, this one with {}", name, id, b.expected, expected), at);
  if (b.arrived != 0 && threads != 0 && b.expected != expected)
    fail(FaultKind::barrier, fmt::format("{} {}, {}: other threads expect {}", name, id, expected, b.expected), at);
  b.expected = expected;
  b.whole_cta = threads == 0;
  b.arrived += threads == 0 ? own : 32;
  if (b.arrived > b.expected)
    fail(FaultKind::barrier, fmt::format("{} {}, {}: {} threads have come", name, id, expected, b.arrived), at);
  b.joined.join(w.clock_of(w.existing));
  if (!wait) {
    part(w, *meeting);
    try_complete(b);
    return;
  }
  b.waiting.push_back(&w);
  meeting->name = nullptr;
  if (try_complete(b)) return;  // the running lane was made ready as well, and simply goes on
  for (std::uint32_t m = w.existing; m != 0; m &= m - 1) w.lanes[static_cast<std::size_t>(std::countr_zero(m))]->waits_for = name;
  block(name, at);
}

void recheck_barriers(Cta& cta) {
  for (Barrier& b : cta.barriers) {
    if (!b.whole_cta || b.arrived == 0) continue;
    b.expected = cta.alive;
    try_complete(b);
  }
}

// --- the grid
// ----------------------------------------------------------------------------------------------------------------------
void Grid::start_cluster() {
  auto cluster = std::make_unique<Cluster>();
  cluster->grid = this;
  const std::uint32_t first_cta = next_cluster * shape.cluster_x;
  for (std::uint32_t rank = 0; rank < shape.cluster_x; ++rank) {
    auto cta = std::make_unique<Cta>();
    cta->cluster = cluster.get();
    cta->rank = rank;
    cta->storage = std::make_unique<std::byte[]>(shape.dynamic_smem + 1024);
    const auto address = reinterpret_cast<std::uintptr_t>(cta->storage.get());
    cta->shared = cta->storage.get() + ((address + 1023) / 1024 * 1024 - address);
    std::fill_n(cta->shared, shape.dynamic_smem, std::byte{0xff});
    cta->shadow.reset(shape.dynamic_smem, ByteState::never_written);
    const std::uint32_t linear = first_cta + rank;
    Registers r;
    r.ntid = {shape.threads, 1, 1};
    r.nctaid = {shape.grid_x, shape.grid_y, shape.grid_z};
    r.ctaid = {linear % shape.grid_x, linear / shape.grid_x % shape.grid_y, linear / shape.grid_x / shape.grid_y};
    r.clusterid = {r.ctaid.x / shape.cluster_x, r.ctaid.y, r.ctaid.z};
    r.cluster_ctaid = {rank, 0, 0};
    r.cluster_nctaid = {shape.cluster_x, 1, 1};
    r.cluster_ctarank = rank;
    r.cluster_size = shape.cluster_x;
    r.dynamic_smem = shape.dynamic_smem;
    cta->alive = shape.threads;
    cluster->alive += shape.threads;
    for (std::uint32_t t = 0; t < shape.threads; ++t) {
      if (t % 32 == 0) {
        auto warp = std::make_unique<Warp>();
        warp->cta = cta.get();
        warp->id = 1 + linear * warps_per_cta + t / 32;
        cta->warps.push_back(std::move(warp));
      }
      Warp& w = *cta->warps.back();
      auto l = std::make_unique<Lane>();
      l->warp = &w;
      l->index = t % 32;
      r.tid = {t, 0, 0};
      r.lane = t % 32;
      r.warp = t / 32;
      l->registers = r;
      if (t % 32 == 0) {
        l->clock = ClockRef(clock_size);
        if (!shape.dependent) l->clock.edit().dependency = true;
      } else {
        l->clock = w.lanes[0]->clock;
      }
      l->fiber.start(StackPool::mine().take(), 64 * (t % 61), lane_main, l.get());
      w.lanes[t % 32] = l.get();
      w.existing |= 1u << (t % 32);
      w.alive |= 1u << (t % 32);
      cta->lanes.push_back(std::move(l));
    }
    for (const auto& l : cta->lanes) set_ready(*l);
    cluster->ctas.push_back(std::move(cta));
  }
  clusters.push_back(std::move(cluster));
  ++next_cluster;
}

// Frees clusters whose threads have all exited.
void Grid::reap() {
  std::erase_if(clusters, [](const std::unique_ptr<Cluster>& cluster) {
    if (cluster->alive != 0) return false;
    for (const auto& cta : cluster->ctas)
      for (const auto& l : cta->lanes) StackPool::mine().give(l->fiber.stack());
    return true;
  });
}

void Grid::run() {
  const std::uint32_t resident =
      options.resident_ctas == 0 ? total_clusters : std::max(1u, options.resident_ctas / std::max(1u, shape.cluster_x));
  while (!outcome.fault) {
    if (clusters.size() >= resident || next_cluster == total_clusters) {
      const std::size_t before = clusters.size();
      if (std::any_of(clusters.begin(), clusters.end(), [](const auto& c) { return c->alive == 0; })) reap();
      if (clusters.empty() && next_cluster == total_clusters) return;
      if (clusters.size() == before) {
        Lane* next = pick(nullptr);
        if (next == nullptr) {
          report_deadlock();
          break;
        }
        current = next;
        ++outcome.counters.switches;
        main.switch_to(next->fiber);
        continue;
      }
    }
    while (clusters.size() < resident && next_cluster < total_clusters) start_cluster();
  }
  for (const auto& cluster : clusters) {
    for (const auto& cta : cluster->ctas) {
      for (const auto& l : cta->lanes) {
        if (l->state != LaneState::exited) {
          current = l.get();
          main.switch_to(l->fiber);
        }
        StackPool::mine().give(l->fiber.stack());
      }
    }
  }
}

Outcome launch(const ptx::LaunchShape& shape, const Options& options, const std::function<void()>& kernel) {
  static thread_local std::uint64_t launches = 0;
  Grid g;
  g.shape = shape;
  g.options = options;
  g.kernel = &kernel;
  g.number = ++launches;
  const std::uint64_t ctas = std::uint64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
  Fault bad;
  bad.kind = FaultKind::barrier;
  bad.kernel = options.kernel;
  if (shape.threads == 0 || shape.threads > 1024 || ctas == 0 || ctas > 0x7fffffff || shape.cluster_x == 0 ||
      shape.cluster_x > 16 || shape.grid_x % shape.cluster_x != 0 || shape.dynamic_smem > 227 * 1024) {
    bad.text = fmt::format("impossible launch: grid {}x{}x{}, {} threads, clusters of {}, {} bytes of shared memory", shape.grid_x,
                           shape.grid_y, shape.grid_z, shape.threads, shape.cluster_x, shape.dynamic_smem);
    g.outcome.fault = std::move(bad);
    return std::move(g.outcome);
  }
  g.total_clusters = static_cast<std::uint32_t>(ctas) / shape.cluster_x;
  g.warps_per_cta = (shape.threads + 31) / 32;
  g.clock_size = 1 + ctas * g.warps_per_cta;
  g.random_state = options.seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
  if (g.random_state == 0) g.random_state = 1;
  struct Running {
    explicit Running(Grid* now) { grid = now; }
    ~Running() { grid = nullptr; }
  } running(&g);
  g.run();
  if (options.count) count_traffic(g);
  return std::move(g.outcome);
}

}  // namespace swordfish::emu
