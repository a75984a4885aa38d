// Activation quantization: the scalar definition against exhaustive searches, and the GPU kernels, run by the machine model,
// against it.
#include <gtest/gtest.h>

#include <limits>

#include "blockscaled/blockscaled.h"
#include "emulator/emulator.h"
#include "kernels/cuda/blockscaled/quantize.cuh"
#include "kernels/cuda/blockscaled/swizzle.cuh"

namespace swordfish::test {
namespace {

using ptx::Half;

constexpr DType dtype(Half type) { return type == Half::bf16 ? DType::bf16 : DType::f16; }
std::uint16_t to_half(Half type, float v) { return type == Half::bf16 ? f32_to_bf16(v) : f32_to_f16(v); }
float from_half(Half type, std::uint16_t h) { return type == Half::bf16 ? bf16_to_f32(h) : f16_to_f32(h); }

// The nearest byte of a table of non-negative values, ties to the even byte.
template <class Value>
int nearest(double v, int count, Value value) {
  int best = 0;
  for (int c = 1; c < count; ++c) {
    const double e = std::fabs(v - value(c)), b = std::fabs(v - value(best));
    if (e < b || (e == b && c % 2 == 0)) best = c;
  }
  return best;
}

// Activations of many sizes; some blocks zero, tiny, huge, with −0, infinity or NaN.
std::vector<std::uint16_t> activations(std::mt19937_64& random, Half type, std::int64_t m, std::int64_t k, bool special) {
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(m * k));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t b = 0; b < k; b += 16) {
      const auto kind = special ? random() % 24 : 99;
      const float size = std::ldexp(1.0f, static_cast<int>(random() % 24) - 12);
      for (std::int64_t j = b; j < std::min(k, b + 16); ++j) {
        float v = normal(random) * size;
        if (kind == 0) v = 0;
        if (kind == 1) v = -0.0f;
        if (kind == 2) v *= 1e-7f;
        if (kind == 3) v *= 1e4f;
        if (kind == 4) v = (j % 7 == 0 ? INFINITY : v);
        if (kind == 5) v = (j % 5 == 0 ? NAN : v);
        if (kind == 6) v = 0.25f * static_cast<float>(random() % 25) * (random() % 2 ? 1 : -1);  // ties
        x[static_cast<std::size_t>(i * k + j)] = to_half(type, v);
      }
    }
  }
  return x;
}

TEST(QuantizeActivations, IsWhatTheDefinitionSays) {
  std::mt19937_64 random(1);
  for (const Half type : {Half::bf16, Half::f16}) {
    for (const float given : {0.0f, 0x1p-11f, 0.003f, 3.0f}) {  // 0: computed
      const std::int64_t m = 40, k = 331;
      const auto x = activations(random, type, m, k, true);
      float amax = 0;
      for (const auto h : x)
        if (std::isfinite(from_half(type, h))) amax = std::max(amax, std::fabs(from_half(type, h)));
      const float global = given != 0 ? given : activation_global(dtype(type), x.data(), m, k, k);
      if (given == 0) {
        EXPECT_EQ(global, amax / 2688.0f);
      }
      const auto q = quantize_activations(dtype(type), x.data(), m, k, k, global);
      ASSERT_TRUE(q.ok());
      const float inv = 1.0f / global, c = inv * (1.0f / 6.0f);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t b = 0; b < (k + 15) / 16; ++b) {
          float a = 0;
          bool finite = true;
          for (std::int64_t j = 16 * b; j < std::min(k, 16 * b + 16); ++j) {
            const float v = std::fabs(from_half(type, x[static_cast<std::size_t>(i * k + j)]));
            finite = finite && std::isfinite(v);
            if (v > a) a = v;
          }
          const int scale =
              finite ? nearest(std::min(a * c, 448.0f), 127, [](int s) { return e4m3_to_f32(static_cast<std::uint8_t>(s)); })
                     : 0x7f;
          ASSERT_EQ(q->scales.as<std::uint8_t>()[i * 21 + b], scale);
          for (std::int64_t j = 16 * b; j < std::min(k, 16 * b + 16); ++j) {
            const float v = from_half(type, x[static_cast<std::size_t>(i * k + j)]);
            int code = 0;
            if (finite && scale != 0) {
              const float r = inv / e4m3_to_f32(static_cast<std::uint8_t>(scale));
              code = nearest(std::fabs(static_cast<double>(v)) * r, 8, [](int s) { return kE2m1[s]; }) | (std::signbit(v) ? 8 : 0);
            }
            ASSERT_EQ(q->codes.as<std::uint8_t>()[i * 166 + j / 2] >> (j % 2 * 4) & 15, code) << v << " scale " << scale;
          }
          if (16 * b + 16 > k) {
            EXPECT_EQ(q->codes.as<std::uint8_t>()[i * 166 + 165] >> 4, 0);
          }
        }
      }
    }
  }
}

