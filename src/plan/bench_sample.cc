// Random activations for timing, and the check of a sample of the product.
#include "plan/bench_sample.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/try.h"
#include "plan/error_bound.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

double value_at(DType type, const std::byte* y, std::size_t i) {
  if (type == DType::f32) return load_unaligned<float>(y + 4 * i);
  return half_to_f32(type, load_unaligned<std::uint16_t>(y + 2 * i));
}

// `most` of [0, count), evenly spread.
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> picked;
  const std::int64_t n = std::min(count, most);
  for (std::int64_t i = 0; i < n; ++i) picked.push_back(n == 1 ? 0 : i * (count - 1) / (n - 1));
  return picked;
}

}  // namespace

std::vector<std::uint16_t> random_x(DType type, std::int64_t count) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(count));
  for (std::uint16_t& v : x) v = f32_to_half(type, normal(random));
  return x;
}

Status check_sample(const PackedWeight& weight, const Problem& problem, const Plan& plan, const std::vector<std::uint16_t>& x,
                    const std::byte* y, BenchPoint& point) {
  const PackedView& v = weight.view;
  const auto k = static_cast<std::size_t>(v.k);
  const std::vector<std::int64_t> rows = spread(problem.m, 16);
  std::vector<double> w(k), added(k);
  double error2 = 0, norm2 = 0;
  point.bound_ok = true;
  for (std::int64_t p = 0; p < v.n_parts; ++p) {
    SF_ASSIGN(const QuantTensor tensor, unpack(v, p));
    for (const std::int64_t n : spread(tensor.n, std::max<std::int64_t>(64 / v.n_parts, 1))) {
      dequantize(tensor, n, 1, w.data(), v.k);
      added_magnitude(tensor, n, 1, added.data(), v.k);
      for (const std::int64_t m : rows) {
        double expected = 0, magnitude = 0, weights = 0, sum_x = 0;
        for (std::size_t i = 0; i < k; ++i) {
          const double xi = half_to_f32(problem.x_type, x[static_cast<std::size_t>(m) * k + i]);
          expected += xi * w[i];
          weights += std::abs(xi * w[i]);
          sum_x += std::abs(xi);
          magnitude += std::abs(xi) * added[i];
        }
        const double error =
            std::abs(value_at(problem.y_type, y, static_cast<std::size_t>(m * v.n + v.parts[p].n0 + n)) - expected);
        const double rounding = plan.rounds_weights ? weight_rounding(problem.x_type, weights, sum_x, tensor.global) : 0;
        if (!(error <= error_bound(problem.y_type, expected, magnitude, v.k, rounding))) point.bound_ok = false;  // NaN fails
        error2 += error * error;
        norm2 += expected * expected;
      }
    }
  }
  point.relative_error = norm2 > 0 ? std::sqrt(error2 / norm2) : std::sqrt(error2);
  return {};
}

}  // namespace swordfish
