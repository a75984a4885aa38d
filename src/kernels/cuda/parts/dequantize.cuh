// Words of mma64/1 turned into A fragments of mma.m16n8k16 (16 rows of W × 16 k), for each code type and both activation types.
//
// No rounding happens here: every result is exact in the 16-bit type. int4 gives q + 16, int8 gives q − 128, e2m1 gives the value
// times a power of two (e2m1_shift) that the caller undoes with its own factor.
//
//   int4:       drop the nibble into the mantissa bits of 16 that count ones: 16 + q, no arithmetic at all (bf16 0x4180 | q << 3,
//               f16 0x4c00 | q << 6). The caller takes 16 + zero off by a sum of x. A constant of 128 (q in the lowest bits) would
//               save a shift, but the tensor core's truncated sums of (128 + q)·x cost accuracy where x has a large mean.
//               Where the caller takes the zero point off at once (int4_fragment_high) that does not matter: 128 + q, 1024 + q.
//   int8, bf16: ((q & 127) | 0x4300) − ((~q & 128) | 0x4300) = q − 128.   int8, f16: (1024 + q) − 1152.
//   e2m1:       the sign goes to bit 15, the rest to the exponent's low bits. Half of a word's nibbles are first brought to the
//               distance between the two that the 16-bit type has, by one shift and one lop3 for all of them; then each pair takes
//               a shift and a mask. 7 half-rate instructions a word, the four left shifts run on the multiply pipe. (Sign and rest
//               placed apart for each pair: 15; a multiplication that copies each nibble to both places: 9 and 4.)
#pragma once

#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/config.h"