TEST(QuantizeActivations, EveryMidpointGoesToTheEvenCode) {
  // global · scale = 1: amax 6 and global 1/448·... any power of two: a = 6, c·a = 1 / global.
  std::vector<std::uint16_t> x;
  for (const float v :
       {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f, -0.25f, -0.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5.0f, -6.0f})
    x.push_back(f32_to_bf16(v));
  const auto q = quantize_activations(DType::bf16, x.data(), 1, 16, 16, 1.0f);
  ASSERT_TRUE(q.ok());
  EXPECT_EQ(q->scales.as<std::uint8_t>()[0], 0x38);  // 1.0
  const int want[16] = {0, 2, 2, 4, 4, 6, 6, 7, 8, 10, 10, 12, 12, 14, 14, 15};
  for (int j = 0; j < 16; ++j) EXPECT_EQ(q->codes.as<std::uint8_t>()[j / 2] >> (j % 2 * 4) & 15, want[j]) << j;
}

TEST(QuantizeActivations, ZeroTensorsAndRefusals) {
  const std::vector<std::uint16_t> zeros(64, 0x8000);
  const float global = activation_global(DType::bf16, zeros.data(), 4, 16, 16);
  EXPECT_EQ(global, kSmallestActivationGlobal);
  const auto q = quantize_activations(DType::bf16, zeros.data(), 4, 16, 16, global);
  ASSERT_TRUE(q.ok());
  for (std::size_t i = 0; i < q->scales.size(); ++i) EXPECT_EQ(q->scales.as<std::uint8_t>()[i], 0);
  EXPECT_FALSE(quantize_activations(DType::f32, zeros.data(), 1, 16, 16, 1.0f).ok());
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY, 0x1p-91f, 0x1p118f})
    EXPECT_FALSE(quantize_activations(DType::bf16, zeros.data(), 1, 16, 16, bad).ok()) << bad;
  EXPECT_FALSE(quantize_activations(DType::bf16, zeros.data(), 1, 16, 15, 1.0f).ok());
  EXPECT_FALSE(quantize_activations(DType::bf16, zeros.data(), 0, 16, 16, 1.0f).ok());
}

TEST(QuantizeActivations, MxIsWhatTheDefinitionSays) {
  std::mt19937_64 random(5);
  for (const Half type : {Half::bf16, Half::f16}) {
    const std::int64_t m = 60, k = 331, blocks = 11;
    auto x = activations(random, type, m, k, true);
    for (std::size_t i = 0; i < 64; ++i) x[i] = static_cast<std::uint16_t>(i % 3 + (type == Half::bf16 && i > 40 ? 0x7f70 : 0));
    const auto q = quantize_activations_mx(dtype(type), x.data(), m, k, k);
    ASSERT_TRUE(q.ok());
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t b = 0; b < blocks; ++b) {
        double a = 0;
        for (std::int64_t j = 32 * b; j < std::min(k, 32 * b + 32); ++j) {
          const double v = std::fabs(from_half(type, x[static_cast<std::size_t>(i * k + j)]));
          if (!(v <= a)) a = v;  // a NaN stays
          if (std::isnan(a)) break;
        }
        int byte = 1;  // the largest power of two that is a quarter of a or less
        while (byte < 254 && std::ldexp(1.0, byte + 1 - 127) * 4 <= a) ++byte;
        if (!std::isfinite(a)) byte = 0xff;
        ASSERT_EQ(q->scales.as<std::uint8_t>()[i * blocks + b], byte) << a;
        for (std::int64_t j = 32 * b; j < std::min(k, 32 * b + 32); ++j) {
          const float v = from_half(type, x[static_cast<std::size_t>(i * k + j)]);
          const int code =
              byte == 0xff ? 0 : nearest(std::fabs(static_cast<double>(v)) * std::ldexp(1.0, 127 - byte), 8, [](int s) {
                                   return kE2m1[s];
                                 }) | (std::signbit(v) ? 8 : 0);
          ASSERT_EQ(q->codes.as<std::uint8_t>()[i * 166 + j / 2] >> (j % 2 * 4) & 15, code) << v << " scale " << byte;
        }
      }
    }
    EXPECT_FALSE(quantize_activations_mx(DType::f32, x.data(), m, k, k).ok());
    EXPECT_FALSE(quantize_activations_mx(dtype(type), x.data(), m, k, k - 1).ok());
  }
}

