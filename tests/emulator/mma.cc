// The summation of mma.sync (see mma.h).
#include "emulator/mma.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/numeric.h"

// The inner loops handle the eight columns of a row at once; on machines with AVX2 (its shifts by varying counts matter most) a
// second version of them is used. Sanitizers do not bear the resolver.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SF_EMU_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define SF_EMU_CLONES
#endif

namespace swordfish::emu {
namespace {

using Int8 = std::int32_t __attribute__((vector_size(32)));  // one number a column

// Eight values ±magnitude · 2^(exponent - mantissa bits), the magnitude with its hidden bit; sign is 0 or -1. Zero has a tiny
// exponent.
struct Parts {
  Int8 magnitude, exponent, sign;
};
constexpr std::int32_t kZero = -4096;

// From the bits of a format; e and m its numbers of exponent and mantissa bits.
[[gnu::always_inline]] inline void split(const Int8& bits, int e, int m, Parts& out) {
  const Int8 field = (bits >> m) & ((1 << e) - 1);
  const Int8 hidden = field != 0;  // -1 where true
  out.magnitude = (bits & ((1 << m) - 1)) | (hidden & (1 << m));
  out.exponent = out.magnitude == 0 ? Int8{} + kZero : field + 1 + hidden - ((1 << (e - 1)) - 1);
  out.sign = -((bits >> (e + m)) & 1);
}

// sum · 2^(exponent - scale), cut off to fp32.
[[gnu::always_inline]] inline float assemble(std::int64_t sum, std::int32_t exponent, int scale) {
  if (sum == 0) return 0.0f;
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0;
  auto m = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  const int top = 63 - std::countl_zero(m);
  const int e = exponent - scale + top;  // the value is in [2^e, 2^(e+1))
  if (e > 127) return std::bit_cast<float>(sign | 0x7f800000u);
  // Bring the last kept bit, 2^(e-23) or the least subnormal, to bit 0.
  const int drop = top - 23 + std::max(0, -126 - e);
  if (drop >= 64) return std::bit_cast<float>(sign);
  m = drop >= 0 ? m >> drop : m << -drop;
  const std::uint32_t field = e < -126 ? 0 : static_cast<std::uint32_t>(e + 126);  // the hidden bit adds one
  return std::bit_cast<float>(sign | ((field << 23) + static_cast<std::uint32_t>(m)));
}

// d = a·bᵀ + c for finite operands: all terms of a block are aligned to the largest exponent of their column and added.
SF_EMU_CLONES void sum_all(float (&d)[16][8], const std::uint16_t (&a)[16][16], const std::uint16_t (&b)[8][16],
                           const float (&c)[16][8], int exponent_bits, int mantissa_bits, MmaModel model) {
  const int scale = 23 + model.extra;           // bits below the largest exponent
  const int spare = scale - 2 * mantissa_bits;  // by how much a product is shifted up to `scale`
  const Int8 most = Int8{} + 31;
  Parts columns[16];  // b by k
  for (int k = 0; k < 16; ++k) {
    const Int8 bits = {b[0][k], b[1][k], b[2][k], b[3][k], b[4][k], b[5][k], b[6][k], b[7][k]};
    split(bits, exponent_bits, mantissa_bits, columns[k]);
  }
  for (int i = 0; i < 16; ++i) {
    std::int32_t magnitude[16], exponent[16], sign[16];
    for (int half = 0; half < 2; ++half) {
      const std::uint16_t* r = a[i] + 8 * half;
      Parts p;
      split(Int8{r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]}, exponent_bits, mantissa_bits, p);
      std::memcpy(magnitude + 8 * half, &p.magnitude, sizeof p.magnitude);
      std::memcpy(exponent + 8 * half, &p.exponent, sizeof p.exponent);
      std::memcpy(sign + 8 * half, &p.sign, sizeof p.sign);
    }
    Int8 acc;
    std::memcpy(&acc, c[i], sizeof acc);
    for (int k0 = 0; k0 < 16; k0 += model.block) {
      Parts pc;
      split(acc, 8, 23, pc);
      Int8 top = pc.exponent;
      for (int k = k0; k < k0 + model.block; ++k) {
        const Int8 e = columns[k].exponent + exponent[k];
        top = e > top ? e : top;
      }
      // A product has at most 22 bits, so shifted to `scale` it stays below 2^(scale + 2): eight of them fit 32 bits.
      Int8 sums[2] = {};
      for (int k = k0; k < k0 + model.block; ++k) {
        const Int8 n = top - columns[k].exponent - exponent[k] - spare;  // right by n, or left by -n
        const Int8 left = n < 0 ? -n : Int8{}, right = n > most ? most : (n > 0 ? n : Int8{});
        const Int8 p = ((columns[k].magnitude * magnitude[k]) << left) >> right, s = columns[k].sign ^ sign[k];
        sums[k / 8] += (p ^ s) - s;
      }
      const Int8 n = top - pc.exponent;
      const Int8 p = (pc.magnitude << model.extra) >> (n > most ? most : n);
      const Int8 aligned = (p ^ pc.sign) - pc.sign;
      for (int j = 0; j < 8; ++j)
        acc[j] = std::bit_cast<std::int32_t>(assemble(std::int64_t{sums[0][j]} + sums[1][j] + aligned[j], top[j], scale));
    }
    std::memcpy(d[i], &acc, sizeof acc);
  }
}

}  // namespace

void mma_16x8x16(float (&d)[16][8], const std::uint16_t (&a)[16][16], const std::uint16_t (&b)[8][16], const float (&c)[16][8],
                 bool bf16, MmaModel model) {
  const std::uint16_t exponent_mask = bf16 ? 0x7f80 : 0x7c00;
  const auto special = [exponent_mask](std::uint16_t h) { return (h & exponent_mask) == exponent_mask; };
  const auto value = [bf16](std::uint16_t h) -> double { return bf16 ? bf16_to_f32(h) : f16_to_f32(h); };
  sum_all(d, a, b, c, bf16 ? 8 : 5, bf16 ? 7 : 10, model);
  bool all_finite = true;
  for (const auto& row : a) all_finite &= std::none_of(row, row + 16, special);
  for (const auto& row : b) all_finite &= std::none_of(row, row + 16, special);
  for (const auto& row : c) all_finite &= std::all_of(row, row + 8, [](float f) { return std::isfinite(f); });
  if (all_finite) return;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      bool finite = std::isfinite(c[i][j]);
      double s = c[i][j];  // infinities and NaN: the result is one, whatever the order
      for (int k = 0; k < 16; ++k) {
        finite &= !special(a[i][k]) && !special(b[j][k]);
        s += value(a[i][k]) * value(b[j][k]);
      }
      if (!finite) d[i][j] = s != s ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(s);
    }
  }
}

}  // namespace swordfish::emu
