// The mma.sync kernels, middle and decode, as rows of the kernel table: finds the GPU, keeps plans for the next calls, checks
// pointers, launches.
//
// The workspace begins with counters that every launch leaves at zero, and its scratch lies behind them. Here the counters of every
// plan get the same room, so that a workspace prepared for one M serves any other that it is large enough for.
#include <algorithm>
#include <array>

#include "base/try.h"
#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/sm80_mma/decode.h"

namespace swordfish::cuda {
namespace {

constexpr std::size_t kCounters = kWorkspaceCounters;  // a plan needs four bytes for each CTA, of which a GPU holds some hundred

// All that a plan depends on.
struct Key {
  mma::DecodeChoice::Kernel kernel{};
  std::int64_t m = 0, n = 0, k = 0, n_blocks = 0, k_blocks = 0, rows = 0, group_size = 0, n_parts = 0;
  int zero = 0, arch = 0, sms = 0;
  std::int64_t smem_block = 0, smem_sm = 0;
  CodeType code{};
  DType x_type{}, scale_type{}, zero_type{}, offset_type{};
  bool zeros = false, offsets = false, row_of_slice = false, gather = false;
  friend bool operator==(const Key&, const Key&) = default;
};
Key key_of(const Problem& p, const GpuInfo& gpu, mma::DecodeChoice::Kernel kernel) {
  const PackedView& w = *p.weight;
  Key key;
  key.kernel = kernel;
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
  mma::DecodePlan& plan = made.plan =
      mma::plan_decode(*p.weight, std::max<std::int64_t>(p.m, 1), p.x_type, shape, {.kernel = key.kernel});
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

// The plans of this thread's last calls. run() plans anew at each call, and cutting the work into even pieces takes some µs of
// divisions.
const Planned& planned(const Problem& p, const GpuInfo& gpu, mma::DecodeChoice::Kernel kernel) {
  static thread_local std::array<Planned, 64> cache{};
  const Key key = key_of(p, gpu, kernel);
  const auto hash = static_cast<std::uint64_t>(key.m * 31 + key.n_blocks * 1009 + key.k_blocks * 7919) ^
                    static_cast<std::uint64_t>(key.code) << 3 ^ static_cast<std::uint64_t>(key.x_type) ^
                    static_cast<std::uint64_t>(kernel) << 5;
  Planned& slot = cache[hash % cache.size()];
  if (slot.key != key) slot = make(p, gpu, key);
  return slot;
}

constexpr auto kMiddle = mma::DecodeChoice::best;  // the middle kernel where it can
constexpr auto kDecode = mma::DecodeChoice::decode;

// Why neither kernel can do a problem, or empty.
std::string common_can_run(const Problem& p, mma::DecodeChoice::Kernel kernel) {
  const PackedView& w = *p.weight;
  if (p.device.kind != Device::Kind::cuda) return "is a CUDA kernel; the problem is on " + to_string(p.device);
  if (w.layout != Layout::mma64_1) return "reads layout mma64/1; the weight has " + std::string(name(w.layout));
  const Result<const GpuInfo*> gpu = gpu_of(p);
  if (!gpu.ok()) return "cannot run: " + gpu.status().message();
  if (const std::string& why = planned(p, **gpu, kernel).refused; !why.empty()) return "cannot do this problem: " + why;
  return {};
}

Status launch(const Problem& p, const RunArgs& a, mma::DecodeChoice::Kernel kernel) {
  SF_ASSIGN(const GpuInfo* gpu, gpu_to_run(p, a));
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
  call.dependent = a.dependent;
  const CurrentDevice current(p.device);
  SF_TRY(current.status());
  return mma::launch_decode(*p.weight, planned(p, *gpu, kernel).plan, call);
}

}  // namespace

std::string middle_can_run(const Problem& p) {
  if (std::string why = common_can_run(p, kMiddle); !why.empty()) return why;
  if (p.m <= 16) return "takes more than 16 rows of x; this problem has " + std::to_string(p.m);
  if (planned(p, **gpu_of(p), kMiddle).plan.m16 == 0)
    return "rounds weights to the type of x, and takes no real offsets, no zero points wider than 8 bits, and with f16 x only "
           "scales "
           "of f16 or e4m3";
  return {};
}

Plan middle_plan(const Problem& p) {
  const mma::DecodePlan& d = planned(p, **gpu_of(p), kMiddle).plan;
  Plan plan;
  plan.m = p.m;
  plan.tile_m = 16 * d.m16;
  plan.tile_n = 64 * d.columns;
  plan.tasks = d.ctas;
  plan.split_k = d.whole ? 1 : 2;
  plan.workspace = d.workspace;
  plan.rounds_weights = true;
  plan.reason = "M > 16: several tiles of rows share one stream of dequantized weights";
  return plan;
}

Status middle_launch(Context&, const Problem& p, const Plan&, const RunArgs& a) { return launch(p, a, kMiddle); }

std::string decode_can_run(const Problem& p) { return common_can_run(p, kDecode); }

Plan decode_plan(const Problem& p) {
  const mma::DecodePlan& d = planned(p, **gpu_of(p), kDecode).plan;
  Plan plan;
  plan.m = p.m;
  plan.tile_m = 8 * d.m8;
  plan.tile_n = 64;
  plan.tasks = d.ctas;
  plan.split_k = static_cast<int>((d.ctas + p.weight->n_blocks - 1) / p.weight->n_blocks);
  plan.workspace = d.workspace;
  plan.reason = p.m <= 16 ? "M <= 16: reading the weight bounds the time, so each code is read once, by all SMs"
                          : "one launch for each tile of rows, each reads the whole weight";
  return plan;
}

Status decode_launch(Context&, const Problem& p, const Plan&, const RunArgs& a) { return launch(p, a, kDecode); }

Status mma_init(const Plan&, Device device, void* workspace, void* stream) {
  SF_TRY(usable_gpu(device).status());
  SF_TRY(check_on_device(device, {{"the workspace", workspace}}));
  mma::DecodePlan counters;
  counters.flags_bytes = kCounters;
  const CurrentDevice current(device);
  SF_TRY(current.status());
  return mma::init_decode_workspace(counters, workspace, stream);
}

}  // namespace swordfish::cuda
