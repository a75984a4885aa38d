// Instances of the decode kernel for int8 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel int8_kernel(bool bf16, int m8, Flush flush) {
  constexpr Weights w = Weights::int8;
  if (flush == Flush::units) return m8 == 1 ? decode_instance<w, 1, Flush::units>(bf16) : decode_instance<w, 2, Flush::units>(bf16);
  if (flush == Flush::pairs) return nullptr;
  return m8 == 1 ? decode_instance<w, 1, Flush::slices>(bf16) : decode_instance<w, 2, Flush::slices>(bf16);
}

}  // namespace swordfish::mma
