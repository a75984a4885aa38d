// The arguments that the block-scaled GEMMs get, read back through CUTLASS's strides and layouts and multiplied on the host: whole
// problems against fp64, fused parts with other globals, and the self-check itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "blockscaled/blockscaled.h"
#include "blockscaled/cutlass_gemm.h"
#include "kernels/cuda/blockscaled/jobs.h"
#include "kernels/cuda/blockscaled/self_check.h"
#include "kernels/cuda/cuda_kernels.h"
#include "swordfish/gemm.h"

namespace swordfish::test {
namespace {

using blockscaled::Groups;
using blockscaled::Instance;
using blockscaled::Jobs;
using ::testing::HasSubstr;

// A W4A4 product with everything in host memory, what the GPU's kernels write into the workspace included.
struct Product {
  const PackedView& w;
  Jobs jobs;
  Buffer workspace;
  std::vector<double> x;  // as quantized
  std::int64_t m;
  DType type;

  Product(const PackedView& weight, const std::vector<std::uint16_t>& xs, std::int64_t rows, DType x_type)
      : w(weight), jobs(blockscaled::make_jobs(weight, rows, 132, 4096)), workspace(jobs.workspace), m(rows), type(x_type) {
    std::memset(workspace.data(), 0xff, workspace.size());
    const auto q = w.group_size == 16
                       ? quantize_activations(type, xs.data(), m, w.k, w.k, activation_global(type, xs.data(), m, w.k, w.k))
                       : quantize_activations_mx(type, xs.data(), m, w.k, w.k);
    auto* const at = workspace.as<std::uint8_t>();
    std::memcpy(at + jobs.x_codes, q->codes.data(), q->codes.size());
    sm1xx::swizzle_scales(q->scales.as<std::uint8_t>(), w.rows, m, w.rows, at + jobs.x_scales);
    for (int i = 0; i < jobs.count; ++i) alpha()[i] = q->global * jobs.run[i].factor;
    for (std::int64_t i = 0; i < m * w.k; ++i) {
      const std::uint8_t scale = q->scales.as<std::uint8_t>()[i / w.k * w.rows + i % w.k / w.group_size];
      x.push_back(static_cast<double>(kE2m1[q->codes.as<std::uint8_t>()[i / 2] >> (i % 2 * 4) & 15]) *
                  (w.group_size == 16 ? e4m3_to_f32(scale) : e8m0_to_f32(scale)) * static_cast<double>(q->global));
    }
  }
  float* alpha() { return reinterpret_cast<float*>(workspace.as<std::uint8_t>() + jobs.alpha); }
  std::uint8_t* x_scales() { return workspace.as<std::uint8_t>() + jobs.x_scales; }

