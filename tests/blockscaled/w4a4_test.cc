// The block-scaled GEMMs as rows of the kernel table: when they are chosen, and what they say when not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "blockscaled/blockscaled.h"
#include "kernels/cuda/blockscaled/jobs.h"
#include "pack/packed_format.h"
#include "swordfish/device.h"
#include "swordfish/gemm.h"

namespace swordfish::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

PackedWeight weight(std::int64_t n, std::int64_t k, std::int64_t group, Layout layout, const std::vector<float>& globals = {1}) {
  std::mt19937_64 random(31);
  std::vector<QuantTensor> parts;
  for (const float g : globals) {
    parts.push_back(random_fp4(random, n, k, group, group == 16 ? DType::f8_e4m3 : DType::f8_e8m0));
    parts.back().global.value = g;
  }
  return std::move(layout == Layout::mma64_1 ? pack(parts, "w") : pack_blockscaled(parts, "w")).value();
}

std::string reason(const Problem& p, std::string_view kernel) {
  for (const Explanation& row : explain(p))
    if (row.kernel == kernel) return row.chosen ? "chosen: " + row.reason : row.reason;
  return "no such kernel";
}

constexpr std::array<std::string_view, 4> kRows{"sm100_blockscaled_grouped", "sm100_blockscaled", "sm120_blockscaled_grouped",
                                                "sm120_blockscaled"};

// Every way to be refused, on described GPUs; whether it runs at last depends on what the build holds.
TEST(W4A4, SaysWhyItCannotRun) {
  const PackedWeight native = weight(256, 128, 16, Layout::sm1xx_blockscaled_1), packed = weight(256, 128, 16, Layout::mma64_1);
  Problem p;
  p.weight = &packed.view;
  p.m = 4;
  for (const auto row : kRows) EXPECT_THAT(reason(p, row), HasSubstr("is a CUDA kernel"));
  p.device = {Device::Kind::cuda, 0};
  const GpuInfo b200 = std::move(describe_gpu("sm_100:148")).value(), h200 = std::move(describe_gpu("sm_90:132")).value(),
                rtx = std::move(describe_gpu("sm_120:170")).value();
  p.described = &b200;
  for (const auto row : kRows) EXPECT_THAT(reason(p, row), HasSubstr("runs as W4A16"));
  EXPECT_THAT(reason(p, "sm80_mma_decode"), HasSubstr("chosen")) << "W4A16 is what a weight in mma64/1 gets, on Blackwell too";
  p.weight = &native.view;
  EXPECT_THAT(reason(p, "sm80_mma_decode"), HasSubstr("reads layout mma64/1"));
  EXPECT_THAT(reason(p, "sm120_blockscaled"), HasSubstr("needs an sm_120 or 121; this GPU is an sm_100"));
  p.described = &rtx;
  EXPECT_THAT(reason(p, "sm100_blockscaled"), HasSubstr("needs an sm_100, 103 or 110; this GPU is an sm_120"));
  p.described = &h200;
  for (const auto row : kRows) EXPECT_THAT(reason(p, row), HasSubstr("In layout mma64/1 the weight runs as W4A16"));
  EXPECT_EQ(plan(p).status().code(), Code::unavailable);
  p.described = &b200;
  EXPECT_THAT(reason(p, "sm100_blockscaled"), AnyOf(HasSubstr("chosen"), HasSubstr("SWORDFISH_BLOCKSCALED=ON and 100f")));
  EXPECT_THAT(reason(p, "sm100_blockscaled_grouped"), HasSubstr("this weight has one global"));
  p.y_type = DType::f32;
  EXPECT_THAT(reason(p, "sm100_blockscaled"), HasSubstr("not f32"));
  p.y_type = DType::bf16;
  const PackedWeight parts = weight(128, 128, 16, Layout::sm1xx_blockscaled_1, {1, 1.25f});
  p.weight = &parts.view;
  EXPECT_THAT(reason(p, "sm100_blockscaled_grouped"), AnyOf(HasSubstr("chosen"), HasSubstr("SWORDFISH_BLOCKSCALED=ON and 100f")));
  p.has_bias = true;
  EXPECT_THAT(reason(p, "sm100_blockscaled_grouped"), HasSubstr("no bias"));
  for (const bool mx : {false, true}) {
    const PackedWeight w = weight(128, 128, mx ? 32 : 16, Layout::sm1xx_blockscaled_1);
    p.weight = &w.view;
    p.y_type = DType::f16;
    const std::string why = reason(p, "sm100_blockscaled");
    EXPECT_THAT(why, AnyOf(HasSubstr("chosen"), HasSubstr("SWORDFISH_BLOCKSCALED=ON and 100f")));
  }
}

