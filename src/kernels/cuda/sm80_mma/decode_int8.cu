// Instances of the decode kernel for int8 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel int8_kernel(bool bf16, int m8, Flush flush, int /*warps*/) {
  constexpr Weights w = Weights::int8;
  if (flush == Flush::units) {
    if (m8 == 1) return decode_instance<w, 1, Flush::units, 16>(bf16);
    return m8 == 2 ? decode_instance<w, 2, Flush::units, 16>(bf16) : decode_instance<w, 4, Flush::units, 8>(bf16);
  }
  if (m8 == 4 || flush == Flush::pairs) return nullptr;
  return m8 == 1 ? decode_instance<w, 1, Flush::slices, 16>(bf16) : decode_instance<w, 2, Flush::slices, 12>(bf16);
}

}  // namespace swordfish::mma
