// The decode kernels on the machine model: right against fp64, bit-equal under every order of threads and copies, every access
// checked, for all weight types, ways of splitting and applying scales.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "emulator/mma_case.h"
#include "kernels/cuda/sm80_mma/decode.cuh"
#include "kernels/cuda/sm80_mma/prepare.cuh"

namespace swordfish::mma {
namespace {

template <Weights weights, Half half, int kM8, Flush flush, int kWarps>
Product run(const Case& c, const emu::Options& options) {
  constexpr int units = decode_units(weights, kM8, flush, SharedMemory::large), stages = units == 2 ? 2 : 3;
  using Shape = DecodeShape<weights, kM8, flush, units>;
  Prepared p(c, half, false);
  p.args.steps = (p.args.k_blocks + units - 1) / units;
  p.cut(p.args.columns * p.args.steps, c.ctas, kM8 * 512);
  ptx::LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>(c.ctas);
  shape.threads = 32 * kWarps;
  shape.cluster_x = static_cast<std::uint32_t>(c.cluster);
  const int slot = slot_bytes<Shape>(plane_shift(c.scale_type), c.extra == Extra::none ? -1 : plane_shift(c.extra_type));
  shape.dynamic_smem = static_cast<std::uint32_t>(kWarps * (stages * slot + Shape::converted_bytes) + (c.cluster - 1) * kM8 * 2048);
  shape.dependent = true;
  p.product.outcome = emu::launch(shape, options, [a = p.args] { decode_kernel<weights, half, kM8, flush, kWarps, stages>(a); });
  return p.finish(c);
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
  sweep<Weights::int4, Half::f16, 1, Flush::units>({.n = 72, .k = 320, .m = 8, .scale_type = PlaneType::f16, .ctas = 2});  // odd K
  sweep<Weights::int4, Half::f16, 1, Flush::units>({.k = 904, .m = 2, .group = 256, .scale_type = PlaneType::f32, .ctas = 3});
  sweep<Weights::int4, Half::f16, 2, Flush::units>(
      {.n = 72, .k = 320, .m = 12, .group = 64, .scale_type = PlaneType::f16, .ctas = 2});
  sweep<Weights::int4, Half::bf16, 2, Flush::units>({.n = 130, .k = 200, .m = 11, .group = 0, .scale_type = PlaneType::f32});
}
TEST(Decode, Int4ZeroPoints) {
  sweep<Weights::int4, Half::bf16, 1, Flush::units>({.extra = Extra::zeros});
  sweep<Weights::int4, Half::f16, 1, Flush::units>({.m = 8, .scale_type = PlaneType::f16, .extra = Extra::zeros, .most_zero = 256});
  sweep<Weights::int4, Half::bf16, 1, Flush::pairs>({.group = 64, .extra = Extra::zeros, .ctas = 2, .most_zero = 256});
  sweep<Weights::int4, Half::f16, 2, Flush::units>(
      {.m = 9, .scale_type = PlaneType::f16, .extra_type = PlaneType::i16, .extra = Extra::zeros, .ctas = 3});
}
TEST(Decode, Int4Offsets) {
  sweep<Weights::int4, Half::f16, 1, Flush::units>(
      {.scale_type = PlaneType::f16, .extra_type = PlaneType::f16, .extra = Extra::offsets, .ctas = 2}, false);
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
  sweep<Weights::int8, Half::bf16, 1, Flush::units>({.extra = Extra::zeros, .ctas = 2, .most_zero = 256});
}
TEST(Decode, Fp4) {
  sweep<Weights::fp4, Half::f16, 1, Flush::pairs>({.k = 224, .group = 32, .scale_type = PlaneType::e8m0});
  sweep<Weights::fp4, Half::f16, 2, Flush::pairs>({.m = 10, .group = 64, .scale_type = PlaneType::e8m0, .ctas = 2});
  sweep<Weights::fp4, Half::bf16, 1, Flush::slices>({.group = -1, .scale_type = PlaneType::f32});
  sweep<Weights::fp4_e4m3, Half::bf16, 1, Flush::slices>({.k = 208, .group = 16, .scale_type = PlaneType::e4m3, .ctas = 2});
  sweep<Weights::fp4_e4m3, Half::bf16, 1, Flush::slices>({.k = 304, .m = 8, .group = 64, .scale_type = PlaneType::e4m3});
  sweep<Weights::fp4, Half::bf16, 1, Flush::slices>({.k = 304, .m = 8, .group = -1, .scale_type = PlaneType::e4m3});
  sweep<Weights::fp4_e8m0, Half::bf16, 1, Flush::pairs>({.k = 296, .group = 32, .scale_type = PlaneType::e8m0, .ctas = 2});
  sweep<Weights::fp4_e8m0, Half::bf16, 2, Flush::pairs>({.m = 10, .group = 64, .scale_type = PlaneType::e8m0});
  sweep<Weights::fp4_e8m0, Half::bf16, 1, Flush::pairs>({.k = 200, .group = 0, .scale_type = PlaneType::e8m0});
  sweep<Weights::fp4_e4m3, Half::f16, 2, Flush::slices>({.m = 9, .group = 16, .scale_type = PlaneType::e4m3});
}
// e8m0 scales into the fragment: every code of the range, those too large to place a code's bits at once too.
TEST(Decode, AllPowersOfTwo) {
  for (const int from : {0, 1, 60, 110, 119, 120, 125, 127, 180, 240}) {
    const Case c{
        .weights = Weights::fp4_e8m0, .m = 8, .group = 32, .scale_type = PlaneType::e8m0, .x = Case::one_hot, .e8m0_from = from};
    check(run<Weights::fp4_e8m0, Half::bf16, 1, Flush::pairs, 4>(c, {.kernel = "decode"}), c, true);
    if (HasFatalFailure()) return;
  }
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
