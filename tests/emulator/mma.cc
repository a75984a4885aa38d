// The summation of mma.sync (see mma.h).
#include "emulator/mma.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "quant/numeric.h"

namespace swordfish::emu {
namespace {

// value = significand · 2^(exponent - fraction bits); the significand signed, with its hidden bit. Zero has the least exponent.
struct Parts {
  std::int32_t significand;
  std::int32_t exponent;
};
constexpr std::int32_t kZero = -100000;

Parts split_f16(std::uint16_t h) {
  std::int32_t m = h & 0x3ff, e = h >> 10 & 31;
  if (e == 0)
    e = 1;
  else
    m |= 0x400;
  return {h & 0x8000 ? -m : m, m == 0 ? kZero : e - 15};
}
Parts split_bf16(std::uint16_t h) {
  std::int32_t m = h & 0x7f, e = h >> 7 & 255;
  if (e == 0)
    e = 1;
  else
    m |= 0x80;
  return {h & 0x8000 ? -m : m, m == 0 ? kZero : e - 127};
}
Parts split_f32(float f) {
  const auto u = std::bit_cast<std::uint32_t>(f);
  auto m = static_cast<std::int32_t>(u & 0x7fffff), e = static_cast<std::int32_t>(u >> 23 & 255);
  if (e == 0)
    e = 1;
  else
    m |= 0x800000;
  return {u >> 31 ? -m : m, m == 0 ? kZero : e - 127};
}

// Toward zero.
std::int64_t shift_right(std::int64_t v, std::int32_t n) {
  if (n >= 62) return 0;
  return v < 0 ? -(-v >> n) : v >> n;
}

// sum · 2^(exponent - scale), cut off to fp32.
float assemble(std::int64_t sum, std::int32_t exponent, int scale) {
  if (sum == 0) return 0.0f;
  const bool negative = sum < 0;
  auto m = static_cast<std::uint64_t>(negative ? -sum : sum);
  const int top = 63 - std::countl_zero(m);  // m is in [2^top, 2^(top+1))
  int e = exponent - scale + top;            // value in [2^e, 2^(e+1))
  if (e > 127) return negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  int keep = 24;
  if (e < -126) keep = 24 - (-126 - e);
  if (keep <= 0) return negative ? -0.0f : 0.0f;
  const int drop = top + 1 - keep;
  if (drop > 0) m >>= drop;
  const float f = std::ldexp(static_cast<float>(m), exponent - scale + std::max(drop, 0));
  return negative ? -f : f;
}

}  // namespace

void mma_16x8x16(float (&d)[16][8], const std::uint16_t (&a)[16][16], const std::uint16_t (&b)[8][16], const float (&c)[16][8],
                 bool bf16, MmaModel model) {
  const int fraction = bf16 ? 14 : 20;  // of a product of two significands
  const int scale = 23 + model.extra;   // bits below the largest exponent
  const auto special = [bf16](std::uint16_t h) { return bf16 ? (h & 0x7f80) == 0x7f80 : (h & 0x7c00) == 0x7c00; };
  const auto value = [bf16](std::uint16_t h) { return bf16 ? bf16_to_f32(h) : f16_to_f32(h); };
  Parts pa[16][16], pb[8][16];
  bool specials = false;
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      pa[i][k] = bf16 ? split_bf16(a[i][k]) : split_f16(a[i][k]);
      specials |= special(a[i][k]);
      if (i < 8) {
        pb[i][k] = bf16 ? split_bf16(b[i][k]) : split_f16(b[i][k]);
        specials |= special(b[i][k]);
      }
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float acc = c[i][j];
      bool odd = !std::isfinite(acc);
      if (specials) {
        for (int k = 0; k < 16; ++k) odd |= special(a[i][k]) || special(b[j][k]);
      }
      if (odd) {  // infinities and NaN: the result is one, whatever the order
        double s = acc;
        for (int k = 0; k < 16; ++k) s += static_cast<double>(value(a[i][k])) * value(b[j][k]);
        d[i][j] = s != s ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(s);
        continue;
      }
      for (int k0 = 0; k0 < 16; k0 += model.block) {
        const Parts pc = split_f32(acc);
        std::int32_t products[16], exponents[16], top = pc.exponent;
        for (int k = 0; k < model.block; ++k) {
          const Parts &x = pa[i][k0 + k], &y = pb[j][k0 + k];
          products[k] = x.significand * y.significand;
          exponents[k] = x.exponent + y.exponent;
          top = std::max(top, exponents[k]);
        }
        if (top < -1000) {
          acc = 0.0f;
          continue;
        }
        std::int64_t sum = shift_right(std::int64_t{pc.significand} << model.extra, top - std::max(pc.exponent, -1000));
        for (int k = 0; k < model.block; ++k)
          sum += shift_right(std::int64_t{products[k]} << (scale - fraction), top - std::max(exponents[k], -1000));
        acc = assemble(sum, top, scale);
      }
      d[i][j] = acc;
    }
  }
}

}  // namespace swordfish::emu
