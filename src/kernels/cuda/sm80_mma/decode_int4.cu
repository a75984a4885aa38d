// Instances of the decode kernel for int4 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel int4_kernel(bool bf16, int m8, Flush flush, int warps) {
  constexpr Weights w = Weights::int4;
  if (flush == Flush::units) {
    if (m8 == 1)
      return warps == 8 ? decode_instance<w, 1, Flush::units, 8, 2>(bf16) : decode_instance<w, 1, Flush::units, 16>(bf16);
    if (m8 == 2)
      return warps == 8 ? decode_instance<w, 2, Flush::units, 8, 2>(bf16) : decode_instance<w, 2, Flush::units, 16>(bf16);
    return decode_instance<w, 4, Flush::units, 8>(bf16);
  }
  if (m8 == 4) return nullptr;
  if (flush == Flush::pairs)
    return m8 == 1 ? decode_instance<w, 1, Flush::pairs, 16>(bf16) : decode_instance<w, 2, Flush::pairs, 16>(bf16);
  return m8 == 1 ? decode_instance<w, 1, Flush::slices, 16>(bf16) : decode_instance<w, 2, Flush::slices, 12>(bf16);
}

}  // namespace swordfish::mma
