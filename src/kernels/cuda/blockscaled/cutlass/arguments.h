// How a Gemm reads in CUTLASS's terms: strides and scale layouts. Compiles with nvcc for the kernels and with g++ for the tests,
// which read operands back through these very layouts.
#pragma once

#include <cutlass/cutlass.h>

#include <cute/layout.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>

#include "kernels/cuda/blockscaled/gemm.h"

namespace swordfish::blockscaled {

// CUTLASS's strides are (rows, 1, batches); what is not static in a batch stride stays 0, as there is one batch.
template <class Stride>
CUTE_HOST_DEVICE Stride row_stride(std::int64_t elements) {
  Stride stride{};
  cute::get<0>(stride) = elements;
  return stride;
}
template <class Stride>
CUTE_HOST_DEVICE Stride stride_x(const Gemm& g) {
  return row_stride<Stride>(g.k);
}
template <class Stride>
CUTE_HOST_DEVICE Stride stride_w(const Gemm& g) {
  return row_stride<Stride>(g.k);
}
template <class Stride>
CUTE_HOST_DEVICE Stride stride_y(const Gemm& g) {
  return row_stride<Stride>(g.ldy);
}

// `block`: columns a scale. (row, k, batch) to a byte of the scales.
template <int block>
CUTE_HOST_DEVICE auto layout_x_scales(const Gemm& g) {
  return cutlass::detail::Sm1xxBlockScaledConfig<block>::tile_atom_to_shape_SFA(cute::make_shape(g.m, g.n, g.k, 1));
}
template <int block>
CUTE_HOST_DEVICE auto layout_w_scales(const Gemm& g) {
  return cutlass::detail::Sm1xxBlockScaledConfig<block>::tile_atom_to_shape_SFB(cute::make_shape(g.m, g.n, g.k, 1));
}

}  // namespace swordfish::blockscaled
