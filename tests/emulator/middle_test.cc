// The middle kernel on the machine model: right against fp64 with its stated roundings, bit-equal under every order of threads and
// copies, every access checked.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "emulator/mma_case.h"
#include "kernels/cuda/sm80_mma/middle.cuh"

namespace swordfish::mma {
namespace {

template <Weights weights, Half half, int kM16, Flush flush, int kColumns = 2, int stages = 3,
          int units = flush == Flush::units&& kM16 <= 4 ? 2 : 1>
Product run(Case c, const emu::Options& options, int groups = 2) {
  using Shape = MiddleShape<weights, kM16, flush, kColumns>;
  c.weights = weights;
  // Where a step has one scale row of x's type and zero points below 128, the scale goes to its sums, and no weight is rounded.
  const bool sums = weights == Weights::int4 && kM16 == 2 && flush == Flush::units && units == 2 &&
                    (c.group == 0 || c.group >= 128) && c.scale_type == (half == Half::bf16 ? PlaneType::bf16 : PlaneType::f16) &&
                    (c.extra == Extra::none || (c.extra == Extra::zeros && (half == Half::f16 || c.most_zero <= 128)));
  Prepared p(c, half, !sums);
  p.args.m_groups = (c.m + Shape::tokens - 1) / Shape::tokens;
  const int tiles = (p.args.columns + kColumns - 1) / kColumns * p.args.m_groups;
  p.args.steps = (p.args.k_blocks + units - 1) / units;
  p.cut(tiles * p.args.steps, c.ctas, Shape::tokens * 64 * kColumns);
  ptx::LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>(c.ctas);
  shape.threads = static_cast<std::uint32_t>(32 * Shape::warps * groups);
  const int unit = Shape::unit_bytes(plane_shift(c.scale_type), c.extra == Extra::none ? -1 : plane_shift(c.extra_type));
  shape.dynamic_smem = static_cast<std::uint32_t>(groups * (stages * units * unit + Shape::warps * kConvertedBytes));
  shape.dependent = true;
  p.product.outcome =
      emu::launch(shape, options, [a = p.args] { middle_kernel<weights, half, kM16, flush, kColumns, 16, units, stages>(a); });
  return p.finish(c);
}

// `once`: weights are rounded exactly once, so that the expected value is known but for fp32 sums.
template <Weights weights, Half half, int kM16, Flush flush, int kColumns = 2, int stages = 3,
          int units = flush == Flush::units&& kM16 <= 4 ? 2 : 1>
void sweep(const Case& base, bool once = true, int groups = 2) {
  for (const auto x : {Case::gaussian, Case::shifted, Case::one_hot}) {
    Case c = base;
    c.x = x;
    const Product r = run<weights, half, kM16, flush, kColumns, stages, units>(c, {.kernel = "middle", .seed = 3}, groups);
    if (once) check(r, c, x == Case::one_hot && !c.bias);
    check_error(r);
    for (const auto f : r.flags) EXPECT_EQ(f, 0u);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Middle, Int4) {
  sweep<Weights::int4, Half::bf16, 2, Flush::units>({.m = 20});
  sweep<Weights::int4, Half::f16, 2, Flush::units>(
      {.n = 200, .k = 320, .m = 33, .group = 64, .scale_type = PlaneType::f16, .ctas = 2});
  sweep<Weights::int4, Half::bf16, 4, Flush::units, 4>({.n = 130, .k = 200, .m = 61, .group = 0}, true, 1);
  sweep<Weights::int4, Half::bf16, 3, Flush::units, 2, 4>({.n = 64, .k = 512, .m = 50, .ctas = 3});
}
// 128 tokens: two warps share a column.
TEST(Middle, HalfColumns) {
  sweep<Weights::int4, Half::bf16, 8, Flush::units>({.n = 200, .k = 320, .m = 100, .ctas = 2}, true, 1);
  sweep<Weights::int4, Half::f16, 8, Flush::units, 2, 2, 2>(
      {.n = 130, .k = 256, .m = 130, .group = 64, .scale_type = PlaneType::f16}, true, 1);
  sweep<Weights::int4, Half::bf16, 8, Flush::units, 2, 2>({.k = 192, .m = 70, .extra = Extra::zeros, .most_zero = 256});
  sweep<Weights::int4, Half::bf16, 8, Flush::units>({.k = 192, .m = 66, .scale_type = PlaneType::f32}, false, 1);
  sweep<Weights::int8, Half::bf16, 8, Flush::units>({.n = 72, .k = 160, .m = 65, .ctas = 3});
}
// One unit a step, as parts with little shared memory run it, and steps whose second unit is past K.
TEST(Middle, UnitsOfAStep) {
  for (const int group : {0, 64, 128, 256}) {
    sweep<Weights::int4, Half::bf16, 2, Flush::units, 2, 3, 1>({.k = 448, .m = 17, .group = group, .ctas = 2});
    sweep<Weights::int4, Half::bf16, 2, Flush::units, 2, 3, 2>({.k = 448, .m = 17, .group = group, .ctas = 2});
  }
}
TEST(Middle, ScalesOfAnotherType) {
  sweep<Weights::int4, Half::bf16, 2, Flush::units>(
      {.n = 137, .k = 200, .m = 32, .group = 0, .scale_type = PlaneType::f32, .extra = Extra::zeros}, false);
  sweep<Weights::int4, Half::bf16, 2, Flush::units>({.m = 17, .scale_type = PlaneType::f16}, false);
  sweep<Weights::int4, Half::bf16, 2, Flush::units>({.m = 17, .scale_type = PlaneType::f32}, false);
  sweep<Weights::int8, Half::bf16, 2, Flush::slices>({.k = 96, .m = 17, .group = 16, .scale_type = PlaneType::f16}, false);
}
TEST(Middle, ScalesOfSums) {
  for (const auto extra : {Extra::none, Extra::zeros}) {
    for (const int group : {0, 128, 256}) {
      sweep<Weights::int4, Half::bf16, 2, Flush::units>({.n = 72, .k = 448, .m = 20, .group = group, .extra = extra, .ctas = 2});
      sweep<Weights::int4, Half::f16, 2, Flush::units, 4>(
          {.n = 330, .k = 384, .m = 32, .group = group, .scale_type = PlaneType::f16, .extra = extra, .ctas = 3}, true, 1);
    }
  }
}
TEST(Middle, ZeroPoints) {
  sweep<Weights::int4, Half::bf16, 2, Flush::units>({.m = 18, .extra = Extra::zeros});
  sweep<Weights::int4, Half::bf16, 2, Flush::units>({.m = 18, .extra = Extra::zeros, .most_zero = 256});
  sweep<Weights::int4, Half::f16, 2, Flush::slices>(
      {.k = 192, .m = 18, .group = 32, .scale_type = PlaneType::f16, .extra = Extra::zeros, .most_zero = 256});
  sweep<Weights::int8, Half::bf16, 2, Flush::units>({.m = 18, .extra = Extra::zeros, .ctas = 2, .most_zero = 256});
}
TEST(Middle, ScalesBySlice) {
  for (const int group : {16, 32, -1}) {
    sweep<Weights::int4, Half::bf16, 2, Flush::slices>({.k = 240, .m = 19, .group = group, .ctas = 2});
    sweep<Weights::int8, Half::bf16, 4, Flush::slices>({.k = 208, .m = 49, .group = group});
  }
}
TEST(Middle, Int8) {
  sweep<Weights::int8, Half::f16, 2, Flush::units>({.n = 72, .m = 40, .group = 32, .scale_type = PlaneType::f16, .ctas = 3});
  sweep<Weights::int8, Half::bf16, 4, Flush::units, 4>({.n = 330, .k = 128, .m = 64});
}
TEST(Middle, Fp4) {
  sweep<Weights::fp4, Half::bf16, 2, Flush::slices>({.k = 224, .m = 20, .group = 32, .scale_type = PlaneType::e8m0});
  sweep<Weights::fp4, Half::f16, 2, Flush::slices>({.k = 208, .m = 17, .group = 16, .scale_type = PlaneType::e4m3, .ctas = 2});
  sweep<Weights::fp4, Half::bf16, 4, Flush::slices>({.k = 208, .m = 50, .group = -1, .scale_type = PlaneType::e4m3, .ctas = 2});
}
TEST(Middle, ExponentScales) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    for (const int part : {0, 1}) {
      const std::uint32_t pair = e8m0_pair(code << 16 * part | 127u << (16 * part + 8), part);
      EXPECT_EQ(pair >> 16, 0x3f80u);
      EXPECT_EQ(pair & 0xffffu, code == 255 ? 0x7fc0u : f32_to_bf16(byte_value(PlaneType::e8m0, code)));
    }
  }
}
TEST(Middle, PartsAndBias) {
  sweep<Weights::int4, Half::bf16, 2, Flush::units>({.n = 200, .m = 17, .first_part = 71, .bias = true});
}
TEST(Middle, IntegersAreExact) {
  Case c{.n = 192, .k = 256, .m = 35, .group = 0, .ctas = 5, .x = Case::integers};
  c.scale_type = PlaneType::e8m0;
  check(run<Weights::int4, Half::bf16, 2, Flush::units>(c, {.kernel = "middle"}), c, true);
}
// Under every order of threads and copies the bits are the same, with as few CTAs at a time as there may be.
TEST(Middle, SplitsAndOrders) {
  for (const int ctas : {1, 2, 3, 7, 16}) {
    const Case c{.n = 256, .k = 512, .m = 34, .ctas = ctas};
    std::vector<float> first;
    for (const auto copies : {emu::Copies::late, emu::Copies::early, emu::Copies::mixed}) {
      const Product r = run<Weights::int4, Half::bf16, 2, Flush::units>(
          c, {.kernel = "middle", .seed = 1 + static_cast<std::uint64_t>(copies), .copies = copies});
      check(r, c, false);
      if (HasFatalFailure()) return;
      if (first.empty()) first = r.y;
      EXPECT_EQ(r.y, first) << ctas << " CTAs";
    }
  }
}
TEST(Middle, StagesAndGroups) {
  for (const int groups : {1, 3}) {
    sweep<Weights::int4, Half::bf16, 2, Flush::units, 2, 2>({.k = 704, .m = 17}, true, groups);
    sweep<Weights::int4, Half::bf16, 2, Flush::units, 2, 4>({.k = 704, .m = 17}, true, groups);
  }
}
TEST(Middle, RaggedColumns) {
  for (const bool quads : {false, true})
    sweep<Weights::int4, Half::bf16, 2, Flush::units>({.n = 131, .k = 128, .m = 17, .bias = true, .quads = quads});
}

}  // namespace
}  // namespace swordfish::mma
