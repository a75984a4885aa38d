// quantize_activations(): the definition in the header, one block after another.
#include "quant/quantize_activation.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/try.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

float element(DType type, const void* x, std::int64_t i) {
  return half_to_f32(type, load_unaligned<std::uint16_t>(static_cast<const std::byte*>(x) + 2 * i));
}

struct BlockScale {
  std::uint8_t byte;
  float r;  // elements are multiplied by it; 0: all codes are 0
};

// Blocks of `block` columns; scale_of(a, finite) gives a block's scale. x_type, m, k and ldx have been checked.
template <class ScaleOf>
QuantizedActivations quantize_blocks(DType x_type, const void* x, std::int64_t m, std::int64_t k, std::int64_t ldx,
                                     std::int64_t block, ScaleOf scale_of) {
  const std::int64_t blocks = (k + block - 1) / block, row_bytes = (k + 1) / 2;
  QuantizedActivations out{Buffer(static_cast<std::size_t>(m * row_bytes)), Buffer(static_cast<std::size_t>(m * blocks)), 1};
  std::fill_n(out.codes.as<std::uint8_t>(), out.codes.size(), std::uint8_t{0});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t first = i * ldx + b * block, count = std::min(block, k - b * block);
      float a = 0;
      bool finite = true;
      for (std::int64_t j = 0; j < count; ++j) {
        const float v = std::fabs(element(x_type, x, first + j));
        finite = finite && std::isfinite(v);
        a = std::max(a, v);
      }
      const BlockScale scale = scale_of(a, finite);
      out.scales.as<std::uint8_t>()[i * blocks + b] = scale.byte;
      if (scale.r == 0) continue;
      for (std::int64_t j = 0; j < count; ++j) {
        const float v = element(x_type, x, first + j);
        const auto code =
            static_cast<std::uint8_t>(round_to_e2m1(std::fabs(static_cast<double>(v)) * scale.r) | (std::signbit(v) ? 8 : 0));
        const std::int64_t at = b * block + j;
        out.codes.as<std::uint8_t>()[i * row_bytes + at / 2] |= static_cast<std::uint8_t>(code << 4 * (at % 2));
      }
    }
  }
  return out;
}

Status check_activations(DType x_type, std::int64_t m, std::int64_t k, std::int64_t ldx) {
  if (x_type != DType::bf16 && x_type != DType::f16)
    return invalid_argument("activations of type {}; give bf16 or f16", name(x_type));
  if (m < 1 || k < 1 || ldx < k) return invalid_argument("activations of {} x {} with row stride {}", m, k, ldx);
  return {};
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
  SF_TRY(check_activations(x_type, m, k, ldx));
  if (!(global >= kSmallestActivationGlobal) || !(global <= kLargestActivationGlobal))
    return invalid_argument("global scale {} of activations; it must lie in [2^-90, 2^117]", global);
  const ActivationScale scales = activation_scale(global);
  QuantizedActivations out = quantize_blocks(x_type, x, m, k, ldx, kActivationBlock, [&](float a, bool finite) -> BlockScale {
    if (!finite) return {0x7f, 0};
    const std::uint8_t byte = round_to_e4m3(std::min(a * scales.c, 448.0f));
    return {byte, byte == 0 ? 0 : scales.inv / e4m3_to_f32(byte)};
  });
  out.global = global;
  return out;
}

Result<QuantizedActivations> quantize_activations_mx(DType x_type, const void* x, std::int64_t m, std::int64_t k,
                                                     std::int64_t ldx) {
  SF_TRY(check_activations(x_type, m, k, ldx));
  return quantize_blocks(x_type, x, m, k, ldx, kMxActivationBlock, [](float a, bool finite) -> BlockScale {
    if (!finite) return {0xff, 0};
    const int exponent = std::max(a == 0 ? -126 : std::ilogb(a) - 2, -126);
    return {static_cast<std::uint8_t>(exponent + 127), std::ldexp(1.0f, -exponent)};
  });
}

}  // namespace swordfish
