// Instances of the middle kernel for int4 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel int4_middle_kernel(bool bf16, int m16, Flush flush, int columns) {
  constexpr Weights w = Weights::int4;
  if (flush == Flush::slices) {
    if (columns != 2 || m16 == 3 || m16 == 8) return nullptr;
    return m16 == 2 ? middle_instance<w, 2, Flush::slices, 2>(bf16) : middle_instance<w, 4, Flush::slices, 2>(bf16);
  }
  if (columns == 2) {
    if (m16 == 2) return middle_instance<w, 2, Flush::units, 2>(bf16);
    if (m16 == 8) return middle_instance<w, 8, Flush::units, 2>(bf16);
    return m16 == 3 ? middle_instance<w, 3, Flush::units, 2>(bf16) : middle_instance<w, 4, Flush::units, 2>(bf16);
  }
  if (m16 == 3 || m16 == 8) return nullptr;
  return m16 == 2 ? middle_instance<w, 2, Flush::units, 4>(bf16) : middle_instance<w, 4, Flush::units, 4>(bf16);
}

}  // namespace swordfish::mma
