// warp-level block-scaled mma (sm_120, 121), MXFP4 × MXFP4 → f16.
#include "kernels/cuda/blockscaled/cutlass/dense.cuh"
#include "kernels/cuda/blockscaled/cutlass/units.h"

namespace swordfish::blockscaled {

Instance warp_mxfp4_f16() { return Dense<Family::warp, 32, cutlass::half_t>::instance(DType::f16); }

}  // namespace swordfish::blockscaled
