// Instances of the decode kernel for int4 codes.
#include "kernels/cuda/sm80_mma/instances.h"

namespace swordfish::mma {

DecodeKernel int4_kernel(bool bf16, int m8, Flush flush, bool two_ctas) {
  constexpr Weights w = Weights::int4;
  if (two_ctas && flush == Flush::units)
    return m8 == 1 ? decode_instance<w, 1, Flush::units, 8, 2>(bf16) : decode_instance<w, 2, Flush::units, 8, 2>(bf16);
  switch (flush) {
    case Flush::units: return m8 == 1 ? decode_instance<w, 1, Flush::units>(bf16) : decode_instance<w, 2, Flush::units>(bf16);
    case Flush::pairs: return m8 == 1 ? decode_instance<w, 1, Flush::pairs>(bf16) : decode_instance<w, 2, Flush::pairs>(bf16);
    case Flush::slices: break;
  }
  return m8 == 1 ? decode_instance<w, 1, Flush::slices>(bf16) : decode_instance<w, 2, Flush::slices>(bf16);
}

}  // namespace swordfish::mma
