// One product of the mma.sync kernels on the machine model: random packed weights and x, the arguments of a launch, and the exact
// result.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "emulator/emulator.h"
#include "kernels/cuda/sm80_mma/common.cuh"
#include "pack/mma64.h"
#include "quant/numeric.h"

namespace swordfish::mma {

struct Case {
  Weights weights = Weights::int4;
  int n = 128, k = 256, m = 3;
  int group = 128;  // 0: one row; −1: a random row of each slice
  PlaneType scale_type = PlaneType::bf16, extra_type = PlaneType::u8;
  Extra extra = Extra::none;
  int ctas = 1, cluster = 1;
  int first_part = 0;  // rows of a first part; 0: one part
  bool bias = false;
  enum { gaussian, shifted, one_hot, integers } x = gaussian;
  int e8m0_from = 118;  // e8m0 scales are this code and the eight after it
  int most_zero = 16;   // zero points are less
  bool quads = false;   // y and its rows are aligned to four elements
};

inline void append(std::vector<std::uint8_t>& plane, PlaneType type, std::mt19937& random, int kind, int most, int e8m0_from) {
  const auto put = [&](auto v) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(&v);
    plane.insert(plane.end(), p, p + sizeof v);
  };
  const float f = kind == 1 ? static_cast<float>(random() % static_cast<unsigned>(most))
                            : static_cast<float>(random() % 1024) / 1024.0f + (kind == 2 ? -0.5f : 0.5f);
  switch (type) {
    case PlaneType::f16: return put(f32_to_f16(f));
    case PlaneType::bf16: return put(f32_to_bf16(f));
    case PlaneType::f32: return put(f);
    case PlaneType::e4m3: return put(static_cast<std::uint8_t>(random() % 0x7f));
    case PlaneType::e8m0: return put(static_cast<std::uint8_t>(static_cast<unsigned>(e8m0_from) + random() % 9));
    case PlaneType::u8: return put(static_cast<std::uint8_t>(f));
    case PlaneType::i16: return put(static_cast<std::int16_t>(f));
  }
}
inline double element(const std::vector<std::uint8_t>& plane, PlaneType type, std::size_t i) {
  constexpr DType types[] = {DType::f16, DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e8m0, DType::u8, DType::i16};
  return plane_value(types[static_cast<int>(type)], reinterpret_cast<const std::byte*>(plane.data()) + (i << plane_shift(type)));
}

struct Product {
  emu::Outcome outcome;
  std::vector<float> y;
  std::vector<double> expected, size;  // size: Σ of the magnitudes that are added
  std::vector<double> exact, rounded;  // without and with a rounding of each weight to x's type: expected is one of them
  std::vector<std::uint32_t> flags;
};

// The arguments of a launch with everything but what depends on the kernel (units, pieces, flags).
struct Prepared {
  emu::Memory memory;
  DecodeArgs args{};
  ptx::gptr<float> y;
  int ldy = 0;
  Product product;

  // `rounded`: weights are rounded to x's type, as the middle kernel does where it scales them.
  Prepared(const Case& c, Half half, bool rounded) {
    std::mt19937 random(static_cast<unsigned>(c.n * 31 + c.k * 7 + c.group + c.m));
    const int bits = c.weights == Weights::int8 ? 8 : 4, slices_each = bits == 8 ? 2 : 4, block_k = 16 * slices_each;
    DecodeArgs& a = args;
    a.parts = c.first_part ? 2 : 1;
    const int block1 = (c.first_part + 63) / 64;
    a.part[0] = {0, 0, c.first_part ? c.first_part : c.n, 0.5f};
    a.part[1] = {block1, c.first_part, c.n - c.first_part, 2.0f};
    a.columns = c.first_part ? block1 + (c.n - c.first_part + 63) / 64 : (c.n + 63) / 64;
    a.k_blocks = (c.k + block_k - 1) / block_k;
    a.steps = a.k_blocks;
    const int slices = a.k_blocks * slices_each, packed_k = a.k_blocks * block_k;
    a.group_shift = 31;
    a.rows = 1;
    if (c.group > 0) {
      for (a.group_shift = 0; 16 << a.group_shift < c.group;) ++a.group_shift;
      a.rows = (c.k + c.group - 1) / c.group;
    }
    std::vector<std::int32_t> rows;
    if (c.group < 0) {
      a.rows = 3;
      for (int s = 0; s < slices; ++s) rows.push_back(static_cast<std::int32_t>(random() % 3));
    }
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(a.columns * a.k_blocks) * 2048), scales, extra;
    for (auto& b : codes) b = static_cast<std::uint8_t>(random());
    const int elements = a.columns * a.rows * 64;
    for (int i = 0; i < elements; ++i) append(scales, c.scale_type, random, 0, 0, c.e8m0_from);
    for (int i = 0; i < elements && c.extra != Extra::none; ++i)
      append(extra, c.extra_type, random, c.extra == Extra::zeros ? 1 : 2, c.most_zero, 0);
    a.scale_type = c.scale_type;
    a.extra_type = c.extra_type;
    a.extra_kind = c.extra;
    a.zero = c.extra == Extra::offsets ? 0.0f : c.weights == Weights::int4 ? 8.0f : c.weights == Weights::int8 ? 128.0f : 0.0f;

