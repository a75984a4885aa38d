// Register arithmetic whose exact result matters: bit placement (lop3, prmt, shf) and 16-bit pairs with stated roundings.
//
// Pairs are 32-bit words, element 0 in the low half. Subnormals are kept; a NaN result is always 0x7fff, in fp32 0x7fffffff (as
// recorded on an H200; only the widening of bf16 keeps the bits).
#pragma once

#include "kernels/cuda/ptx/config.h"
#if !SF_ON_DEVICE
#include <bit>
#include <cmath>

#include "quant/numeric.h"
#endif

namespace swordfish::ptx {

// lop3.b32 (PTX ISA, "Logic and Shift Instructions: lop3"): `table` is the expression applied to 0xf0, 0xcc, 0xaa.
inline constexpr int kLopA = 0xf0, kLopB = 0xcc, kLopC = 0xaa;
template <int table>
SF_DEVICE std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  static_assert(table >= 0 && table < 256);
#if SF_ON_DEVICE
  std::uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(table));
  return d;
#else
  std::uint32_t d = 0;
  for (int i = 0; i < 8; ++i)
    if (table >> i & 1) d |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return d;
#endif
}
// (a & mask) | base: how a code is dropped into a magic number, one lop3.
SF_DEVICE std::uint32_t and_or(std::uint32_t a, std::uint32_t mask, std::uint32_t base) {
  return lop3<(kLopA & kLopB) | kLopC>(a, mask, base);
}

// (a & mask) | (b & ~mask).
SF_DEVICE std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  return lop3<(kLopA & kLopB) | (~kLopA & kLopC & 0xff)>(mask, a, b);
}

// prmt.b32 (PTX ISA, "Data Movement and Conversion Instructions: prmt"), default mode: byte i of the result is byte (selector >>
// 4i) & 7 of {b, a}; bit 3 of the selector spreads that byte's sign instead.
SF_DEVICE std::uint32_t prmt(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
#if SF_ON_DEVICE
  std::uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
#else
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t d = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t s = selector >> (4 * i) & 15, byte = static_cast<std::uint32_t>(bytes >> (8 * (s & 7)) & 0xff);
    d |= (s & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
  }
  return d;
#endif
}
// mov.b32 (PTX ISA, "Data Movement and Conversion Instructions: mov", pack and unpack): element i (0: low) of a pair, twice. As an
// operand of fma_x2 and the like it is free: the hardware takes either half for both.
template <int i>
SF_DEVICE std::uint32_t twice(std::uint32_t pair) {
#if SF_ON_DEVICE
  std::uint32_t d;
  if constexpr (i == 0)
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(d) : "r"(pair));
  else
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(d) : "r"(pair));
  return d;
#else
  const std::uint32_t element = pair >> 16 * i & 0xffff;
  return element << 16 | element;
#endif
}
// shf.r.wrap.b32 (PTX ISA, "shf"): the low word of {high, low} >> (shift % 32).
SF_DEVICE std::uint32_t shf_r(std::uint32_t low, std::uint32_t high, std::uint32_t shift) {
#if SF_ON_DEVICE
  std::uint32_t d;
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(low), "r"(high), "r"(shift));
  return d;
#else
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> (shift & 31));
#endif
}

#if !SF_ON_DEVICE
namespace detail {
inline float canonical(float f) { return f != f ? std::bit_cast<float>(0x7fffffffu) : f; }
}  // namespace detail
#endif

// fma.rn.f32, mul.rn.f32, add.rn.f32 (PTX ISA, "Floating Point Instructions"): never fused nor split by the compiler.
SF_DEVICE float fma_f32(float a, float b, float c) {
#if SF_ON_DEVICE
  return __fmaf_rn(a, b, c);
#else
  return detail::canonical(__builtin_fmaf(a, b, c));
#endif
}
SF_DEVICE float mul_f32(float a, float b) {
#if SF_ON_DEVICE
  return __fmul_rn(a, b);
#else
  return detail::canonical(a * b);
#endif
}
SF_DEVICE float add_f32(float a, float b) {
#if SF_ON_DEVICE
  return __fadd_rn(a, b);
#else
  return detail::canonical(a + b);
#endif
}

