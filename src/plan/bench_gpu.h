// What timing on the CPU and on a GPU share, and timing on a GPU.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "swordfish/bench.h"

namespace swordfish {

// Gaussian values of a 16-bit type.
std::vector<std::uint16_t> random_x(DType type, std::int64_t count);

// Compares a sample of y[m, n] (no gaps) with fp64 on the packed weight's values; fills relative_error and bound_ok.
Status check_sample(const PackedWeight& weight, const Problem& problem, const Plan& plan, const std::vector<std::uint16_t>& x,
                    const std::byte* y, BenchPoint& point);

// bench() on options.device, for calls that have been planned.
Result<std::vector<BenchPoint>> bench_on_gpu(Context& context, const PackedWeight& weight, const BenchOptions& options,
                                             std::span<const std::pair<Problem, Plan>> calls);

}  // namespace swordfish