const std::vector<float> kFactors{1.0f, 0.75f, 1.2308f};  // the globals of a weight's parts

// kBlock 16: NVFP4, `given` 0: the computed global; 32: MXFP4.
template <Half type, int kBlock, bool kVector>
void run_kernels(std::mt19937_64& random, std::int64_t m, std::int64_t k, std::int64_t ldx, float given) {
  const auto dense = activations(random, type, m, k, true);
  std::vector<std::uint16_t> x(static_cast<std::size_t>((m - 1) * ldx + k), 0x7fc0);  // gaps hold NaN
  for (std::int64_t i = 0; i < m; ++i) std::copy_n(dense.begin() + i * k, k, x.begin() + i * ldx);
  emu::Memory memory;
  cuda::QuantizeArgs a;
  a.m = m, a.k = k, a.ldx = ldx;
  a.x = memory.constant<std::uint16_t>("x", x);
  const std::int64_t blocks = (k + kBlock - 1) / kBlock, atoms = sm1xx::k_atoms(blocks),
                     scale_bytes = (m + 127) / 128 * atoms * 512;
  const bool computed = kBlock == 16 && given == 0;
  const float global = computed ? activation_global(dtype(type), x.data(), m, k, ldx) : kBlock == 32 ? 1.0f : given;
  const ActivationScale scale = activation_scale(global);
  auto g = memory.array<float>("scale", 3);
  cuda::AlphaArgs alphas;
  alphas.alpha = memory.array<float>("alpha", kFactors.size());
  alphas.count = static_cast<int>(kFactors.size());
  std::copy(kFactors.begin(), kFactors.end(), alphas.factor);
  if (computed) {
    const std::uint32_t ctas = 3;
    const std::vector<std::uint32_t> zero{0};
    cuda::AmaxArgs amax{
        a.x, m,     k, ldx, memory.array<std::uint32_t>("partial", ctas), memory.array<std::uint32_t>("counter", std::span(zero)),
        g,   alphas};
    ptx::LaunchShape shape;
    shape.grid_x = ctas, shape.threads = cuda::kAmaxThreads, shape.dynamic_smem = 1024;
    const auto outcome = emu::launch(shape, {.kernel = "activation_amax", .seed = random(), .resident_ctas = 2},
                                     [&] { cuda::activation_amax<type, kVector>(amax); });
    ASSERT_FALSE(outcome.fault) << outcome.fault->message();
    ASSERT_EQ(memory.read(amax.counter, 1)[0], 0u);
  } else {
    cuda::SetArgs set{{scale.global, scale.inv, scale.c}, g, alphas};
    const auto outcome = emu::launch({}, {.kernel = "set_scales", .seed = random()}, [&] { cuda::set_scales(set); });
    ASSERT_FALSE(outcome.fault) << outcome.fault->message();
  }
  ASSERT_EQ(memory.read(g, 3), (std::vector<float>{scale.global, scale.inv, scale.c}));
  for (std::size_t i = 0; i < kFactors.size(); ++i)
    ASSERT_EQ(memory.read(alphas.alpha, kFactors.size())[i], global * kFactors[i]) << i;
  if (kBlock == 16) a.scale = g;
  a.codes = memory.array<std::uint8_t>("codes", static_cast<std::size_t>(m * ((k + 1) / 2)));
  a.scales = memory.array<std::uint8_t>("scales", static_cast<std::size_t>(scale_bytes));
  const auto outcome =
      emu::launch(cuda::quantize_shape(m, k, kBlock), {.kernel = "quantize_fp4", .seed = random(), .resident_ctas = 2},
                  [&] { cuda::quantize_fp4<type, kBlock, kVector>(a); });
  ASSERT_FALSE(outcome.fault) << outcome.fault->message();
  ASSERT_TRUE(memory.all_written(a.codes, static_cast<std::size_t>(m * ((k + 1) / 2))));
  ASSERT_TRUE(memory.all_written(a.scales, static_cast<std::size_t>(scale_bytes)));

  const auto want = kBlock == 16 ? quantize_activations(dtype(type), x.data(), m, k, ldx, global)
                                 : quantize_activations_mx(dtype(type), x.data(), m, k, ldx);
  ASSERT_TRUE(want.ok());
  Buffer swizzled(static_cast<std::size_t>(scale_bytes));
  sm1xx::swizzle_scales(want->scales.template as<std::uint8_t>(), blocks, m, blocks, swizzled.as<std::uint8_t>());
  const auto codes = memory.read(a.codes, want->codes.size()), scales = memory.read(a.scales, swizzled.size());
  EXPECT_EQ(0, std::memcmp(scales.data(), swizzled.data(), scales.size())) << m << " x " << k;
  EXPECT_EQ(0, std::memcmp(codes.data(), want->codes.data(), codes.size())) << m << " x " << k;
}