#if !SF_ON_DEVICE
namespace detail {
inline float half_to_f32(Half type, std::uint32_t pair, int i) {
  const auto h = static_cast<std::uint16_t>(pair >> 16 * i);
  return type == Half::f16 ? f16_to_f32(h) : bf16_to_f32(h);
}
inline std::uint32_t half_from_f32(Half type, float f) {
  if (f != f) return 0x7fffu;
  return type == Half::f16 ? f32_to_f16(f) : f32_to_bf16(f);
}
// a·b + c rounded once: the sum is rounded to odd at 53 bits and again at 24, after which rounding to 11 or 8 bits is that of the
// exact value.
inline std::uint32_t half_fma(Half type, float a, float b, float c) {
  const double p = static_cast<double>(a) * b;  // exact: at most 22 bits
  double s = p + c;
  if (std::isfinite(s)) {
    const double bb = s - p, error = (p - (s - bb)) + (c - bb);
    if (error != 0 && !(std::bit_cast<std::uint64_t>(s) & 1)) s = std::nextafter(s, error > 0 ? HUGE_VAL : -HUGE_VAL);
  }
  float f = static_cast<float>(s);
  if (std::isfinite(s) && static_cast<double>(f) != s) {
    // Truncate to 24 bits and set the last one.
    if (std::fabs(static_cast<double>(f)) > std::fabs(s)) f = std::nextafterf(f, 0.0f);
    f = std::bit_cast<float>(std::bit_cast<std::uint32_t>(f) | 1u);
  }
  return half_from_f32(type, f);
}
}  // namespace detail
#endif

// fma.rn.{f16x2,bf16x2} (PTX ISA, "Half Precision Floating Point Instructions: fma"): a·b + c, rounded once. sm_80 and up.
template <Half type>
SF_DEVICE std::uint32_t fma_x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#if SF_ON_DEVICE
  std::uint32_t d;
  if constexpr (type == Half::f16)
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
#else
  std::uint32_t d = 0;
  for (int i = 0; i < 2; ++i)
    d |= detail::half_fma(type, detail::half_to_f32(type, a, i), detail::half_to_f32(type, b, i), detail::half_to_f32(type, c, i))
         << 16 * i;
  return d;
#endif
}
// Products, sums and differences of pairs, rounded once: sm_80 has only the fma for bf16, which gives the same bits.
template <Half type>
SF_DEVICE std::uint32_t mul_x2(std::uint32_t a, std::uint32_t b) {
#if SF_ON_DEVICE
  if constexpr (type == Half::f16) {
    std::uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  } else {
    return fma_x2<type>(a, b, 0x80008000u);  // + (-0)
  }
#else
  return fma_x2<type>(a, b, 0x80008000u);
#endif
}
template <Half type>
SF_DEVICE std::uint32_t add_x2(std::uint32_t a, std::uint32_t b) {
#if SF_ON_DEVICE
  if constexpr (type == Half::f16) {
    std::uint32_t d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  } else {
    return fma_x2<type>(a, 0x3f803f80u, b);  // a·1 + b
  }
#else
  return fma_x2<type>(a, type == Half::f16 ? 0x3c003c00u : 0x3f803f80u, b);
#endif
}
template <Half type>
SF_DEVICE std::uint32_t sub_x2(std::uint32_t a, std::uint32_t b) {
#if SF_ON_DEVICE
  if constexpr (type == Half::f16) {
    std::uint32_t d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  } else {
    return fma_x2<type>(b, 0xbf80bf80u, a);  // b·(-1) + a
  }
#else
  return fma_x2<type>(b, type == Half::f16 ? 0xbc00bc00u : 0xbf80bf80u, a);
#endif
}

// cvt.rn.{f16x2,bf16x2}.f32 (PTX ISA, "cvt"): low and high rounded to nearest even.
template <Half type>
SF_DEVICE std::uint32_t cvt_x2(float low, float high) {
#if SF_ON_DEVICE
  std::uint32_t d;
  if constexpr (type == Half::f16)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
#else
  return detail::half_from_f32(type, low) | detail::half_from_f32(type, high) << 16;
#endif
}
// Element i (0: low) of a pair as fp32, exact.
template <Half type>
SF_DEVICE float to_f32(std::uint32_t pair, int i) {
#if SF_ON_DEVICE
  const std::uint32_t h = i ? pair >> 16 : pair & 0xffffu;
  if constexpr (type == Half::bf16) {
    return bits_as<float>(h << 16);
  } else {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(static_cast<std::uint16_t>(h)));
    return f;
  }
#else
  const float f = detail::half_to_f32(type, pair, i);
  return type == Half::f16 ? detail::canonical(f) : f;
#endif
}

}  // namespace swordfish::ptx
