// Runs of parts, the workspace and GEMM arguments of jobs.h.
#include "kernels/cuda/blockscaled/jobs.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "kernels/cuda/blockscaled/launch.h"
#include "kernels/cuda/cuda_kernels.h"
#include "pack/packed_format.h"
#include "pack/sm1xx.h"

namespace swordfish::blockscaled {
namespace {

constexpr std::int64_t kMostBytes = std::numeric_limits<std::int32_t>::max();  // CUTLASS's scale layouts count in 32 bits

float factor(const Global& g) { return g.op == Global::Op::multiply ? g.value : 1.0f / g.value; }

// The runs of a weight; count kMostGroups + 1 where there are more than a launch takes.
int find_runs(const PackedView& w, Run (&run)[kMostGroups]) {
  int count = 0;
  for (std::int64_t i = 0; i < w.n_parts; ++i) {
    const PackedPart& part = w.parts[i];
    if (count > 0) {
      Run& last = run[count - 1];
      if (last.factor == factor(part.global) && last.n % sm1xx::atom_n == 0) {
        last.n += part.n;
        continue;
      }
    }
    if (count == kMostGroups) return kMostGroups + 1;
    run[count++] = {part.n0, part.n, part.block0, factor(part.global)};
  }
  return count;
}

}  // namespace

std::string refuses(const PackedView& w, std::int64_t m, DType y_type) {
  if (y_type == DType::f32) return "writes bf16 or f16, not f32";
  if (w.k % 32 != 0) return fmt::format("reads rows of codes by 16 bytes, so K must be a multiple of 32; it is {}", w.k);
  for (std::int64_t i = 0; i < w.n_parts; ++i)
    if (w.parts[i].n % 8 != 0)
      return fmt::format("writes y by 16 bytes, so every part must have a multiple of 8 rows; {} has {}", w.parts[i].name,
                         w.parts[i].n);
  Run runs[kMostGroups];
  if (find_runs(w, runs) > kMostGroups)
    return fmt::format("takes up to {} parts with a global scale of their own; the weight has {} parts", kMostGroups, w.n_parts);
  const std::int64_t m_blocks = ceil_div(m, sm1xx::atom_n);
  if (m > kMostBytes || w.n > kMostBytes || w.k > kMostBytes ||
      std::max(m_blocks, w.n_blocks) > kMostBytes / sm1xx::atom_bytes / w.k_blocks)
    return "counts block scales in 32 bits, and this problem has more";
  return {};
}

Jobs make_jobs(const PackedView& w, std::int64_t m, int sms, std::size_t own) {
  Jobs jobs;
  jobs.count = find_runs(w, jobs.run);
  std::size_t end = 0;
  const auto place = [&](std::size_t bytes) {
    const std::size_t at = end;
    end += (bytes + 255) / 256 * 256;
    return at;
  };
  place(cuda::kWorkspaceCounters);
  jobs.partial = place(sizeof(std::uint32_t) * static_cast<std::size_t>(amax_ctas(sms)));
  jobs.scale = place(3 * sizeof(float));
  jobs.alpha = place(kMostAlphas * sizeof(float));
  jobs.x_codes = place(static_cast<std::size_t>(m * (w.k / 2)));
  jobs.x_scales = place(static_cast<std::size_t>(ceil_div(m, sm1xx::atom_n) * w.k_blocks * sm1xx::atom_bytes));
  jobs.y = place(static_cast<std::size_t>(std::min(m, jobs.tile_rows) * w.n * 2));
  jobs.own = place(own);
  jobs.workspace = end;
  return jobs;
}

bool writes_directly(const void* y, std::int64_t ldy) { return reinterpret_cast<std::uintptr_t>(y) % 16 == 0 && ldy % 8 == 0; }

Groups make_groups(const PackedView& w, const Jobs& jobs, std::int64_t m0, std::int64_t m, const float* bias, void* y,
                   std::int64_t ldy, void* workspace) {
  auto* const scratch = static_cast<std::uint8_t*>(workspace);
  const auto *codes = static_cast<const std::uint8_t*>(w.codes), *scales = static_cast<const std::uint8_t*>(w.scales);
  Groups groups;
  groups.count = jobs.count;
  for (int i = 0; i < jobs.count; ++i) {
    const Run& run = jobs.run[i];
    Gemm& g = groups.group[i];
    g.m = static_cast<std::int32_t>(m);
    g.n = static_cast<std::int32_t>(run.n);
    g.k = static_cast<std::int32_t>(w.k);
    g.x_codes = scratch + jobs.x_codes + m0 * (w.k / 2);
    g.x_scales = scratch + jobs.x_scales + m0 / sm1xx::atom_n * w.k_blocks * sm1xx::atom_bytes;
    g.w_codes = codes + run.n0 * (w.k / 2);
    g.w_scales = scales + run.block0 * w.k_blocks * sm1xx::atom_bytes;
    g.alpha = reinterpret_cast<const float*>(scratch + jobs.alpha) + i;
    g.bias = bias ? bias + run.n0 : nullptr;
    g.y = static_cast<std::uint16_t*>(y) + run.n0;
    g.ldy = ldy;
  }
  return groups;
}

}  // namespace swordfish::blockscaled
