// warp-level block-scaled mma (sm_120, 121), NVFP4 × NVFP4 → f16.
#include "kernels/cuda/blockscaled/cutlass/dense.cuh"
#include "kernels/cuda/blockscaled/cutlass/units.h"

namespace swordfish::blockscaled {

Instance warp_nvfp4_f16() { return Dense<Family::warp, 16, cutlass::half_t>::instance(DType::f16); }

}  // namespace swordfish::blockscaled
