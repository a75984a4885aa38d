// The mma.sync decode family as a row of the kernel table: the GPU found, its plan kept for the next call, pointers checked,
// launched.
//
// The workspace begins with counters that every launch leaves at zero, and its scratch lies behind them. Here the counters of every
// plan get the same room, so that a workspace prepared for one M serves any other that it is large enough for.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/try.h"
#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/sm80_mma/decode.h"

namespace swordfish::cuda {
namespace {

constexpr std::size_t kCounters = 16 * 1024;  // bytes; a plan needs four for each CTA, of which a GPU holds some hundred

Result<const GpuInfo*> gpu_of(const Problem& p) {
  if (p.described) return p.described;
  return usable_gpu(p.device);
}

// All that a plan depends on.
struct Key {
  std::int64_t m = 0, n = 0, k = 0, n_blocks = 0, k_blocks = 0, rows = 0, group_size = 0, n_parts = 0;
  int zero = 0, arch = 0, sms = 0;
  std::int64_t smem_block = 0, smem_sm = 0;
  CodeType code{};
  DType x_type{}, scale_type{}, zero_type{}, offset_type{};
  bool zeros = false, offsets = false, row_of_slice = false, gather = false;
  friend bool operator==(const Key&, const Key&) = default;
};
Key key_of(const Problem& p, const GpuInfo& gpu) {
  const PackedView& w = *p.weight;
  Key key;
  key.m = p.m;
  key.n = w.n;
  key.k = w.k;
  key.n_blocks = w.n_blocks;
  key.k_blocks = w.k_blocks;
  key.rows = w.rows;
  key.group_size = w.group_size;
  key.n_parts = w.n_parts;
  key.zero = w.zero;
  key.arch = gpu.arch;
  key.sms = gpu.sms;
  key.smem_block = gpu.smem_block;
  key.smem_sm = gpu.smem_sm;
  key.code = w.code;
  key.x_type = p.x_type;
  key.scale_type = w.scale_type;
  key.zero_type = w.zero_type;
  key.offset_type = w.offset_type;
  key.zeros = w.zeros != nullptr;
  key.offsets = w.offsets != nullptr;
  key.row_of_slice = w.row_of_slice != nullptr;
  key.gather = w.gather != nullptr;
  return key;
}

struct Planned {
  Key key;
  std::string refused;
  mma::DecodePlan plan;
};

Planned make(const Problem& p, const GpuInfo& gpu, const Key& key) {
  Planned made{key, {}, {}};
  const mma::Gpu shape{gpu.sms, gpu.arch, gpu.smem_block, gpu.smem_sm};
  made.refused = mma::decode_refuses(*p.weight, p.x_type, shape);
  if (!made.refused.empty()) return made;
  mma::DecodePlan& plan = made.plan = mma::plan_decode(*p.weight, std::max<std::int64_t>(p.m, 1), p.x_type, shape);
  if (plan.flags_bytes > kCounters) {
    made.refused = "needs more counters than a workspace has";
    return made;
  }
  const std::size_t more = kCounters - plan.flags_bytes;
  plan.flags_bytes = kCounters;
  plan.pieces_offset += more;
  plan.x_offset += more;
  plan.workspace += more;
  return made;
}

// Plans of this thread's last calls: run() plans anew at each call, and cutting the work into even pieces takes some µs of
// divisions.
const Planned& planned(const Problem& p, const GpuInfo& gpu) {
  static thread_local std::array<Planned, 64> cache{};
  const Key key = key_of(p, gpu);
  const auto hash = static_cast<std::uint64_t>(key.m * 31 + key.n_blocks * 1009 + key.k_blocks * 7919) ^
                    static_cast<std::uint64_t>(key.code) << 3 ^ static_cast<std::uint64_t>(key.x_type);
  Planned& slot = cache[hash % cache.size()];
  if (slot.key != key) slot = make(p, gpu, key);
  return slot;
}

}  // namespace

std::string decode_can_run(const Problem& p) {
  const PackedView& w = *p.weight;
  if (p.device.kind != Device::Kind::cuda) return "is a CUDA kernel; the problem is on " + to_string(p.device);
  if (w.layout != Layout::mma64_1) return "reads layout mma64/1; the weight has " + std::string(name(w.layout));
  const Result<const GpuInfo*> gpu = gpu_of(p);
  if (!gpu.ok()) return "cannot run: " + gpu.status().message();
  if (const std::string& why = planned(p, **gpu).refused; !why.empty()) return "cannot do this problem: " + why;
  return {};
}

Plan decode_plan(const Problem& p) {
  const mma::DecodePlan& d = planned(p, **gpu_of(p)).plan;
  Plan plan;
  plan.m = p.m;
  plan.tile_m = 8 * d.m8;
  plan.tile_n = 64;
  plan.tasks = d.ctas;
  plan.split_k = static_cast<int>((d.ctas + p.weight->n_blocks - 1) / p.weight->n_blocks);
  plan.workspace = d.workspace;
  plan.reason = p.m <= 8 * d.m8 ? "reading the weight bounds the time: one launch reads each code once, on all SMs"
                                : "one launch for each tile of rows, each reads the whole weight";
  return plan;
}

Status decode_launch(Context&, const Problem& p, const Plan&, const RunArgs& a) {
  if (p.described) return invalid_argument("the problem describes a GPU ({}): it can be planned, not run", p.described->name);
  SF_ASSIGN(const GpuInfo* gpu, gpu_of(p));
  const PackedView& w = *p.weight;
  SF_TRY(check_on_device(p.device, {{"x", a.x},
                                    {"y", a.y},
                                    {"the bias", a.bias},
                                    {"the workspace", a.workspace},
                                    {"the packed weight", w.codes},
                                    {"the packed weight's scales", w.scales}}));
  const mma::DecodePlan& plan = planned(p, *gpu).plan;
  mma::DecodeCall call;
  call.x = a.x;
  call.ldx = a.ldx;
  call.m = p.m;
  call.y = a.y;
  call.ldy = a.ldy;
  call.y_type = p.y_type;
  call.bias = a.bias;
  call.workspace = a.workspace;
  call.workspace_size = a.workspace_size;
  call.stream = a.stream;
  call.dependent = a.dependent && gpu->arch >= 90;
  const CurrentDevice current(p.device);
  SF_TRY(current.status());
  return mma::launch_decode(w, plan, call);
}

Status decode_init(const Plan&, Device device, void* workspace, void* stream) {
  SF_TRY(usable_gpu(device).status());
  SF_TRY(check_on_device(device, {{"the workspace", workspace}}));
  mma::DecodePlan counters;
  counters.flags_bytes = kCounters;
  const CurrentDevice current(device);
  SF_TRY(current.status());
  return mma::init_decode_workspace(counters, workspace, stream);
}

}  // namespace swordfish::cuda
