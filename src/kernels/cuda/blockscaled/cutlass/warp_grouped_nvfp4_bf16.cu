// warp-level block-scaled mma (sm_120, 121), NVFP4 × NVFP4 → bf16, grouped.
#include "kernels/cuda/blockscaled/cutlass/grouped.cuh"
#include "kernels/cuda/blockscaled/cutlass/units.h"

namespace swordfish::blockscaled {

Instance warp_grouped_nvfp4_bf16() { return Grouped<Family::warp, 16, cutlass::bfloat16_t>::instance(DType::bf16); }

}  // namespace swordfish::blockscaled
