// The decode kernels on the machine model: right against fp64, bit-equal under every order of threads and copies, every access
// checked, for all weight types, ways of splitting and applying scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "emulator/emulator.h"
#include "kernels/cuda/sm80_mma/decode.cuh"
#include "kernels/cuda/sm80_mma/prepare.cuh"
#include "pack/mma64.h"
#include "quant/numeric.h"

namespace swordfish::mma {
namespace {

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
};

void append(std::vector<std::uint8_t>& plane, PlaneType type, std::mt19937& random, int kind) {
  const auto put = [&](auto v) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(&v);
    plane.insert(plane.end(), p, p + sizeof v);
  };
  const float f =
      kind == 1 ? static_cast<float>(random() % 16) : static_cast<float>(random() % 1024) / 1024.0f + (kind == 2 ? -0.5f : 0.5f);
  switch (type) {
    case PlaneType::f16: return put(f32_to_f16(f));
    case PlaneType::bf16: return put(f32_to_bf16(f));
    case PlaneType::f32: return put(f);
    case PlaneType::e4m3: return put(static_cast<std::uint8_t>(random() % 0x7f));
    case PlaneType::e8m0: return put(static_cast<std::uint8_t>(120 + random() % 9));
    case PlaneType::u8: return put(static_cast<std::uint8_t>(f));
    case PlaneType::i16: return put(static_cast<std::int16_t>(f));
  }
}
double element(const std::vector<std::uint8_t>& plane, PlaneType type, std::size_t i) {
  constexpr DType types[] = {DType::f16, DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e8m0, DType::u8, DType::i16};
  return plane_value(types[static_cast<int>(type)], reinterpret_cast<const std::byte*>(plane.data()) + (i << plane_shift(type)));
}

struct Product {
  emu::Outcome outcome;
  std::vector<float> y;
  std::vector<double> expected, size;  // size: Σ of the magnitudes that are added
  std::vector<std::uint32_t> flags;
  bool all_written = false;
};

