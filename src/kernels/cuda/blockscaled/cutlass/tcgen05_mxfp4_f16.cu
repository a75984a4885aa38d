// tcgen05 (sm_100, 103, 110), MXFP4 × MXFP4 → f16.
#include "kernels/cuda/blockscaled/cutlass/dense.cuh"
#include "kernels/cuda/blockscaled/cutlass/units.h"

namespace swordfish::blockscaled {

Instance tcgen05_mxfp4_f16() { return Dense<Family::tcgen05, 32, cutlass::half_t>::instance(DType::f16); }

}  // namespace swordfish::blockscaled