  // y[m, ldy] in fp32, NaN where nothing is written; `rows` of x a launch.
  std::vector<float> multiply(const float* bias, std::int64_t ldy, std::int64_t rows, bool grouped) {
    std::vector<float> y(static_cast<std::size_t>(m * ldy), NAN);
    std::vector<std::uint16_t> place(y.size() + 8);  // only addresses count
    auto* const y0 = reinterpret_cast<std::uint16_t*>((reinterpret_cast<std::uintptr_t>(place.data()) + 15) / 16 * 16);
    for (std::int64_t m0 = 0; m0 < m; m0 += rows) {
      const Groups groups =
          blockscaled::make_groups(w, jobs, m0, std::min(rows, m - m0), bias, y0 + m0 * ldy, ldy, workspace.data());
      EXPECT_EQ(groups.count, jobs.count);
      for (int i = 0; i < groups.count; ++i) {
        for (const void* p : {static_cast<const void*>(groups.group[i].x_codes), static_cast<const void*>(groups.group[i].x_scales),
                              static_cast<const void*>(groups.group[i].w_codes), static_cast<const void*>(groups.group[i].w_scales),
                              static_cast<const void*>(groups.group[i].y)})
          EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 16, 0u) << "TMA needs addresses of 16 bytes";
        cutlass_gemm(groups.group[i], static_cast<int>(w.group_size), grouped, y0, y);
      }
    }
    return y;
  }
};

std::vector<std::uint16_t> activations(std::mt19937_64& random, std::int64_t m, std::int64_t k) {
  std::vector<std::uint16_t> x(static_cast<std::size_t>(m * k));
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = f32_to_bf16(normal(random) * std::ldexp(1.0f, static_cast<int>(i / 16 % 7) - 3));
  return x;
}

// The fp32 dequantize reference of the quantized x.
std::vector<double> expected(const std::vector<QuantTensor>& parts, const Product& p) {
  std::vector<float> x(p.x.begin(), p.x.end());
  return reference(parts, x, p.m);
}

constexpr double kLimit = 1e-4;

TEST(Gemm, GateAndUpWithOtherGlobals) {
  std::mt19937_64 random(21);
  constexpr std::int64_t kN = 192, kK = 352, kRows = 136;
  for (const std::int64_t group : {16, 32}) {
    for (const float ratio : {1.0f, 16.0f / 13.0f, 10.0f, 2.0f}) {
      if (group == 32 && ratio != 1) continue;  // MXFP4 has no globals
      for (const auto op : {Global::Op::multiply, Global::Op::divide}) {
        std::vector<QuantTensor> parts;
        for (const char* name : {"gate", "up"}) parts.push_back(quantized(name, heavy_tailed(random, kN, kK), kN, kK, group));
        if (group == 16) {
          parts[0].global = {op == Global::Op::multiply ? 0.0021f : 476.0f, op};
          parts[1].global = {parts[0].global.value * ratio, op};
        }
        PackedWeight w = std::move(pack_blockscaled(parts, "w13")).value();
        ASSERT_EQ(blockscaled::refuses(w.view, kRows, DType::bf16), "");
        Product p(w.view, activations(random, kRows, kK), kRows, DType::bf16);
        EXPECT_EQ(p.jobs.count, 2);  // 192 rows end inside an atom
        const auto ref = expected(parts, p);
        for (const bool grouped : {false, true})
          EXPECT_LE(relative_error(p.multiply(nullptr, 2 * kN, kRows, grouped), ref), kLimit);
        EXPECT_LE(relative_error(p.multiply(nullptr, 2 * kN, 128, false), ref), kLimit) << "rows 128 at a time";
        if (ratio != 1) {
          std::swap(p.alpha()[0], p.alpha()[1]);
          EXPECT_GE(relative_error(p.multiply(nullptr, 2 * kN, kRows, true), ref), 1000 * kLimit) << "the control";
        }
      }
    }
  }
}

TEST(Gemm, PartsThatMayRunTogetherAreOneGemm) {
  std::mt19937_64 random(22);
  constexpr std::int64_t kN = 128, kK = 128;
  const auto part = [&](float global) {
    QuantTensor t = random_fp4(random, kN, kK, 16, DType::f8_e4m3);
    t.global = {global, Global::Op::multiply};
    return t;
  };
  struct Case {
    std::vector<float> globals;
    int runs;
  };
  for (const Case& c : {Case{{1, 1, 1}, 1}, Case{{1, 1, 2}, 2}, Case{{1, 2, 1}, 3}, Case{{3, 4, 4, 4, 4, 4, 4, 4, 4, 4}, 2}}) {
    std::vector<QuantTensor> parts;
    for (const float g : c.globals) parts.push_back(part(g));
    const PackedWeight w = std::move(pack_blockscaled(parts, "w")).value();
    Product p(w.view, activations(random, 9, kK), 9, DType::bf16);
    EXPECT_EQ(p.jobs.count, c.runs);
    EXPECT_LE(relative_error(p.multiply(nullptr, w.view.n, 128, false), expected(parts, p)), kLimit);
  }
  // A power of two folds exactly at packing, and then one alpha does.
  std::vector<QuantTensor> parts;
  for (const float g : {0.5f, 0.25f})
    parts.push_back(quantized("p", heavy_tailed(random, kN, kK), kN, kK, 16)), parts.back().global.value = g;
  PackedWeight w = std::move(pack_blockscaled(parts, "w")).value();
  EXPECT_EQ(blockscaled::make_jobs(w.view, 1, 1, 0).count, 2);
  if (fold_globals(w)) {
    Product p(w.view, activations(random, 9, kK), 9, DType::bf16);
    EXPECT_EQ(p.jobs.count, 1);
    EXPECT_LE(relative_error(p.multiply(nullptr, w.view.n, 128, false), expected(parts, p)), kLimit);
  }
}

TEST(Gemm, BiasStridesAndGaps) {
  std::mt19937_64 random(23);
  for (const std::int64_t group : {16, 32}) {
    const QuantTensor t = quantized("w", heavy_tailed(random, 264, 160), 264, 160, group);
    const PackedWeight w = std::move(pack_blockscaled({&t, 1}, "w")).value();
    for (const std::int64_t m : {1, 127, 130}) {
      Product p(w.view, activations(random, m, 160), m, DType::bf16);
      std::vector<float> bias(264);
      for (auto& b : bias) b = static_cast<float>(random() % 1000) * 0.01f;
      auto ref = expected({t}, p);
      for (std::size_t i = 0; i < ref.size(); ++i) ref[i] += bias[i % 264];
      const std::int64_t ldy = 280;
      const auto y = p.multiply(bias.data(), ldy, 128, false);
      std::vector<float> dense;
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (i % static_cast<std::size_t>(ldy) < 264) {
          dense.push_back(y[i]);
        } else {
          EXPECT_TRUE(std::isnan(y[i])) << "the gap of y was written";
        }
      }
      EXPECT_LE(relative_error(dense, ref), kLimit);
    }
  }
}

