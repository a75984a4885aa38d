// A Gemm carried out on the host as CUTLASS's kernel would read it: operands, scales and y through CUTLASS's own strides and
// layouts (built only where its headers and the CUDA toolkit's are found).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/blockscaled/gemm.h"

namespace swordfish::test {

// Writes fp32 results to y[i], where i is the element of y that the kernel would write, counted from `y0`. fp64 sums; one rounding.
// `grouped`: strides as CUTLASS's grouped kernels have them.
void cutlass_gemm(const blockscaled::Gemm& gemm, int block, bool grouped, const void* y0, std::vector<float>& y);

}  // namespace swordfish::test
