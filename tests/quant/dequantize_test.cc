// Tests of dequantize(): every kind of scale, zero and offset against a formula in long double, rounded once.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "quant/plain_tensor.h"

namespace swordfish {
namespace {

void expect_exact(const PlainTensor& p) {
  const QuantTensor& t = p.tensor;
  std::vector<float> out(static_cast<std::size_t>(t.n * (t.k + 2)), -77.0f);
  dequantize(t, 0, t.n, out.data(), t.k + 2);
  for (std::int64_t n = 0; n < t.n; ++n) {
    for (std::int64_t k = 0; k < t.k + 2; ++k) {
      const float got = out[static_cast<std::size_t>(n * (t.k + 2) + k)];
      if (k >= t.k) {
        ASSERT_EQ(got, -77.0f) << "wrote past the row";
        continue;
      }
      const float want = p.expected(n, k);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want))
          << got << " " << want << " at " << n << "," << k;
    }
  }
}

TEST(Dequantize, IntegersWithConstantAndStoredZeros) {
  for (const CodeType code : {CodeType::int4, CodeType::int8}) {
    for (const DType scale : {DType::f16, DType::bf16, DType::f32}) {
      for (const DType zero : {DType::u8, DType::i16, DType::boolean}) {  // boolean: none
        PlainTensor p(code, 19, 1100, 100, scale, 1);
        if (zero != DType::boolean) p.add_zeros(zero);
        expect_exact(p);
      }
    }
  }
}

TEST(Dequantize, RealOffsets) {
  for (const CodeType code : {CodeType::int4, CodeType::int8}) {
    PlainTensor half(code, 17, 320, 32, DType::f16, 2);
    half.add_offsets(DType::f16);
    expect_exact(half);
    PlainTensor product(code, 17, 320, 32, DType::f32, 3);  // as Q4_K: F16 times a 6-bit integer
    product.make_k_quant();
    expect_exact(product);
  }
}

TEST(Dequantize, Fp4WithBlockScalesAndGlobals) {
  for (const DType scale : {DType::f8_e4m3, DType::f8_e8m0}) {
    for (const float global : {1.0f, 0.00111607f, 896.0f, 0x1.fffffep-130f, 0x1.234568p+100f}) {
      for (const Global::Op op : {Global::Op::multiply, Global::Op::divide}) {
        PlainTensor p(CodeType::fp4, 18, 256, 16, scale, 4);
        p.tensor.global = {global, op};
        expect_exact(p);
      }
    }
  }
}

TEST(Dequantize, DividedGlobalIsCorrectlyRounded) {
  // |w·D − x| of the result is no larger than that of its neighbours: exact in long double (30 + 24 bits), no division involved.
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    PlainTensor p(CodeType::fp4, 1, 16, 16, DType::f8_e4m3, static_cast<unsigned>(round));
    const float divisor =
        std::ldexp(1.0f + static_cast<float>(random() % (1u << 23)) * 0x1p-23f, static_cast<int>(random() % 227) - 100);
    p.tensor.global = {divisor, Global::Op::divide};
    std::vector<float> out(16);
    dequantize(p.tensor, 0, 1, out.data(), 16);
    for (std::int64_t k = 0; k < 16; ++k) {
      const float w = out[static_cast<std::size_t>(k)];
      const long double x = p.without_global(0, k);
      const auto error = [&](float v) { return std::fabs(static_cast<long double>(v) * divisor - x); };
      ASSERT_LE(error(w), error(std::nextafter(w, INFINITY)));
      ASSERT_LE(error(w), error(std::nextafter(w, -INFINITY)));
    }
  }
}

TEST(Dequantize, ScatteredScaleRows) {
  PlainTensor p(CodeType::int4, 9, 2100, 64, DType::f16, 6);
  p.scatter_rows();
  p.add_zeros(DType::u8);
  expect_exact(p);
}

TEST(Dequantize, BroadcastAndTransposedPlanes) {
  PlainTensor channel(CodeType::int8, 7, 130, 130, DType::bf16, 7);  // one scale row
  expect_exact(channel);
  PlainTensor tensor(CodeType::int8, 7, 130, 13, DType::f32, 8);
  tensor.tensor.scales.stride_n = 0;  // one scale for everything
  tensor.tensor.scales.stride_r = 0;
  std::vector<float> out(7 * 130);
  dequantize(tensor.tensor, 0, 7, out.data(), 130);
  const float scale = *reinterpret_cast<const float*>(tensor.tensor.scales.data);
  EXPECT_EQ(out[5 * 130 + 99], static_cast<float>(static_cast<double>(scale) * (tensor.code(5, 99) - 128)));
}

TEST(Dequantize, RowRange) {
  PlainTensor p(CodeType::int4, 50, 96, 32, DType::f16, 9);
  std::vector<float> out(20 * 96);
  dequantize(p.tensor, 23, 20, out.data(), 96);
  for (std::int64_t i = 0; i < 20; ++i) {
    for (std::int64_t k = 0; k < 96; ++k) ASSERT_EQ(out[static_cast<std::size_t>(i * 96 + k)], p.expected(23 + i, k));
  }
}

TEST(Dequantize, CodeEqualToItsZeroIsZero) {
  PlainTensor p(CodeType::int4, 1, 16, 16, DType::f32, 10);
  const float scales[] = {std::numeric_limits<float>::max()};
  p.tensor.scales = {DType::f32, reinterpret_cast<const std::byte*>(scales), 0, 0};
  std::vector<float> out(16);
  dequantize(p.tensor, 0, 1, out.data(), 16);
  for (std::int64_t k = 0; k < 16; ++k) {
    EXPECT_TRUE(p.code(0, k) != 8 || out[static_cast<std::size_t>(k)] == 0.0f);
  }
}

TEST(Dequantize, MinusZeroBlockScaleCountsAsZero) {
  PlainTensor p(CodeType::fp4, 1, 16, 16, DType::f8_e4m3, 11);
  const std::uint8_t scale[] = {0x80};
  p.tensor.scales = {DType::f8_e4m3, reinterpret_cast<const std::byte*>(scale), 0, 0};
  std::vector<float> out(16);
  dequantize(p.tensor, 0, 1, out.data(), 16);
  for (std::int64_t k = 0; k < 16; ++k) {
    // Positive codes give +0, not −0.
    EXPECT_EQ(out[static_cast<std::size_t>(k)], 0.0f);
    EXPECT_EQ(std::signbit(out[static_cast<std::size_t>(k)]), p.code(0, k) >= 8);
  }
}

TEST(Dequantize, LargestMxfp4ScaleOverflowsToInfinity) {
  PlainTensor p(CodeType::fp4, 1, 16, 16, DType::f8_e8m0, 12);
  const std::uint8_t scale[] = {0xfe};
  p.tensor.scales = {DType::f8_e8m0, reinterpret_cast<const std::byte*>(scale), 0, 0};
  std::vector<float> out(16);
  dequantize(p.tensor, 0, 1, out.data(), 16);
  for (std::int64_t k = 0; k < 16; ++k) {
    const float w = out[static_cast<std::size_t>(k)];
    EXPECT_TRUE(p.code(0, k) != 7 || w == INFINITY) << w;  // 6 * 2^127
    EXPECT_TRUE(p.code(0, k) != 1 || w == 0x1p126f) << w;  // 0.5 * 2^127
  }
}

}  // namespace
}  // namespace swordfish
