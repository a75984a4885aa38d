// reference: the scalar kernel, the oracle of the others and the last row of the table; any M, any weight, any CPU.
//
// One task is one n64 block; for every row of x and every row of W one fp64 sum over packed K:
//
//     y[m,n] = round( G( Σ_k x[m, gather[k]] · (scale[n,r]·(code[n,k] − zero[n,r]) + offset[n,r]) ) + bias[n] )
//
// Roundings: scale·(code − zero) + offset is rounded once to fp64 (exact for every scale type: 24 + 9 bits, and offsets of the
// formats), as are products and sums; one rounding to fp32 and one to y's type at the end. Codes are read through the index
// functions of src/pack/mma64.h, nothing else of the layout is known here.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/parallel.h"
#include "kernels/cpu/cpu_kernels.h"
#include "pack/mma64.h"
#include "quant/numeric.h"

namespace swordfish::reference {
namespace {

std::size_t element_bytes(DType type) { return static_cast<std::size_t>(bits(type)) / 8; }

double at(const void* plane, DType type, std::int64_t index) {
  return plane_value(type, static_cast<const std::byte*>(plane) + static_cast<std::size_t>(index) * element_bytes(type));
}

// y for rows [0,64) of one block that lie in the part, one row of x.
void block_row(const Problem& p, const RunArgs& a, const PackedPart& part, std::int64_t block, std::int64_t m) {
  const PackedView& w = *p.weight;
  const int code_bits = w.code == CodeType::int8 ? 8 : 4;
  const std::int64_t block_k = mma64::block_k(code_bits), nb = part.block0 + block;
  const auto* x = static_cast<const std::uint16_t*>(a.x) + m * a.ldx;
  const std::int64_t n = std::min<std::int64_t>(64, part.n - 64 * block);
  double sum[64] = {};
  for (std::int64_t k = 0; k < w.packed_k(); ++k) {
    const std::int64_t column = w.gather ? w.gather[k] : k < w.k ? k : -1;
    if (column < 0) continue;
    const double xv = half_to_f32(p.x_type, x[column]);
    const std::int64_t plane = (nb * w.rows + w.row(k / mma64::slice_k)) * 64;
    const auto* codes = static_cast<const std::uint8_t*>(w.codes) + mma64::block_offset(nb, k / block_k, w.k_blocks);
    for (int i = 0; i < n; ++i) {
      const std::uint8_t code = mma64::code_at(codes, code_bits, i, static_cast<int>(k % block_k));
      const double value = w.code == CodeType::fp4 ? static_cast<double>(kE2m1[code]) : static_cast<double>(code);
      const double zero = w.zeros ? at(w.zeros, w.zero_type, plane + i) : w.zero;
      const double offset = w.offsets ? at(w.offsets, w.offset_type, plane + i) : 0;
      sum[i] += xv * (at(w.scales, w.scale_type, plane + i) * (value - zero) + offset);
    }
  }
  for (int i = 0; i < n; ++i) {
    const std::int64_t row = part.n0 + 64 * block + i, to = m * a.ldy + row;
    const double g = part.global.value;
    double v = part.global.op == Global::Op::multiply ? sum[i] * g : sum[i] / g;
    if (a.bias) v += a.bias[row];
    const auto f = static_cast<float>(v);
    switch (p.y_type) {
      case DType::bf16: static_cast<std::uint16_t*>(a.y)[to] = f32_to_bf16(f); break;
      case DType::f16: static_cast<std::uint16_t*>(a.y)[to] = f32_to_f16(f); break;
      default: static_cast<float*>(a.y)[to] = f; break;
    }
  }
}

}  // namespace

std::string can_run(const Problem& p) {
  if (p.device.kind != Device::Kind::cpu) return "is a CPU kernel; the problem is on " + to_string(p.device);
  if (p.weight->layout != Layout::mma64_1) return "reads layout mma64/1; the weight has " + std::string(name(p.weight->layout));
  return {};
}

Plan plan(const Problem& p) {
  Plan plan;
  plan.m = p.m;
  plan.tile_m = 1;
  plan.tile_n = 64;
  plan.tasks = static_cast<int>(p.weight->n_blocks);
  plan.reason = "the scalar reference runs everything, slowly";
  return plan;
}

Status launch(Context& context, const Problem& p, const Plan&, const RunArgs& a) {
  const PackedView& w = *p.weight;
  for (std::int64_t i = 0; i < w.n_parts; ++i) {
    const PackedPart& part = w.parts[i];
    pool(context).parallel_for((part.n + 63) / 64, [&](std::int64_t block, int) {
      for (std::int64_t m = 0; m < p.m; ++m) block_row(p, a, part, block, m);
    });
  }
  return {};
}

}  // namespace swordfish::reference
