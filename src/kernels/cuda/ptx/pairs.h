// Minima and maxima: of fp32 values, and of pairs of unsigned 16-bit numbers in one word.
#pragma once

#include "kernels/cuda/ptx/config.h"

namespace swordfish::ptx {

// max.f32, min.f32 (PTX ISA, "Floating Point Instructions: max"): of numbers; callers hold no NaN.
SF_DEVICE float max_f32(float a, float b) {
#if SF_ON_DEVICE
  return fmaxf(a, b);
#else
  return a > b ? a : b;
#endif
}
SF_DEVICE float min_f32(float a, float b) {
#if SF_ON_DEVICE
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}
// div.rn.f32 (PTX ISA, "Floating Point Instructions: div").
SF_DEVICE float div_f32(float a, float b) {
#if SF_ON_DEVICE
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
// max.u16x2 (PTX ISA, "Integer Arithmetic Instructions: max"; one instruction from sm_90).
SF_DEVICE std::uint32_t max_u16x2(std::uint32_t a, std::uint32_t b) {
#if SF_ON_DEVICE
  return __vmaxu2(a, b);
#else
  const std::uint32_t low = (a & 0xffffu) > (b & 0xffffu) ? a & 0xffffu : b & 0xffffu;
  const std::uint32_t high = a >> 16 > b >> 16 ? a >> 16 : b >> 16;
  return high << 16 | low;
#endif
}

// max.s16x2 (PTX ISA, "Integer Arithmetic Instructions: max"; one instruction from sm_90).
SF_DEVICE std::uint32_t max_s16x2(std::uint32_t a, std::uint32_t b) {
#if SF_ON_DEVICE
  return __vmaxs2(a, b);
#else
  constexpr std::uint32_t kSigns = 0x80008000u;  // order as unsigned numbers
  return max_u16x2(a ^ kSigns, b ^ kSigns) ^ kSigns;
#endif
}

}  // namespace swordfish::ptx