    const auto to_half = [half](float f) { return half == Half::bf16 ? f32_to_bf16(f) : f32_to_f16(f); };
    const auto to_float = [half](std::uint16_t h) { return half == Half::bf16 ? bf16_to_f32(h) : f16_to_f32(h); };
    std::normal_distribution<float> normal;
    const int ldx = packed_k + 8;
    ldy = c.quads ? (c.n + 7) / 4 * 4 : c.n + 3;
    a.y_quads = c.quads;
    a.y_pairs = c.quads;
    std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * ldx), 0x7fff);  // NaN past the rows
    std::vector<double> xv(static_cast<std::size_t>(c.m * packed_k));
    for (int m = 0; m < c.m; ++m) {
      for (int k = 0; k < packed_k; ++k) {
        float f = normal(random);
        if (c.x == Case::shifted) f += 100;
        if (c.x == Case::one_hot) f = k == m * 37 % c.k ? 1.0f : 0.0f;
        if (c.x == Case::integers) f = static_cast<float>(static_cast<int>(random() % 5) - 2);
        if (k >= c.k) f = 0;
        const std::uint16_t h = to_half(f);
        x[static_cast<std::size_t>(m * ldx + k)] = h;
        xv[static_cast<std::size_t>(m * packed_k + k)] = to_float(h);
      }
    }
    std::vector<float> bias;
    for (int n = 0; n < c.n; ++n) bias.push_back(static_cast<float>(n % 5));

    Product& r = product;
    r.size.resize(static_cast<std::size_t>(c.m * c.n));
    r.exact.resize(r.size.size());
    r.rounded.resize(r.size.size());
    for (int p = 0; p < a.parts; ++p) {
      for (int row = 0; row < a.part[p].n; ++row) {
        const int nb = a.part[p].block0 + row / 64, n = a.part[p].n0 + row;
        for (int k = 0; k < packed_k; ++k) {
          const std::uint8_t* block = codes.data() + mma64::block_offset(nb, k / block_k, a.k_blocks);
          const int q = mma64::code_at(block, bits, row % 64, k % block_k);
          int s = c.group < 0 ? rows[static_cast<std::size_t>(k / 16)] : a.group_shift < 31 ? (k / 16) >> a.group_shift : 0;
          s = std::min(s, a.rows - 1);
          const auto at = static_cast<std::size_t>((nb * a.rows + s) * 64 + row % 64);
          const double scale = element(scales, c.scale_type, at);
          double w, most;
          if (c.weights == Weights::int4 || c.weights == Weights::int8) {
            w = scale * (q - (c.extra == Extra::zeros ? element(extra, c.extra_type, at) : a.zero));
            if (c.extra == Extra::offsets) w += element(extra, c.extra_type, at);
            most = scale * ((bits == 4 ? 32 : 256) + std::max(16, c.most_zero)) + 1;
          } else {
            w = scale * kE2m1[q];
            most = scale * 6;
          }
          const double once = to_float(to_half(static_cast<float>(w)));
          for (int m = 0; m < c.m; ++m) {
            const auto i = static_cast<std::size_t>(m * c.n + n);
            const double v = xv[static_cast<std::size_t>(m * packed_k + k)] * a.part[p].alpha;
            r.exact[i] += v * w;
            r.rounded[i] += v * once;
            r.size[i] += std::fabs(v) * most;
          }
        }
        for (int m = 0; m < c.m && c.bias; ++m) {
          r.rounded[static_cast<std::size_t>(m * c.n + n)] += bias[static_cast<std::size_t>(n)];
          r.exact[static_cast<std::size_t>(m * c.n + n)] += bias[static_cast<std::size_t>(n)];
        }
      }
    }

    r.expected = rounded ? r.rounded : r.exact;

    a.codes = ptx::cast<const std::byte>(memory.constant<std::uint8_t>("codes", codes));
    a.scales = ptx::cast<const std::byte>(memory.constant<std::uint8_t>("scales", scales));
    if (c.extra != Extra::none) a.extra = ptx::cast<const std::byte>(memory.constant<std::uint8_t>("extra", extra));
    if (c.group < 0) a.row_of_slice = memory.constant<std::int32_t>("rows", rows);
    const auto xp = memory.array<std::uint16_t>("x", std::span<const std::uint16_t>(x));
    memory.set_dependent(xp);
    a.x = xp;
    a.ldx = ldx;
    const std::vector<float> poison(static_cast<std::size_t>(c.m * ldy), -77.0f);
    y = memory.array<float>("y", std::span<const float>(poison));
    memory.set_dependent(y);
    a.y = ptx::cast<std::byte>(y);
    a.y_type = 2;
    a.ldy = ldy;
    if (c.bias) a.bias = memory.constant<float>("bias", bias);
    a.m = c.m;
    a.cluster = c.cluster;
    a.m_groups = 1;
    a.grain = 1;
    const std::vector<std::uint32_t> zeros(static_cast<std::size_t>(c.ctas));
    a.flags = memory.array<std::uint32_t>("flags", std::span<const std::uint32_t>(zeros));
  }
  // `units` in all, and a piece of so many floats a CTA.
  void cut(int units, int ctas, int piece) {
    args.units_each = units / args.grain / ctas;
    args.units_more = units / args.grain % ctas;
    args.pieces = memory.array<float>("pieces", static_cast<std::size_t>(ctas * piece));
  }
  Product& finish(const Case& c) {
    const std::vector<float> all = memory.read(y, static_cast<std::size_t>(c.m * ldy));
    for (int m = 0; m < c.m; ++m) {
      for (int n = 0; n < ldy; ++n) {
        const float v = all[static_cast<std::size_t>(m * ldy + n)];
        if (n < c.n)
          product.y.push_back(v);
        else
          EXPECT_EQ(v, -77.0f) << "written past the row";
      }
    }
    product.flags = memory.read(args.flags, static_cast<std::size_t>(c.ctas));
    return product;
  }
};

