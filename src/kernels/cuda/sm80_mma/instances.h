// The kernel instances of one architecture, by family: decode_<family>.cu each hold one of these functions.
#pragma once

#include "kernels/cuda/sm80_mma/decode.cuh"

namespace swordfish::mma {

using DecodeKernel = void (*)(DecodeArgs);

// Null where there is no such instance.
DecodeKernel int4_kernel(bool bf16, int m8, Flush flush, int warps);
DecodeKernel int8_kernel(bool bf16, int m8, Flush flush, int warps);
DecodeKernel fp4_kernel(bool bf16, int m8, Flush flush);
DecodeKernel fp4_e4m3_kernel(bool bf16, int m8);

template <Weights weights, int m8, Flush flush, int warps, int ctas = 1>
DecodeKernel decode_instance(bool bf16) {
  return bf16 ? decode_kernel<weights, Half::bf16, m8, flush, warps, kStages, ctas>
              : decode_kernel<weights, Half::f16, m8, flush, warps, kStages, ctas>;
}

}  // namespace swordfish::mma
