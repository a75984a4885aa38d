// The units of this folder, one instance each.
#pragma once

#include "kernels/cuda/blockscaled/gemm.h"

namespace swordfish::blockscaled {

Instance tcgen05_nvfp4_bf16();
Instance tcgen05_nvfp4_f16();
Instance tcgen05_mxfp4_bf16();
Instance tcgen05_mxfp4_f16();
Instance tcgen05_grouped_nvfp4_bf16();
Instance tcgen05_grouped_mxfp4_bf16();
Instance warp_nvfp4_bf16();
Instance warp_nvfp4_f16();
Instance warp_mxfp4_bf16();
Instance warp_mxfp4_f16();
Instance warp_grouped_nvfp4_bf16();
Instance warp_grouped_mxfp4_bf16();

}  // namespace swordfish::blockscaled
