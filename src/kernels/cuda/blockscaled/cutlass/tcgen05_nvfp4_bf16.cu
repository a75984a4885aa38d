// tcgen05 (sm_100, 103, 110), NVFP4 × NVFP4 → bf16.
#include "kernels/cuda/blockscaled/cutlass/dense.cuh"
#include "kernels/cuda/blockscaled/cutlass/units.h"

namespace swordfish::blockscaled {

Instance tcgen05_nvfp4_bf16() { return Dense<Family::tcgen05, 16, cutlass::bfloat16_t>::instance(DType::bf16); }

}  // namespace swordfish::blockscaled
