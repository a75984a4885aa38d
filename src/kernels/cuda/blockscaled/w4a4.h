// A W4A4 product on a device: x quantized, then the GEMMs of its jobs.
#pragma once

#include "kernels/cuda/blockscaled/gemm.h"
#include "kernels/cuda/blockscaled/jobs.h"
#include "swordfish/gemm.h"

namespace swordfish::blockscaled {

// On the current device. Arguments have been checked; allocates nothing.
Status launch_w4a4(const Instance& instance, const Problem& p, const Jobs& jobs, int sms, const RunArgs& a);

}  // namespace swordfish::blockscaled
