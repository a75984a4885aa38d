// The rows of the kernel table that the CPU kernels fill.
#pragma once

#include "kernels/kernel.h"

namespace swordfish {
namespace cpu {
std::string decode_can_run(const Problem&);
Plan decode_plan(const Problem&);
Status decode_launch(Context&, const Problem&, const Plan&, const RunArgs&);

std::string gemm_can_run(const Problem&);
Plan gemm_plan(const Problem&);
Status gemm_launch(Context&, const Problem&, const Plan&, const RunArgs&);
}  // namespace cpu

namespace reference {
std::string can_run(const Problem&);
Plan plan(const Problem&);
Status launch(Context&, const Problem&, const Plan&, const RunArgs&);
}  // namespace reference
}  // namespace swordfish