template <Weights weights, Half half, int kM8, Flush flush, int kWarps>
Product run(const Case& c, const emu::Options& options) {
  using Shape = DecodeShape<weights, kM8, flush>;
  std::mt19937 random(static_cast<unsigned>(c.n * 31 + c.k * 7 + c.group + c.m));
  const int bits = weights == Weights::int8 ? 8 : 4, block_k = 16 * Shape::slices;
  DecodeArgs a{};
  a.parts = c.first_part ? 2 : 1;
  const int block1 = (c.first_part + 63) / 64;
  a.part[0] = {0, 0, c.first_part ? c.first_part : c.n, 0.5f};
  a.part[1] = {block1, c.first_part, c.n - c.first_part, 2.0f};
  a.columns = c.first_part ? block1 + (c.n - c.first_part + 63) / 64 : (c.n + 63) / 64;
  a.k_blocks = (c.k + block_k - 1) / block_k;
  const int slices = a.k_blocks * Shape::slices, packed_k = a.k_blocks * block_k;
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
  for (int i = 0; i < elements; ++i) append(scales, c.scale_type, random, 0);
  for (int i = 0; i < elements && c.extra != Extra::none; ++i) append(extra, c.extra_type, random, c.extra == Extra::zeros ? 1 : 2);
  a.scale_type = c.scale_type;
  a.extra_type = c.extra_type;
  a.extra_kind = c.extra;
  a.zero = c.extra == Extra::offsets ? 0.0f : weights == Weights::int4 ? 8.0f : weights == Weights::int8 ? 128.0f : 0.0f;

  std::normal_distribution<float> normal;
  const int ldx = packed_k + 8, ldy = c.n + 3;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * ldx), 0x7fff);  // NaN past the rows
  std::vector<double> xv(static_cast<std::size_t>(c.m * packed_k));
  for (int m = 0; m < c.m; ++m) {
    for (int k = 0; k < packed_k; ++k) {
      float f = normal(random);
      if (c.x == Case::shifted) f += 100;
      if (c.x == Case::one_hot) f = k == m * 37 % c.k ? 1.0f : 0.0f;
      if (c.x == Case::integers) f = static_cast<float>(static_cast<int>(random() % 5) - 2);
      if (k >= c.k) f = 0;
      const std::uint16_t h = half == Half::bf16 ? f32_to_bf16(f) : f32_to_f16(f);
      x[static_cast<std::size_t>(m * ldx + k)] = h;
      xv[static_cast<std::size_t>(m * packed_k + k)] = half == Half::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
    }
  }
  std::vector<float> bias;
  for (int n = 0; n < c.n; ++n) bias.push_back(static_cast<float>(n % 5));

  Product r;
  r.expected.resize(static_cast<std::size_t>(c.m * c.n));
  r.size.resize(r.expected.size());
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
        if (weights == Weights::int4 || weights == Weights::int8) {
          w = scale * (q - (c.extra == Extra::zeros ? element(extra, c.extra_type, at) : a.zero));
          if (c.extra == Extra::offsets) w += element(extra, c.extra_type, at);
          most = scale * (bits == 4 ? 48 : 384) + 1;
        } else {
          w = scale * kE2m1[q];
          most = scale * 6;
        }
        for (int m = 0; m < c.m; ++m) {
          const auto i = static_cast<std::size_t>(m * c.n + n);
          const double v = xv[static_cast<std::size_t>(m * packed_k + k)] * a.part[p].alpha;
          r.expected[i] += v * w;
          r.size[i] += std::fabs(v) * most;
        }
      }
      for (int m = 0; m < c.m && c.bias; ++m)
        r.expected[static_cast<std::size_t>(m * c.n + n)] += bias[static_cast<std::size_t>(n)];
    }
  }

  emu::Memory memory;
  a.codes = ptx::cast<const std::byte>(memory.constant<std::uint8_t>("codes", codes));
  a.scales = ptx::cast<const std::byte>(memory.constant<std::uint8_t>("scales", scales));
  if (c.extra != Extra::none) a.extra = ptx::cast<const std::byte>(memory.constant<std::uint8_t>("extra", extra));
  if (c.group < 0) a.row_of_slice = memory.constant<std::int32_t>("rows", rows);
  const auto xp = memory.array<std::uint16_t>("x", std::span<const std::uint16_t>(x));
  memory.set_dependent(xp);
  a.x = xp;
  a.ldx = ldx;
  const std::vector<float> poison(static_cast<std::size_t>(c.m * ldy), -77.0f);
  const auto y = memory.array<float>("y", std::span<const float>(poison));
  memory.set_dependent(y);
  a.y = ptx::cast<std::byte>(y);
  a.y_type = 2;
  a.ldy = ldy;
  if (c.bias) a.bias = memory.constant<float>("bias", bias);
  a.m = c.m;
  const int units = a.columns * a.k_blocks;
  a.units_each = units / c.ctas;
  a.units_more = units % c.ctas;
  a.cluster = c.cluster;
  a.pieces = memory.array<float>("pieces", static_cast<std::size_t>(c.ctas * kM8 * 512));
  const std::vector<std::uint32_t> zeros(static_cast<std::size_t>(c.ctas));
  a.flags = memory.array<std::uint32_t>("flags", std::span<const std::uint32_t>(zeros));
  ptx::LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>(c.ctas);
  shape.threads = 32 * kWarps;
  shape.cluster_x = static_cast<std::uint32_t>(c.cluster);
  const int slot = slot_bytes<Shape>(plane_shift(c.scale_type), c.extra == Extra::none ? -1 : plane_shift(c.extra_type));
  shape.dynamic_smem = static_cast<std::uint32_t>(kWarps * kStages * slot + (c.cluster - 1) * kM8 * 2048 +
                                                  (weights == Weights::fp4_e4m3 ? kWarps * 512 : 0));
  shape.dependent = true;
  r.outcome = emu::launch(shape, options, [a] { decode_kernel<weights, half, kM8, flush, kWarps, kStages, 1>(a); });
  const std::vector<float> all = memory.read(y, poison.size());
  for (int m = 0; m < c.m; ++m) {
    for (int n = 0; n < ldy; ++n) {
      const float v = all[static_cast<std::size_t>(m * ldy + n)];
      if (n < c.n)
        r.y.push_back(v);
      else
        EXPECT_EQ(v, -77.0f) << "written past the row";
    }
  }
  r.flags = memory.read(a.flags, zeros.size());
  return r;
}

