// Tests of slice(): any rows, steps and columns against the dequantized whole.
#include <gtest/gtest.h>

#include "quant/plain_tensor.h"

namespace swordfish {
namespace {

std::vector<float> dense(const QuantTensor& t) {
  std::vector<float> out(static_cast<std::size_t>(t.n * t.k));
  dequantize(t, 0, t.n, out.data(), t.k);
  return out;
}

void expect_slice(const QuantTensor& whole, std::int64_t n0, std::int64_t n, std::int64_t step, std::int64_t k0, std::int64_t k) {
  const Result<QuantTensor> part = slice(whole, n0, n, step, k0, k);
  ASSERT_TRUE(part.ok()) << part.status().message();
  ASSERT_EQ(part->n, n);
  ASSERT_EQ(part->k, k);
  const std::vector<float> a = dense(whole), b = dense(*part);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < k; ++j) {
      ASSERT_LT(part->row(j), part->rows);
      ASSERT_EQ(b[static_cast<std::size_t>(i * k + j)], a[static_cast<std::size_t>((n0 + i * step) * whole.k + k0 + j)])
          << n0 << " " << n << " " << step << " " << k0 << " " << k << " at " << i << "," << j;
    }
  }
}

TEST(Slice, RowsStepsAndColumns) {
  PlainTensor p(CodeType::int4, 24, 200, 48, DType::f16, 1);
  p.add_zeros(DType::u8);
  for (const std::int64_t step : {1, 2, 5}) {
    for (const std::int64_t n0 : {0, 1, 3}) {
      for (const std::int64_t k0 : {0, 1, 16, 47, 48, 96, 144, 199}) {
        for (const std::int64_t k : {1, 16, 48, 49, 104, 200}) {
          if (k0 + k <= 200) expect_slice(p.tensor, n0, (24 - n0 - 1) / step + 1, step, k0, k);
        }
      }
    }
  }
}

TEST(Slice, WithOffsetsAndAGlobal) {
  PlainTensor q4_1(CodeType::int4, 8, 128, 32, DType::f16, 2);
  q4_1.add_offsets(DType::f16);
  expect_slice(q4_1.tensor, 1, 3, 2, 40, 70);
  PlainTensor nvfp4(CodeType::fp4, 8, 128, 16, DType::f8_e4m3, 3);
  nvfp4.tensor.global = {896.0f, Global::Op::divide};
  expect_slice(nvfp4.tensor, 0, 4, 2, 24, 100);
}

TEST(Slice, AlignedStaysRegularAndCopiesNothing) {
  PlainTensor p(CodeType::int4, 8, 256, 64, DType::f16, 4);
  const auto part = slice(p.tensor, 2, 4, 1, 64, 150);
  ASSERT_TRUE(part.ok());
  EXPECT_TRUE(part->row_of_k.empty());
  EXPECT_EQ(part->group_size, 64);
  EXPECT_EQ(part->rows, 3);
  EXPECT_EQ(part->scales.data, p.tensor.scales.at(2, 1));
}

TEST(Slice, InsideAGroupGetsItsOwnMap) {
  // 29568 / 2 with groups of 128 is such a cut: both sides keep the scale row of the group that it splits.
  PlainTensor p(CodeType::int4, 2, 384, 128, DType::f16, 5);
  const auto part = slice(p.tensor, 0, 2, 1, 192, 192);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->rows, 2);
  ASSERT_EQ(part->row_of_k.size(), 192u);
  EXPECT_EQ(part->row_of_k[63], 0);
  EXPECT_EQ(part->row_of_k[64], 1);
  const auto within = slice(p.tensor, 0, 2, 1, 130, 100);  // one group alone is regular
  ASSERT_TRUE(within.ok());
  EXPECT_TRUE(within->row_of_k.empty());
  EXPECT_EQ(within->rows, 1);
  EXPECT_EQ(within->group_size, 100);
}

TEST(Slice, ActOrderKeepsAllScaleRows) {
  PlainTensor p(CodeType::int4, 6, 256, 32, DType::f16, 6);
  p.scatter_rows();
  for (const std::int64_t k0 : {0, 64, 100, 255}) expect_slice(p.tensor, 1, 5, 1, k0, 256 - k0);
  EXPECT_EQ(slice(p.tensor, 0, 6, 1, 64, 64)->rows, 8);
}

TEST(Slice, OfASlice) {
  PlainTensor p(CodeType::int8, 30, 300, 48, DType::bf16, 7);
  const auto first = slice(p.tensor, 3, 13, 2, 20, 250);
  ASSERT_TRUE(first.ok());
  expect_slice(*first, 1, 4, 3, 33, 200);
}

TEST(Slice, RefusesWhatIsNotThere) {
  PlainTensor p(CodeType::int4, 8, 64, 32, DType::f16, 8);
  constexpr std::int64_t big = std::int64_t{1} << 62;
  const std::int64_t bad[][5] = {{-1, 1, 1, 0, 64}, {0, 0, 1, 0, 64}, {0, 9, 1, 0, 64},  {8, 1, 1, 0, 64},    {1, 4, 0, 0, 64},
                                 {1, 4, -1, 0, 64}, {1, 5, 2, 0, 64}, {0, 1, 1, 0, 65},  {0, 1, 1, 1, 64},    {0, 1, 1, -1, 4},
                                 {0, 1, 1, 64, 1},  {0, 1, 1, 0, 0},  {0, 1, 1, 1, big}, {0, big, big, 0, 1}, {0, 3, big, 0, 1}};
  for (const auto& b : bad) {
    EXPECT_EQ(slice(p.tensor, b[0], b[1], b[2], b[3], b[4]).status().code(), Code::invalid_argument)
        << b[0] << " " << b[1] << " " << b[2] << " " << b[3] << " " << b[4];
  }
  EXPECT_TRUE(slice(p.tensor, 1, 4, 2, 0, 64).ok());
}

}  // namespace
}  // namespace swordfish