TEST(QuantizeActivations, KernelsEqualTheDefinition) {
  std::mt19937_64 random(2);
  for (const float given : {0.0f, 0.0123f}) {
    run_kernels<Half::bf16, 16, true>(random, 5, 256, 264, given);
    run_kernels<Half::f16, 16, true>(random, 130, 80, 80, given);
    run_kernels<Half::bf16, 16, false>(random, 3, 37, 41, given);
    run_kernels<Half::f16, 16, false>(random, 33, 1050, 1051, given);
  }
  run_kernels<Half::bf16, 16, true>(random, 2, 4096 + 64, 4096 + 64, 0.0f);
}

TEST(QuantizeActivations, MxKernelsEqualTheDefinition) {
  std::mt19937_64 random(6);
  run_kernels<Half::bf16, 32, true>(random, 5, 256, 264, 0);
  run_kernels<Half::f16, 32, true>(random, 130, 96, 96, 0);
  run_kernels<Half::bf16, 32, false>(random, 3, 37, 41, 0);
  run_kernels<Half::f16, 32, false>(random, 33, 2080, 2081, 0);
}

// Through the whole range of globals: the kernel's shortcut by powers of two neither overflows nor loses bits.
TEST(QuantizeActivations, KernelsEqualTheDefinitionAtExtremeGlobals) {
  std::mt19937_64 random(3);
  for (const float given : {kSmallestActivationGlobal, 0x1p-60f, 0x1p60f, kLargestActivationGlobal})
    run_kernels<Half::bf16, 16, true>(random, 4, 128, 128, given);
}

// kUnit: what the rows are multiples of; the first one lies `lead` bytes behind a multiple of 16.
template <int kUnit>
void run_swizzle(std::mt19937_64& random, std::int64_t n, std::int64_t s, std::int64_t stride, std::uint32_t lead = 0) {
  std::vector<std::uint8_t> from(lead + static_cast<std::size_t>((n - 1) * stride + s));
  for (auto& b : from) b = static_cast<std::uint8_t>(random() | 1);
  const auto bytes = static_cast<std::size_t>((n + 127) / 128 * sm1xx::k_atoms(s) * 512);
  emu::Memory memory;
  const cuda::SwizzleArgs a{
      memory.constant<std::uint8_t>("from", from) + lead, stride, n, s, memory.array<std::uint8_t>("to", bytes), lead};
  const auto outcome = emu::launch(cuda::swizzle_shape(n, s), {.kernel = "swizzle_scales", .seed = random(), .resident_ctas = 2},
                                   [&] { cuda::swizzle_scales<kUnit>(a); });
  ASSERT_FALSE(outcome.fault) << outcome.fault->message();
  ASSERT_TRUE(memory.all_written(a.to, bytes));
  Buffer want(bytes);
  sm1xx::swizzle_scales(from.data() + lead, stride, n, s, want.as<std::uint8_t>());
  const auto got = memory.read(a.to, bytes);
  EXPECT_EQ(0, std::memcmp(got.data(), want.data(), bytes)) << n << " x " << s << " lead " << lead;
}

TEST(SwizzleKernel, EqualsTheTransform) {
  std::mt19937_64 random(4);
  run_swizzle<4>(random, 128, 128, 128);
  run_swizzle<4>(random, 300, 256, 272);
  run_swizzle<4>(random, 1, 260, 272);
  for (const std::uint32_t lead : {0, 4, 8, 12}) {
    run_swizzle<4>(random, 129, 180, 180, lead);
    run_swizzle<4>(random, 50, 90, 92, lead);
  }
  run_swizzle<4>(random, 300, 516, 520, 4);
  run_swizzle<4>(random, 2, 4, 4);
  for (const std::uint32_t lead : {0, 1, 6, 15}) {
    run_swizzle<1>(random, 129, 90, 90, lead);
    run_swizzle<1>(random, 7, 3, 5, lead);
    run_swizzle<1>(random, 1, 1, 1, lead);
  }
  run_swizzle<1>(random, 200, 601, 603, 2);
}

}  // namespace
}  // namespace swordfish::test