// fp32 sums of packed_k terms and a few roundings more; one-hot and small integers are exact.
void check(const Product& r, const Case& c, bool exact) {
  ASSERT_FALSE(r.outcome.fault) << r.outcome.fault->message();
  for (const auto f : r.flags) EXPECT_EQ(f, 0u);
  for (std::size_t i = 0; i < r.y.size(); ++i) {
    if (exact)
      ASSERT_EQ(r.y[i], static_cast<float>(r.expected[i])) << "element " << i;
    else
      ASSERT_NEAR(r.y[i], r.expected[i], (c.k + 16) * 0x1p-24 * r.size[i] + 1e-6 * std::fabs(r.expected[i])) << "element " << i;
  }
}

template <Weights weights, Half half, int kM8, Flush flush, int kWarps = 4>
void sweep(Case c, bool exact_one_hot = true) {
  c.weights = weights;
  for (const auto x : {Case::gaussian, Case::shifted, Case::one_hot}) {
    c.x = x;
    const bool exact = x == Case::one_hot && exact_one_hot;
    check(run<weights, half, kM8, flush, kWarps>(c, {.kernel = "decode", .seed = 3}), c, exact);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Decode, Int4) {
  sweep<Weights::int4, Half::bf16, 1, Flush::units>({});
  sweep<Weights::int4, Half::f16, 1, Flush::units>(
      {.n = 72, .k = 320, .m = 8, .group = 64, .scale_type = PlaneType::f16, .ctas = 2});
  sweep<Weights::int4, Half::bf16, 2, Flush::units>({.n = 130, .k = 200, .m = 11, .group = 0, .scale_type = PlaneType::f32});
  sweep<Weights::int4, Half::bf16, 4, Flush::units>({.n = 64, .k = 512, .m = 29, .ctas = 2});
}
TEST(Decode, Int4ZeroPoints) {
  sweep<Weights::int4, Half::bf16, 1, Flush::units>({.extra = Extra::zeros});
  sweep<Weights::int4, Half::f16, 2, Flush::units>(
      {.m = 9, .scale_type = PlaneType::f16, .extra_type = PlaneType::i16, .extra = Extra::zeros, .ctas = 3});
}
TEST(Decode, Int4Offsets) {
  sweep<Weights::int4, Half::bf16, 1, Flush::pairs>(
      {.k = 224, .group = 32, .scale_type = PlaneType::f16, .extra_type = PlaneType::f16, .extra = Extra::offsets}, false);
  sweep<Weights::int4, Half::bf16, 1, Flush::slices>(
      {.group = -1, .scale_type = PlaneType::f32, .extra_type = PlaneType::f32, .extra = Extra::offsets, .ctas = 3}, false);
}
TEST(Decode, ScalesBySlice) {
  for (const int group : {16, 32, -1}) {
    sweep<Weights::int4, Half::bf16, 1, Flush::slices>({.k = 240, .group = group, .ctas = 2});
    sweep<Weights::int4, Half::bf16, 2, Flush::slices>({.k = 240, .m = 16, .group = group, .extra = Extra::zeros});
    sweep<Weights::int8, Half::bf16, 1, Flush::slices>({.k = 240, .group = group});
  }
}
TEST(Decode, Int8) {
  sweep<Weights::int8, Half::bf16, 1, Flush::units>({});
  sweep<Weights::int8, Half::f16, 2, Flush::units>({.n = 72, .m = 16, .group = 32, .scale_type = PlaneType::f16, .ctas = 3});
  sweep<Weights::int8, Half::bf16, 1, Flush::units>({.extra = Extra::zeros, .ctas = 2});
}
TEST(Decode, Fp4) {
  sweep<Weights::fp4, Half::bf16, 1, Flush::pairs>({.k = 224, .group = 32, .scale_type = PlaneType::e8m0});
  sweep<Weights::fp4, Half::f16, 2, Flush::pairs>({.m = 10, .group = 64, .scale_type = PlaneType::e8m0, .ctas = 2});
  sweep<Weights::fp4, Half::bf16, 1, Flush::slices>({.group = -1, .scale_type = PlaneType::f32});
  sweep<Weights::fp4_e4m3, Half::bf16, 1, Flush::slices>({.k = 208, .group = 16, .scale_type = PlaneType::e4m3, .ctas = 2});
  sweep<Weights::fp4_e4m3, Half::f16, 2, Flush::slices>({.m = 9, .group = 16, .scale_type = PlaneType::e4m3});
}
TEST(Decode, PartsAndBias) { sweep<Weights::int4, Half::bf16, 1, Flush::units>({.n = 200, .first_part = 71, .bias = true}, false); }
TEST(Decode, IntegersAreExact) {
  Case c{.n = 192, .k = 256, .m = 5, .group = 0, .ctas = 5, .x = Case::integers};
  c.scale_type = PlaneType::e8m0;
  check(run<Weights::int4, Half::bf16, 1, Flush::units, 4>(c, {.kernel = "decode"}), c, true);
}

// However columns are cut, the sums are the same up to fp32; under every order of threads and copies they are the same bits.
TEST(Decode, SplitsAndOrders) {
  for (const auto& [ctas, cluster] : {std::pair{1, 1}, {2, 1}, {4, 1}, {7, 1}, {2, 2}, {4, 2}, {8, 4}, {4, 4}}) {
    const Case c{.n = 128, .k = 1024, .m = 3, .ctas = ctas, .cluster = cluster};
    std::vector<float> first;
    for (const auto copies : {emu::Copies::late, emu::Copies::early, emu::Copies::mixed}) {
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        const Product r =
            run<Weights::int4, Half::bf16, 1, Flush::units, 4>(c, {.kernel = "decode", .seed = seed, .copies = copies});
        check(r, c, false);
        if (HasFatalFailure()) return;
        if (first.empty()) first = r.y;
        EXPECT_EQ(r.y, first) << ctas << " CTAs, clusters of " << cluster << ", seed " << seed;
      }
    }
  }
}

