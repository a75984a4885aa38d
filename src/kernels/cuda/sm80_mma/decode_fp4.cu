// Instances of the decode kernel for e2m1 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel fp4_kernel(bool bf16, int m8, Flush flush) {
  constexpr Weights w = Weights::fp4;
  if (flush == Flush::units) return nullptr;
  if (flush == Flush::pairs) {  // bf16: e8m0 scales go into the fragment, others take the path for any row
    if (bf16) return nullptr;
    return m8 == 1 ? decode_kernel<w, Half::f16, 1, Flush::pairs> : decode_kernel<w, Half::f16, 2, Flush::pairs>;
  }
  return m8 == 1 ? decode_instance<w, 1, Flush::slices>(bf16) : decode_instance<w, 2, Flush::slices>(bf16);
}

DecodeKernel fp4_e4m3_kernel(bool bf16, int m8) {
  constexpr Weights w = Weights::fp4_e4m3;
  return m8 == 1 ? decode_instance<w, 1, Flush::slices>(bf16) : decode_instance<w, 2, Flush::slices>(bf16);
}

DecodeKernel fp4_e8m0_kernel(int m8) {
  constexpr Weights w = Weights::fp4_e8m0;
  return m8 == 1 ? decode_kernel<w, Half::bf16, 1, Flush::pairs> : decode_kernel<w, Half::bf16, 2, Flush::pairs>;
}

}  // namespace swordfish::mma
