// The block-scaled GEMMs as rows of the kernel table: W4A4, x quantized to the weight's own FP4 in front of each product.
//
// Chosen by layout: a weight in sm1xx-blockscaled/1 runs here and nowhere else on a GPU, and no other weight does. W4A16 keeps to
// mma64/1 on every GPU, Blackwell too: quantizing x changes y by some percent, which only the engine can decide.
#include "kernels/cuda/blockscaled/w4a4.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/try.h"
#include "device/device.h"
#include "kernels/cuda/blockscaled/launch.h"
#include "kernels/cuda/blockscaled/self_check.h"
#include "kernels/cuda/cuda_kernels.h"
#include "pack/packed_format.h"

namespace swordfish::blockscaled {
namespace {

constexpr int kTile = 128;  // of every instance, in rows of x and of the weight

const char* archs_of(Family family) { return family == Family::tcgen05 ? "sm_100, 103 or 110" : "sm_120 or 121"; }
bool has(Family family, int arch) {
  return family == Family::tcgen05 ? arch == 100 || arch == 103 || arch == 110 : arch == 120 || arch == 121;
}

// The instance for a problem on a GPU, or null.
const Instance* find(Family family, bool grouped, const Problem& p, int arch) {
  for (const Instance& i : instances())
    if (i.family == family && i.block == p.weight->group_size && i.y_type == p.y_type && (i.launch_grouped != nullptr) == grouped &&
        has_code(i.archs, arch))
      return &i;
  return nullptr;
}

Jobs jobs_of(const Instance& instance, const Problem& p, int sms) {
  return make_jobs(*p.weight, std::max<std::int64_t>(p.m, 1), sms, instance.workspace(sms));
}

Status launch_gemms(const Instance& instance, const Groups& groups, int sms, int device, void* own, void* stream) {
  if (instance.launch_grouped) return instance.launch_grouped(groups, sms, device, own, stream);
  for (int i = 0; i < groups.count; ++i) SF_TRY(instance.launch(groups.group[i], sms, device, own, stream));
  return {};
}

}  // namespace

template <Family family, bool grouped>
std::string can_run(const Problem& p) {
  const PackedView& w = *p.weight;
  if (p.device.kind != Device::Kind::cuda) return "is a CUDA kernel; the problem is on " + to_string(p.device);
  const Result<const GpuInfo*> gpu = cuda::gpu_of(p);
  if (!gpu.ok()) return "cannot run: " + gpu.status().message();
  if (w.layout != Layout::sm1xx_blockscaled_1)
    return fmt::format(
        "is W4A4 and reads layout sm1xx-blockscaled/1, which has to be asked for (pack --layout); the weight has {}, and "
        "runs as W4A16",
        name(w.layout));
  if (!has(family, (*gpu)->arch))
    return fmt::format("needs an {}; this GPU is an sm_{}. In layout mma64/1 the weight runs as W4A16 on every GPU (pack, convert)",
                       archs_of(family), (*gpu)->arch);
  if (std::string why = refuses(w, p.m, p.y_type); !why.empty()) return why;
  if (grouped) {
    if (p.has_bias) return "adds no bias";
    if (make_jobs(w, 1, 1, 0).count == 1) return "is for parts with globals of their own; this weight has one global";
  }
  const Instance* const instance = find(family, grouped, p, (*gpu)->arch);
  if (!instance) {
    if (grouped && p.y_type == DType::f16) return "writes bf16, not f16";
    return fmt::format(
        "has no machine code for sm_{} in this build (configure with -DSWORDFISH_BLOCKSCALED=ON and {} in SWORDFISH_CUDA_ARCHS)",
        (*gpu)->arch,
        (*gpu)->arch == 110         ? "110a"
        : family == Family::tcgen05 ? "100f"
                                    : "120f");
  }
  return p.described ? std::string() : self_check(*instance, p.device.index, (*gpu)->sms);
}

template <Family family, bool grouped>
Plan plan(const Problem& p) {
  const GpuInfo& gpu = **cuda::gpu_of(p);
  const Jobs jobs = jobs_of(*find(family, grouped, p, gpu.arch), p, gpu.sms);
  Plan plan;
  plan.m = p.m;
  plan.tile_m = plan.tile_n = kTile;
  for (int i = 0; i < jobs.count; ++i)
    plan.tasks += static_cast<int>(ceil_div(std::max<std::int64_t>(p.m, 1), kTile) * ceil_div(jobs.run[i].n, kTile));
  plan.workspace = jobs.workspace;
  plan.reason = grouped           ? "the layout asks for W4A4: x is quantized, all parts run in one launch, each with its own alpha"
                : jobs.count == 1 ? "the layout asks for W4A4: x is quantized, one GEMM with one alpha"
                                  : "the layout asks for W4A4: x is quantized, parts with other globals run apart";
  return plan;
}

template <Family family, bool grouped>
Status launch(Context&, const Problem& p, const Plan&, const RunArgs& a) {
  SF_ASSIGN(const GpuInfo* gpu, cuda::gpu_to_run(p, a));
  const Instance& instance = *find(family, grouped, p, gpu->arch);
  const CurrentDevice current(p.device);
  SF_TRY(current.status());
  return launch_w4a4(instance, p, jobs_of(instance, p, gpu->sms), gpu->sms, a);
}

Status launch_w4a4(const Instance& instance, const Problem& p, const Jobs& jobs, int sms, const RunArgs& a) {
  const PackedView& w = *p.weight;
  auto* const scratch = static_cast<std::uint8_t*>(a.workspace);
  float factors[kMostGroups];
  for (int i = 0; i < jobs.count; ++i) factors[i] = jobs.run[i].factor;
  QuantizeCall q;
  q.x = a.x;
  q.x_type = p.x_type;
  q.m = p.m;
  q.k = w.k;
  q.ldx = a.ldx;
  q.block = static_cast<int>(w.group_size);
  q.factor = factors;
  q.alphas = jobs.count;
  q.counter = reinterpret_cast<std::uint32_t*>(scratch);
  q.partial = reinterpret_cast<std::uint32_t*>(scratch + jobs.partial);
  q.scale = reinterpret_cast<float*>(scratch + jobs.scale);
  q.alpha = reinterpret_cast<float*>(scratch + jobs.alpha);
  q.codes = scratch + jobs.x_codes;
  q.scales = scratch + jobs.x_scales;
  q.sms = sms;
  q.stream = a.stream;
  SF_TRY(launch_quantize(q));

  void* const own = scratch + jobs.own;
  if (writes_directly(a.y, a.ldy))
    return launch_gemms(instance, make_groups(w, jobs, 0, p.m, a.bias, a.y, a.ldy, scratch), sms, p.device.index, own, a.stream);
  // Rows or strides of y that are no multiple of 16 bytes: through the workspace, some rows at a time.
  auto* const y = static_cast<std::uint16_t*>(a.y);
  for (std::int64_t m0 = 0; m0 < p.m; m0 += jobs.tile_rows) {
    const std::int64_t m = std::min(jobs.tile_rows, p.m - m0);
    SF_TRY(launch_gemms(instance, make_groups(w, jobs, m0, m, a.bias, scratch + jobs.y, w.n, scratch), sms, p.device.index, own,
                        a.stream));
    SF_TRY(launch_copy_rows(y + m0 * a.ldy, a.ldy * 2, scratch + jobs.y, w.n * 2, w.n * 2, m, a.stream));
  }
  return {};
}

template std::string can_run<Family::tcgen05, false>(const Problem&);
template std::string can_run<Family::tcgen05, true>(const Problem&);
template std::string can_run<Family::warp, false>(const Problem&);
template std::string can_run<Family::warp, true>(const Problem&);
template Plan plan<Family::tcgen05, false>(const Problem&);
template Plan plan<Family::tcgen05, true>(const Problem&);
template Plan plan<Family::warp, false>(const Problem&);
template Plan plan<Family::warp, true>(const Problem&);
template Status launch<Family::tcgen05, false>(Context&, const Problem&, const Plan&, const RunArgs&);
template Status launch<Family::tcgen05, true>(Context&, const Problem&, const Plan&, const RunArgs&);
template Status launch<Family::warp, false>(Context&, const Problem&, const Plan&, const RunArgs&);
template Status launch<Family::warp, true>(Context&, const Problem&, const Plan&, const RunArgs&);

}  // namespace swordfish::blockscaled
