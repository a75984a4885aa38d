// How far a kernel's result may lie from exact arithmetic: the analytic bound that `verify` and the tests check element by element.
//
// Every kernel adds products in fp32 and rounds once to y's type. In any order of addition the error of a sum of K terms is at most
// γ(K)·Σ|terms|, γ(K) = K·u/(1−K·u), u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). The terms that
// kernels add are not |x·w| itself: the codes carry a constant until it is removed by a sum of activations (128 + q, and the zero
// point), so added_magnitude() gives Σ's weights with those constants in place. Forming a term (scale, offset, global) costs a few
// more roundings, covered by `extra`.
#pragma once

#include <cmath>
#include <cstdint>

#include "swordfish/quant_tensor.h"

namespace swordfish {

// out[i*ld + k] = |G|·(|scale|·(c + |zero| ) + |offset|), c the largest magnitude a kernel's code operand takes: 128 + 15 for int4,
// 255 for int8, 6 for fp4.
void added_magnitude(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, double* out, std::int64_t ld);

// What rounding each weight to the type of x may add to an element (Plan::rounds_weights), `weights` = Σ_k |x_k·w_k|: half a unit
// in the last place, and 2^-17 for scales that are two numbers of that type (cuda/sm80_mma/middle.cuh). Before its global a weight
// below f16's normal numbers is off by 2^-25 instead: `sum_x` = Σ_k |x_k|.
inline double weight_rounding(DType x_type, double weights, double sum_x, const Global& global) {
  if (x_type == DType::bf16) return (0x1p-8 + 0x1p-16) * weights;
  const double value = std::abs(static_cast<double>(global.value));
  return (0x1p-11 + 0x1p-20) * weights + 0x1p-25 * sum_x * (global.op == Global::Op::divide ? 1 / value : value);
}

// |y − expected| ≤ this, for y rounded to `type` (bf16: 2^-8, f16: 2^-11, f32: 2^-24 relative; half of the smallest subnormal where
// it underflows). `magnitude` = Σ_k |x_k|·added_magnitude + |bias|; `weights`: weight_rounding, or 0.
inline double error_bound(DType type, double expected, double magnitude, std::int64_t k, double weights = 0) {
  constexpr double u = 0x1p-24;
  constexpr double extra = 16;
  const double terms = (static_cast<double>(k) + extra) * u;
  const double sum = terms / (1 - terms) * magnitude + weights;
  const double relative = type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24;
  const double smallest = type == DType::f16 ? 0x1p-25 : 0x1p-134;
  return sum + relative * (std::abs(expected) + sum) + smallest;
}

}  // namespace swordfish
