// Instances of the decode kernel for e2m1 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel fp4_kernel(bool bf16, int m8, Flush flush) {
  constexpr Weights w = Weights::fp4;
  if (flush == Flush::units) return nullptr;
  if (flush == Flush::pairs) return m8 == 1 ? decode_instance<w, 1, Flush::pairs>(bf16) : decode_instance<w, 2, Flush::pairs>(bf16);
  return m8 == 1 ? decode_instance<w, 1, Flush::slices>(bf16) : decode_instance<w, 2, Flush::slices>(bf16);
}

DecodeKernel fp4_e4m3_kernel(bool bf16, int m8) {
  constexpr Weights w = Weights::fp4_e4m3;
  return m8 == 1 ? decode_instance<w, 1, Flush::slices>(bf16) : decode_instance<w, 2, Flush::slices>(bf16);
}

}  // namespace swordfish::mma