// fp32 sums of packed_k terms and a few roundings more; one-hot and small integers are exact.
inline void check(const Product& r, const Case& c, bool exact) {
  ASSERT_FALSE(r.outcome.fault) << r.outcome.fault->message();
  for (const auto f : r.flags) EXPECT_EQ(f, 0u);
  for (std::size_t i = 0; i < r.y.size(); ++i) {
    if (exact)
      ASSERT_EQ(r.y[i], static_cast<float>(r.expected[i])) << "element " << i;
    else
      ASSERT_NEAR(r.y[i], r.expected[i], (c.k + 16) * 0x1p-24 * r.size[i] + 1e-6 * std::fabs(r.expected[i])) << "element " << i;
  }
}

// The relative Frobenius error is at most 1.1 times that of weights rounded once (and fp32 sums).
inline void check_error(const Product& r) {
  ASSERT_FALSE(r.outcome.fault) << r.outcome.fault->message();
  double ours = 0, rounded = 0, norm = 0;
  for (std::size_t i = 0; i < r.y.size(); ++i) {
    ours += (r.y[i] - r.exact[i]) * (r.y[i] - r.exact[i]);
    rounded += (r.rounded[i] - r.exact[i]) * (r.rounded[i] - r.exact[i]);
    norm += r.exact[i] * r.exact[i];
  }
  EXPECT_LE(std::sqrt(ours / norm), 1.1 * std::sqrt(rounded / norm) + 2e-6);
}

}  // namespace swordfish::mma
