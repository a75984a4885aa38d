// Instances of the middle kernel for int8 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel int8_middle_kernel(bool bf16, int m16, Flush flush, int columns) {
  constexpr Weights w = Weights::int8;
  if (columns != 2 || m16 == 3) return nullptr;
  if (flush == Flush::units)
    return m16 == 2 ? middle_instance<w, 2, Flush::units, 2>(bf16) : middle_instance<w, 4, Flush::units, 2>(bf16);
  return m16 == 2 ? middle_instance<w, 2, Flush::slices, 2>(bf16) : middle_instance<w, 4, Flush::slices, 2>(bf16);
}

}  // namespace swordfish::mma
