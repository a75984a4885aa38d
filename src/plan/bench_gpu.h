// Timing on a GPU.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "swordfish/bench.h"

namespace swordfish {

// bench() on options.device, for calls that have been planned.
Result<std::vector<BenchPoint>> bench_on_gpu(Context& context, const PackedWeight& weight, const BenchOptions& options,
                                             std::span<const std::pair<Problem, Plan>> calls);

}  // namespace swordfish
