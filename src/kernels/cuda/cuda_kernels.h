// The rows of the kernel table that the CUDA kernels fill.
#pragma once

#include <cstddef>

#include "kernels/cuda/blockscaled/gemm.h"
#include "kernels/kernel.h"

namespace swordfish::cuda {

// Every GPU workspace begins with these bytes of counters, zero between calls: prepared once, it serves the plans of all kernels.
inline constexpr std::size_t kWorkspaceCounters = 16 * 1024;

// The GPU of a problem: the one it describes, or the device's.
Result<const GpuInfo*> gpu_of(const Problem&);
// The same for a call that is about to run: refused where the problem only describes a GPU or a pointer is not on it.
Result<const GpuInfo*> gpu_to_run(const Problem&, const RunArgs&);

std::string middle_can_run(const Problem&);
Plan middle_plan(const Problem&);
Status middle_launch(Context&, const Problem&, const Plan&, const RunArgs&);

std::string decode_can_run(const Problem&);
Plan decode_plan(const Problem&);
Status decode_launch(Context&, const Problem&, const Plan&, const RunArgs&);

Status mma_init(const Plan&, Device, void* workspace, void* stream);  // of all CUDA kernels: zeroes the counters

}  // namespace swordfish::cuda

namespace swordfish::blockscaled {

template <Family family, bool grouped>
std::string can_run(const Problem&);
template <Family family, bool grouped>
Plan plan(const Problem&);
template <Family family, bool grouped>
Status launch(Context&, const Problem&, const Plan&, const RunArgs&);

}  // namespace swordfish::blockscaled
