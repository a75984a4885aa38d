// quantize_activations(): the definition in the header, one block after another.
#include "quant/quantize_activation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

float element(DType type, const void* x, std::int64_t i) {
  const auto h = load_unaligned<std::uint16_t>(static_cast<const std::byte*>(x) + 2 * i);
  return type == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

// v in [0, 448] to e4m3, nearest even. Steps are 2^-9 below 2^-6, then an eighth of the power of two.
std::uint8_t to_e4m3(float v) {
  const int exponent = v < 0x1p-6f ? -6 : std::ilogb(v);
  const auto steps = static_cast<int>(std::lrint(std::ldexp(v, 3 - exponent)));  // exact but for the rounding asked for
  // 8 steps or more: a normal number, its leading bit is the exponent field's lowest.
  return static_cast<std::uint8_t>(((exponent + 6) << 3) + steps);
}

// v ≥ 0 to the magnitude code of e2m1: how many midpoints lie below it; a midpoint itself goes to the even code.
std::uint8_t to_e2m1(double v) {
  constexpr std::array<double, 7> midpoints{0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  std::uint8_t code = 0;
  for (std::size_t i = 0; i < midpoints.size(); ++i)
    if (v > midpoints[i] || (v == midpoints[i] && i % 2 == 1)) code = static_cast<std::uint8_t>(i + 1);
  return code;
}

}  // namespace

float activation_global(DType x_type, const void* x, std::int64_t m, std::int64_t k, std::int64_t ldx) {
  float amax = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < k; ++j) {
      const float v = std::fabs(element(x_type, x, i * ldx + j));
      if (std::isfinite(v)) amax = std::max(amax, v);
    }
  }
  return std::max(amax / 2688.0f, kSmallestActivationGlobal);
}

Result<QuantizedActivations> quantize_activations(DType x_type, const void* x, std::int64_t m, std::int64_t k, std::int64_t ldx,
                                                  float global) {
  if (x_type != DType::bf16 && x_type != DType::f16)
    return invalid_argument("activations of type {}; give bf16 or f16", name(x_type));
  if (m < 1 || k < 1 || ldx < k) return invalid_argument("activations of {} x {} with row stride {}", m, k, ldx);
  if (!(global >= kSmallestActivationGlobal) || !(global <= kLargestActivationGlobal))
    return invalid_argument("global scale {} of activations; it must lie in [2^-90, 2^117]", global);
  const std::int64_t blocks = (k + kActivationBlock - 1) / kActivationBlock, row_bytes = (k + 1) / 2;
  QuantizedActivations out{Buffer(static_cast<std::size_t>(m * row_bytes)), Buffer(static_cast<std::size_t>(m * blocks)), global};
  const ActivationScale scales = activation_scale(global);
  const float inv = scales.inv, c = scales.c;
  std::fill_n(out.codes.as<std::uint8_t>(), out.codes.size(), std::uint8_t{0});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t first = i * ldx + b * kActivationBlock, count = std::min(kActivationBlock, k - b * kActivationBlock);
      float a = 0;
      bool finite = true;
      for (std::int64_t j = 0; j < count; ++j) {
        const float v = std::fabs(element(x_type, x, first + j));
        finite = finite && std::isfinite(v);
        a = std::max(a, v);
      }
      std::uint8_t& scale = out.scales.as<std::uint8_t>()[i * blocks + b];
      scale = finite ? to_e4m3(std::min(a * c, 448.0f)) : std::uint8_t{0x7f};
      if (scale == 0 || !finite) continue;
      const float r = inv / e4m3_to_f32(scale);
      for (std::int64_t j = 0; j < count; ++j) {
        const float v = element(x_type, x, first + j);
        const auto code = static_cast<std::uint8_t>(to_e2m1(std::fabs(static_cast<double>(v)) * r) | (std::signbit(v) ? 8 : 0));
        const std::int64_t at = b * kActivationBlock + j;
        out.codes.as<std::uint8_t>()[i * row_bytes + at / 2] |= static_cast<std::uint8_t>(code << 4 * (at % 2));
      }
    }
  }
  return out;
}

}  // namespace swordfish