namespace swordfish::mma {

using ptx::Half;

template <Half half>
inline constexpr std::uint32_t kMagic = half == Half::bf16 ? 0x43004300u : 0x64006400u;  // 128, 1024
template <Half half>
inline constexpr std::uint32_t kOne = half == Half::bf16 ? 0x3f803f80u : 0x3c003c00u;

// Word j of a sub-tile: the patch of rows 16j … 16j+15. The left shifts run on the multiply pipe.
template <Half half>
SF_DEVICE void int4_fragment(std::uint32_t word, std::uint32_t (&a)[4]) {
  if constexpr (half == Half::bf16) {
    a[0] = ptx::and_or(word << 3, 0x00780078u, 0x41804180u);
    a[2] = ptx::and_or(word >> 1, 0x00780078u, 0x41804180u);
    a[1] = ptx::and_or(word >> 5, 0x00780078u, 0x41804180u);
    a[3] = ptx::and_or(word >> 9, 0x00780078u, 0x41804180u);
  } else {
    a[0] = ptx::and_or(word << 6, 0x03c003c0u, 0x4c004c00u);
    a[2] = ptx::and_or(word << 2, 0x03c003c0u, 0x4c004c00u);
    a[1] = ptx::and_or(word >> 2, 0x03c003c0u, 0x4c004c00u);
    a[3] = ptx::and_or(word >> 6, 0x03c003c0u, 0x4c004c00u);
  }
}

template <Half half>
SF_DEVICE void int4_fragment_high(std::uint32_t word, std::uint32_t (&a)[4]) {
  a[0] = ptx::and_or(word, 0x000f000fu, kMagic<half>);
  a[2] = ptx::and_or(word >> 4, 0x000f000fu, kMagic<half>);
  a[1] = ptx::and_or(word >> 8, 0x000f000fu, kMagic<half>);
  a[3] = ptx::and_or(word >> 12, 0x000f000fu, kMagic<half>);
}

// q − zero, for one zero point: `zero` is the pair base + zero (128 or 1024), as in int4_fragment_high.
// f16 has room for a byte: 1024 + 16q needs no shift, and its sixteenth part less 64 + zero is one fma.
template <Half half>
SF_DEVICE void int4_fragment_of(std::uint32_t word, std::uint32_t zero, std::uint32_t (&a)[4]) {
  if constexpr (half == Half::bf16) {
    int4_fragment_high<half>(word, a);
    SF_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = ptx::sub_x2<half>(a[i], zero);
  } else {
    const std::uint32_t high = word >> 8, less = ptx::sub_x2<half>(0x63806380u, zero);  // 960 − (1024 + zero)
    a[0] = ptx::sub_x2<half>(ptx::and_or(word, 0x000f000fu, kMagic<half>), zero);
    a[2] = ptx::fma_x2<half>(ptx::and_or(word, 0x00f000f0u, kMagic<half>), 0x2c002c00u, less);
    a[1] = ptx::sub_x2<half>(ptx::and_or(high, 0x000f000fu, kMagic<half>), zero);
    a[3] = ptx::fma_x2<half>(ptx::and_or(high, 0x00f000f0u, kMagic<half>), 0x2c002c00u, less);
  }
}

// Two pairs of q − 128: columns 2t, 2t+1 and 2t+8, 2t+9 of one row.
template <Half half>
SF_DEVICE void int8_pairs(std::uint32_t word, std::uint32_t& low, std::uint32_t& high) {
  const std::uint32_t shifted = word >> 8;
  if constexpr (half == Half::bf16) {
    constexpr int not_and_or = ((~ptx::kLopA & ptx::kLopB) | ptx::kLopC) & 0xff;
    low = ptx::sub_x2<half>(ptx::and_or(word, 0x007f007fu, kMagic<half>), ptx::lop3<not_and_or>(word, 0x00800080u, kMagic<half>));
    high = ptx::sub_x2<half>(ptx::and_or(shifted, 0x007f007fu, kMagic<half>),
                             ptx::lop3<not_and_or>(shifted, 0x00800080u, kMagic<half>));
  } else {
    low = ptx::sub_x2<half>(ptx::and_or(word, 0x00ff00ffu, kMagic<half>), 0x64806480u);
    high = ptx::sub_x2<half>(ptx::and_or(shifted, 0x00ff00ffu, kMagic<half>), 0x64806480u);
  }
}
// Words 2p and 2p+1 of a half sub-tile: rows g and g+8 of one patch.
template <Half half>
SF_DEVICE void int8_fragment(std::uint32_t word, std::uint32_t word8, std::uint32_t (&a)[4]) {
  int8_pairs<half>(word, a[0], a[2]);
  int8_pairs<half>(word8, a[1], a[3]);
}

// e2m1 codes as the 16-bit number value · 2^−e2m1_shift: exact, subnormals included.
template <Half half>
inline constexpr int e2m1_shift = half == Half::bf16 ? 126 : 14;

// factor_g and factor_g8 (pairs of one value) multiply rows g and g+8; the product must be exact for the result to be.
template <Half half>
SF_DEVICE void e2m1_fragment(std::uint32_t word, std::uint32_t factor_g, std::uint32_t factor_g8, std::uint32_t (&a)[4]) {
  if constexpr (half == Half::bf16) {
    constexpr std::uint32_t mask = 0x81c081c0u;  // the sign at bit 15, exponent and mantissa at bits 8–6
    const std::uint32_t low = ptx::select_bits(0x22002200u, word << 6, word);   // nibbles 0, 1, 4, 5, with signs at bits 9 and 13
    const std::uint32_t high = ptx::select_bits(0x88008800u, word, word >> 6);  // nibbles 2, 3, 6, 7, with signs at bits 11 and 15
    a[0] = ptx::mul_x2<half>(low << 6 & mask, factor_g);
    a[2] = ptx::mul_x2<half>(low << 2 & mask, factor_g);
    a[1] = ptx::mul_x2<half>(high << 4 & mask, factor_g8);
    a[3] = ptx::mul_x2<half>(high & mask, factor_g8);
  } else {
    constexpr std::uint32_t mask = 0x8e008e00u;                                 // bits 15, 11–9
    const std::uint32_t even = ptx::select_bits(0x40404040u, word << 3, word);  // nibbles 0, 2, 4, 6, with signs at bits 6 and 14
    const std::uint32_t odd = ptx::select_bits(0x80808080u, word, word >> 3);   // nibbles 1, 3, 5, 7, with signs at bits 7 and 15
    a[0] = ptx::mul_x2<half>(even << 9 & mask, factor_g);
    a[2] = ptx::mul_x2<half>(odd << 8 & mask, factor_g);
    a[1] = ptx::mul_x2<half>(even << 1 & mask, factor_g8);
    a[3] = ptx::mul_x2<half>(odd & mask, factor_g8);
  }
}

// e4m3 scales as 16-bit numbers scale · 2^e4m3_shift; with e2m1_fragment the product is value · scale · 2^(e4m3_shift −
// e2m1_shift), exact: 2 + 4 significant bits. 448 · 2^118 and 448 · 2^7 are the largest powers of two that stay finite.
template <Half half>
inline constexpr int e4m3_shift = half == Half::bf16 ? 118 : 7;

// The scales of the low two bytes (part 0) or the high two (part 1) of a word.
template <Half half>
SF_DEVICE std::uint32_t e4m3_pair(std::uint32_t word, int part) {
  // Each byte in the low half of 16 bits, shifted by a multiplication; another takes the sign, at bit 7, to bit 15.
  const std::uint32_t t = ptx::prmt(word, 0, part ? 0x4342u : 0x4140u), sign = t & 0x00800080u;
  if constexpr (half == Half::bf16) {
    const std::uint32_t bits = t * 0x10u + sign * 0xf0u;                          // scale · 2^−120
    return ptx::mul_x2<half>(ptx::mul_x2<half>(bits, 0x7f007f00u), 0x77007700u);  // · 2^127 · 2^111
  } else {
    const std::uint32_t bits = t * 0x80u + sign * 0x80u;  // scale · 2^−8
    return ptx::mul_x2<half>(bits, 0x78007800u);          // · 2^15
  }
}

// The same of e8m0, bf16: scale · 2^124, for codes up to 127. The product is value · scale / 4, exact for every code: bf16 holds
// multiples of 2^-133 and 1.5 · 2^127, so that no code needs another power of two.
SF_DEVICE std::uint32_t e8m0_factors(std::uint32_t word, int part) {
  return ptx::prmt(word, 0, part ? 0x4342u : 0x4140u) * 0x80u + 0x3e003e00u;
}
// e8m0 scales as bf16: code 0 is the subnormal 2^-127, 255 is NaN.
SF_DEVICE std::uint32_t e8m0_pair(std::uint32_t word, int part) {
  const std::uint32_t t = ptx::prmt(word, 0, part ? 0x4342u : 0x4140u);  // each byte in the low half of 16 bits
  const std::uint32_t middle = (t + 0x00010001u) & 0x00fe00feu;          // 0 for codes 0 and 255
  return t << 7 | (~(middle + 0x7ffe7ffeu) & 0x80008000u) >> 9;
}

}  // namespace swordfish::mma
