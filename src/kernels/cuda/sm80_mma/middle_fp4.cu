// Instances of the middle kernel for e2m1 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel fp4_middle_kernel(bool bf16, int m16, int columns) {
  constexpr Weights w = Weights::fp4;
  if (columns != 2 || m16 == 3) return nullptr;
  return m16 == 2 ? middle_instance<w, 2, Flush::slices, 2>(bf16) : middle_instance<w, 4, Flush::slices, 2>(bf16);
}

}  // namespace swordfish::mma
