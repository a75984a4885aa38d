// The kernel instances of one architecture, by family: decode_<family>.cu each hold one of these functions.
#pragma once

#include "kernels/cuda/sm80_mma/decode.cuh"
#include "kernels/cuda/sm80_mma/middle.cuh"

namespace swordfish::mma {

using DecodeKernel = void (*)(DecodeArgs);

// Null where there is no such instance.
DecodeKernel int4_kernel(bool bf16, int m8, Flush flush, bool two_ctas);  // 8 warps, two CTAs an SM
DecodeKernel int8_kernel(bool bf16, int m8, Flush flush);
DecodeKernel fp4_kernel(bool bf16, int m8, Flush flush);
DecodeKernel fp4_e4m3_kernel(bool bf16, int m8);
DecodeKernel fp4_e8m0_kernel(int m8);  // for bf16 x
DecodeKernel int4_middle_kernel(bool bf16, int m16, Flush flush, int columns);
DecodeKernel int8_middle_kernel(bool bf16, int m16, Flush flush, int columns);
DecodeKernel fp4_middle_kernel(bool bf16, int m16, int columns);

template <Weights weights, int m8, Flush flush, int warps = 0, int ctas = 1>
DecodeKernel decode_instance(bool bf16) {
  return bf16 ? decode_kernel<weights, Half::bf16, m8, flush, warps, 0, ctas>
              : decode_kernel<weights, Half::f16, m8, flush, warps, 0, ctas>;
}
template <Weights weights, int m16, Flush flush, int columns>
DecodeKernel middle_instance(bool bf16) {
  return bf16 ? middle_kernel<weights, Half::bf16, m16, flush, columns, kMiddleWarps>
              : middle_kernel<weights, Half::f16, m16, flush, columns, kMiddleWarps>;
}

}  // namespace swordfish::mma