Instance fake(int block, DType type, bool grouped) {
  Instance i;
  i.block = block;
  i.y_type = type;
  if (grouped) {
    i.launch_grouped = [](const Groups&, int, int, void*, void*) { return Status(); };
  } else {
    i.launch = [](const blockscaled::Gemm&, int, int, void*, void*) { return Status(); };
  }
  return i;
}

// The self-check passes for what reads operands as CUTLASS does, and tells each mistake.
TEST(SelfCheck, TellsRightFromWrong) {
  for (const int block : {16, 32}) {
    for (const bool grouped : {false, true}) {
      for (const DType type : {DType::bf16, DType::f16}) {
        const blockscaled::Check check = blockscaled::make_check(fake(block, type, grouped));
        const std::int64_t n = check.weight.view.n;
        ASSERT_EQ(check.bias.empty(), grouped);
        Product p(check.weight.view, check.x, check.m, type);
        EXPECT_EQ(p.jobs.count, 2);
        const auto result = [&] {
          std::vector<std::uint16_t> y;
          for (const float v : p.multiply(check.bias.empty() ? nullptr : check.bias.data(), n, check.m, grouped))
            y.push_back(type == DType::bf16 ? f32_to_bf16(v) : f32_to_f16(v));
          return y;
        };
        auto y = result();
        EXPECT_EQ(blockscaled::verdict(check, y), "");
        for (const auto& v : y) ASSERT_TRUE(std::isfinite(type == DType::bf16 ? bf16_to_f32(v) : f16_to_f32(v)));
        y[77] ^= 1u << 9;
        EXPECT_THAT(blockscaled::verdict(check, y), HasSubstr("1 of"));
        y[77] = 0x7fff;
        EXPECT_THAT(blockscaled::verdict(check, y), HasSubstr("row 0, column 77: nan"));
        y.pop_back();
        EXPECT_THAT(blockscaled::verdict(check, y), HasSubstr("values instead of"));
        std::swap(p.x_scales()[1], p.x_scales()[2]);  // two scales of the first row
        EXPECT_THAT(blockscaled::verdict(check, result()), HasSubstr("row 0"));
        std::swap(p.x_scales()[1], p.x_scales()[2]);
        p.alpha()[1] *= 1.05f;
        EXPECT_THAT(blockscaled::verdict(check, result()), HasSubstr("column 160"));
      }
    }
  }
}

}  // namespace
}  // namespace swordfish::test
