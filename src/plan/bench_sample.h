// What timing on the CPU and on a GPU share: random activations, and the check that what was timed is right.
#pragma once

#include <cstdint>
#include <vector>

#include "swordfish/bench.h"

namespace swordfish {

// Gaussian values of a 16-bit type.
std::vector<std::uint16_t> random_x(DType type, std::int64_t count);

// Compares a sample of y[m, n] (rows without gaps) with fp64 on the packed weight's values; fills relative_error and bound_ok.
Status check_sample(const PackedWeight& weight, const Problem& problem, const Plan& plan, const std::vector<std::uint16_t>& x,
                    const std::byte* y, BenchPoint& point);

}  // namespace swordfish
