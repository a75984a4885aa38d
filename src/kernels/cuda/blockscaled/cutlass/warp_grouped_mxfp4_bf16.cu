// warp-level block-scaled mma (sm_120, 121), MXFP4 × MXFP4 → bf16, grouped.
#include "kernels/cuda/blockscaled/cutlass/grouped.cuh"
#include "kernels/cuda/blockscaled/cutlass/units.h"

namespace swordfish::blockscaled {

Instance warp_grouped_mxfp4_bf16() { return Grouped<Family::warp, 32, cutlass::bfloat16_t>::instance(DType::bf16); }

}  // namespace swordfish::blockscaled
