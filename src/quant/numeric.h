// Scalar conversions of the number formats that weights, scales and activations use; the meaning that everything else is tested
// against. Formats: IEEE binary16, bfloat16, OCP e4m3 ("fn"), e8m0 and e2m1 (formats.md 5.1, 6.1).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "swordfish/dtype.h"

namespace swordfish {

inline float bf16_to_f32(std::uint16_t h) { return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16); }

inline float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal or zero, exact
  return sign ? -magnitude : magnitude;
}

// Round to nearest, ties to even; overflow gives infinity; NaN stays a quiet NaN.
inline std::uint16_t f32_to_bf16(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline std::uint16_t f32_to_f16(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (a >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // ≥ 65520 rounds to infinity
  if (a < 0x38800000u) {                                                    // below 2^-14: subnormal; adding 0.5 rounds at 2^-24
    const std::uint32_t r = std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u;
    return static_cast<std::uint16_t>(sign | r);
  }
  return static_cast<std::uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}

// Of a 16-bit type, bf16 or f16.
inline float half_to_f32(DType type, std::uint16_t h) { return type == DType::bf16 ? bf16_to_f32(h) : f16_to_f32(h); }
inline std::uint16_t f32_to_half(DType type, float f) { return type == DType::bf16 ? f32_to_bf16(f) : f32_to_f16(f); }

// e4m3 "fn": 0x7f and 0xff are NaN, no infinity, largest 448.
inline float e4m3_to_f32(std::uint8_t b) {
  const int exponent = (b >> 3) & 15, mantissa = b & 7;
  float v;
  if (exponent == 15 && mantissa == 7)
    v = std::numeric_limits<float>::quiet_NaN();
  else if (exponent == 0)
    v = static_cast<float>(mantissa) * 0x1p-9f;
  else
    v = std::ldexp(1.0f + static_cast<float>(mantissa) / 8.0f, exponent - 7);
  return b & 0x80 ? -v : v;
}

// e8m0: 2^(b-127); 0xff is NaN; 0 is the fp32 subnormal 2^-127.
inline float e8m0_to_f32(std::uint8_t b) {
  if (b == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(b == 0 ? 0x00400000u : static_cast<std::uint32_t>(b) << 23);
}

inline constexpr float kE2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// The code of a value v ≥ 0, to nearest, ties to even. e4m3: 448 where v is larger. e2m1: 6 where v is larger.
inline std::uint8_t round_to_e4m3(double v) {
  if (v >= 448) return 0x7e;
  const int exponent = v < 0x1p-6 ? -6 : std::ilogb(v);  // steps are 2^-9 below 2^-6, then an eighth of the power of two
  const auto steps = static_cast<int>(std::lrint(std::ldexp(v, 3 - exponent)));  // exact but for the rounding asked for
  // From 8 steps on the number is normal: its leading bit carries into the lowest bit of the exponent field.
  return static_cast<std::uint8_t>(((exponent + 6) << 3) + steps);
}
inline std::uint8_t round_to_e2m1(double v) {
  return static_cast<std::uint8_t>((v > 0.25) + (v >= 0.75) + (v > 1.25) + (v >= 1.75) + (v > 2.5) + (v >= 3.5) + (v > 5));
}

template <class T>
T load_unaligned(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// One element of a scale, zero or offset plane as fp32 (exact for every type but i32 and wider, which planes do not have).
inline float plane_value(DType type, const std::byte* p) {
  switch (type) {
    case DType::f16: return f16_to_f32(load_unaligned<std::uint16_t>(p));
    case DType::bf16: return bf16_to_f32(load_unaligned<std::uint16_t>(p));
    case DType::f32: return load_unaligned<float>(p);
    case DType::f8_e4m3: return e4m3_to_f32(load_unaligned<std::uint8_t>(p));
    case DType::f8_e8m0: return e8m0_to_f32(load_unaligned<std::uint8_t>(p));
    case DType::u8: return load_unaligned<std::uint8_t>(p);
    case DType::i8: return load_unaligned<std::int8_t>(p);
    case DType::i16: return load_unaligned<std::int16_t>(p);
    default: return std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace swordfish
