// The rows of the kernel table that the CUDA kernels fill.
#pragma once

#include "kernels/kernel.h"

namespace swordfish::cuda {

std::string middle_can_run(const Problem&);
Plan middle_plan(const Problem&);
Status middle_launch(Context&, const Problem&, const Plan&, const RunArgs&);

std::string decode_can_run(const Problem&);
Plan decode_plan(const Problem&);
Status decode_launch(Context&, const Problem&, const Plan&, const RunArgs&);

Status mma_init(const Plan&, Device, void* workspace, void* stream);  // of both

}  // namespace swordfish::cuda