TEST(Decode, SixteenWarps) { sweep<Weights::int4, Half::bf16, 1, Flush::units, 16>({.n = 64, .k = 1280, .m = 1}); }

TEST(Decode, PrepareX) {
  emu::Memory memory;
  std::vector<std::uint16_t> x(3 * 101);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i + 1);
  std::vector<std::int32_t> gather(320, -1);
  for (int k = 0; k < 100; ++k) gather[static_cast<std::size_t>(3 * k % 320)] = 99 - k;
  const auto xp = memory.constant<std::uint16_t>("x", x);
  const auto gp = memory.constant<std::int32_t>("gather", gather);
  for (const bool gathered : {false, true}) {
    const auto out = memory.array<std::uint16_t>("out", 3 * 320);
    PrepareArgs a{};
    a.x = xp;
    a.out = out;
    if (gathered) a.gather = gp;
    a.ldx = 101;
    a.m = 3;
    a.k = 100;
    a.packed_k = 320;
    const auto o = emu::launch({.grid_x = 6, .threads = 256, .dependent = true}, {.kernel = "prepare_x"}, [a] { prepare_x(a); });
    ASSERT_FALSE(o.fault) << o.fault->message();
    const auto got = memory.read(out, 3 * 320);
    for (int m = 0; m < 3; ++m) {
      for (int k = 0; k < 320; ++k) {
        const int from = gathered ? gather[static_cast<std::size_t>(k)] : k < 100 ? k : -1;
        ASSERT_EQ(got[static_cast<std::size_t>(m * 320 + k)], from < 0 ? 0 : x[static_cast<std::size_t>(m * 101 + from)]);
      }
    }
  }
}

}  // namespace
}  // namespace swordfish::mma