TEST(W4A4, CodeForAFamilyServesItsArchitectures) {
  using blockscaled::has_code;
  for (const int arch : {100, 103, 110, 120, 121}) {
    EXPECT_TRUE(has_code("100f 110a 120f", arch)) << arch;
    EXPECT_FALSE(has_code("", arch)) << arch;
    EXPECT_EQ(has_code("100a", arch), arch == 100) << arch;
    EXPECT_EQ(has_code("103a 121a", arch), arch == 103 || arch == 121) << arch;
    EXPECT_EQ(has_code("121f", arch), arch == 121) << "a family's code runs from its own architecture on";
  }
  EXPECT_FALSE(has_code("100f 120f", 90));
}

TEST(W4A4, RefusesShapesThatItsCopiesCannotRead) {
  const auto why = [](std::int64_t n, std::int64_t k, const std::vector<float>& globals = {1}) {
    return blockscaled::refuses(weight(n, k, 16, Layout::sm1xx_blockscaled_1, globals).view, 1, DType::bf16);
  };
  EXPECT_EQ(why(8, 32), "");
  EXPECT_THAT(why(8, 48), HasSubstr("multiple of 32"));
  EXPECT_THAT(why(12, 32), HasSubstr("multiple of 8"));
  EXPECT_EQ(why(8, 32, {1, 2, 3, 4, 5, 6, 7, 8}), "");
  EXPECT_THAT(why(8, 32, {1, 2, 3, 4, 5, 6, 7, 8, 9}), HasSubstr("up to 8 parts"));
  const PackedWeight w = weight(8, 32, 16, Layout::sm1xx_blockscaled_1);
  EXPECT_THAT(blockscaled::refuses(w.view, std::int64_t{1} << 31, DType::bf16), HasSubstr("32 bits"));
  EXPECT_THAT(blockscaled::refuses(w.view, 128 * (std::int64_t{1} << 22), DType::bf16), HasSubstr("32 bits"));
}

TEST(W4A4, WorkspaceHoldsEachPieceApart) {
  const PackedWeight w = weight(256, 160, 16, Layout::sm1xx_blockscaled_1);
  for (const std::int64_t m : {1, 128, 129, 1000}) {
    const auto jobs = blockscaled::make_jobs(w.view, m, 148, 1000);
    const std::size_t codes = static_cast<std::size_t>(m * 80), scales = static_cast<std::size_t>((m + 127) / 128 * 3 * 512);
    EXPECT_GE(jobs.partial, 16u * 1024);
    EXPECT_GE(jobs.scale, jobs.partial + 4 * 8 * 148);
    EXPECT_GE(jobs.alpha, jobs.scale + 12);
    EXPECT_GE(jobs.x_codes, jobs.alpha + 32);
    EXPECT_GE(jobs.x_scales, jobs.x_codes + codes);
    EXPECT_GE(jobs.y, jobs.x_scales + scales);
    EXPECT_GE(jobs.own, jobs.y + static_cast<std::size_t>(std::min<std::int64_t>(m, 128) * 256 * 2));
    EXPECT_GE(jobs.workspace, jobs.own + 1000);
    for (const std::size_t at : {jobs.partial, jobs.scale, jobs.alpha, jobs.x_codes, jobs.x_scales, jobs.y, jobs.own})
      EXPECT_EQ(at % 256, 0u);
  }
}

}  // namespace
}  // namespace swordfish::test
