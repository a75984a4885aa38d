// The CPU kernels and the reference against fp64, every Highway target of this machine (rule 10 of the design: bound, exactness,
// error against a model).
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "kernels/shapes.h"
#include "kernels/targets.h"
#include "kernels/weights.h"

namespace swordfish::test {
namespace {

double global(double v, const Global& g) { return g.op == Global::Op::multiply ? v * g.value : v / g.value; }

// y in fp64 without bias, and Σ|terms| of the fp32 kernels' sums (see check_bound).
struct Expected {
  std::vector<double> y, magnitude;
};
Expected expect(const Weight& w, std::int64_t m, const std::vector<std::uint16_t>& x, DType x_type) {
  const std::int64_t n = w.n(), k = w.k();
  std::vector<double> xs(static_cast<std::size_t>(m * k)), value(static_cast<std::size_t>(k)), size(value.size());
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = from_bits(x_type, x[i]);
  Expected out{std::vector<double>(static_cast<std::size_t>(m * n)), std::vector<double>(static_cast<std::size_t>(m * n))};
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < value.size(); ++j) {
      const Element e = w.at(i, static_cast<std::int64_t>(j));
      const double extra = w.shape.code == CodeType::fp4 ? 12 : 0;
      value[j] = e.scale * (e.value - e.zero) + e.offset;
      size[j] = std::abs(e.scale) * (std::abs(e.value) + std::abs(e.zero) + extra) + std::abs(e.offset);
    }
    const Global g = w.at(i, 0).global;
    for (std::int64_t r = 0; r < m; ++r) {
      double sum = 0, magnitude = 0;
      for (std::size_t j = 0; j < value.size(); ++j) {
        const double v = xs[static_cast<std::size_t>(r * k) + j];
        sum += v * value[j];
        magnitude += std::abs(v) * size[j];
      }
      out.y[static_cast<std::size_t>(r * n + i)] = global(sum, g);
      out.magnitude[static_cast<std::size_t>(r * n + i)] = std::abs(global(magnitude, g));
    }
  }
  return out;
}

// The analytic bound. With u = 2^-24, a sum of K fp32 terms in any order is off by at most γ(K+8)·Σ|terms| with γ(j) = j·u/(1−j·u);
// the 8 covers forming a term (scale·code, offset), the sum Σx and the global. The terms are x·scale·value, x·scale·zero and
// x·offset (fp4 runs as value + 6 with zero 6), so Σ|terms| = |G|·Σ|x|·(|scale|·(|value| + |zero|) + |offset|). y is then rounded
// once: 2^-8, 2^-11 or 2^-24 of it. `e` may have more rows than y.
void check_bound(const Weight& w, const std::vector<double>& y, const Expected& e, DType y_type, const std::vector<float>& bias,
                 const std::string& what) {
  const double u = 0x1p-24, terms = (static_cast<double>(w.k()) + 8) * u, gamma = terms / (1 - terms);
  const double rounding = y_type == DType::bf16 ? 0x1p-8 : y_type == DType::f16 ? 0x1p-11 : 0x1p-24;
  const double tiny = y_type == DType::f16 ? 0x1p-25 : 0x1p-149;
  ASSERT_FALSE(y.empty()) << what;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double b = bias.empty() ? 0.0 : bias[i % static_cast<std::size_t>(w.n())], exact = e.y[i] + b;
    const double error = gamma * (e.magnitude[i] + std::abs(b));
    ASSERT_LE(std::abs(y[i] - exact), error + rounding * (std::abs(exact) + error) + tiny)
        << what << ", element " << i << ": " << y[i] << " for " << exact;
  }
}

struct Variant {
  std::int64_t m;
  std::string kernel;
};
std::vector<Variant> variants() {
  std::vector<Variant> v;
  for (const std::int64_t m : {1, 2, 3, 7, 8}) v.push_back({m, "cpu_decode"});
  for (const std::int64_t m : {1, 3, 5, 7, 16, 17, 33, 64, 100}) v.push_back({m, "cpu_gemm"});
  v.push_back({3, "reference"});
  return v;
}

TEST(Gemm, WithinTheBoundForEveryWeightAndM) {
  Context context(2);
  std::mt19937 random(3);
  std::vector<float> bias(200);  // of the first n, the kernels read n
  for (auto& b : bias) b = std::normal_distribution<float>(0, 3)(random);
  unsigned turn = 0;
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(s.text());
    const Weight w(s, ++turn);
    const std::int64_t most = 100;
    for (const DType x_type : {DType::bf16, DType::f16}) {
      const auto x = gaussian(most * w.k(), x_type, turn);
      const auto e = expect(w, most, x, x_type);
      for_each_target([&](std::int64_t) {
        for (const Variant& v : variants()) {
          Call c;
          c.kernel = v.kernel;
          c.x_type = x_type;
          c.y_type = std::array{DType::f32, DType::bf16, DType::f16}[turn++ % 3];
          c.pad_x = turn % 2 ? 0 : 1 + turn % 70;
          c.pad_y = turn % 3 ? 0 : 1 + turn % 5;
          c.bias = turn % 5 == 0;
          const auto y = run(context, w, v.m, x, c, bias);
          ASSERT_NO_FATAL_FAILURE(
              check_bound(w, y, e, c.y_type, c.bias ? bias : std::vector<float>(), v.kernel + " M " + std::to_string(v.m)));
        }
      });
    }
  }
}

// One-hot x gives each column of w with the kernels' stated roundings: fl(scale·(value − zero)), or fl(scale·value + offset), then
// fl(G). SSE4 has no FMA, but every scale here times a code is exact in fp32 where there are offsets.
TEST(Gemm, OneHotGivesEachColumnExactly) {
  Context context(1);
  unsigned turn = 100;
  for (Shape s : shapes()) {
    if (s.k > 400) continue;
    if (s.zeros == Zeros::offsets && s.scale_type == DType::f32) s.scale_type = DType::f16;
    SCOPED_TRACE(s.text());
    const Weight w(s, ++turn);
    const std::int64_t n = w.n(), k = w.k();
    for_each_target([&](std::int64_t) {
      for (const char* kernel : {"cpu_decode", "cpu_gemm"}) {
        const std::int64_t step = kernel[4] == 'd' ? 8 : 50;
        for (std::int64_t k0 = 0; k0 < k; k0 += step) {
          const std::int64_t m = std::min(step, k - k0);
          std::vector<std::uint16_t> x(static_cast<std::size_t>(m * k), 0);
          for (std::int64_t i = 0; i < m; ++i) x[static_cast<std::size_t>(i * k + k0 + i)] = to_bits(DType::bf16, 1.0f);
          Call c;
          c.kernel = kernel;
          const auto y = run(context, w, m, x, c);
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
              const Element e = w.at(j, k0 + i);
              const auto value = static_cast<float>(e.scale * (e.value - e.zero) + e.offset);
              const float expected = e.global.op == Global::Op::multiply ? value * e.global.value : value / e.global.value;
              ASSERT_EQ(static_cast<float>(y[static_cast<std::size_t>(i * n + j)]), expected)
                  << kernel << " n " << j << " k " << k0 + i;
            }
          }
        }
      }
    });
  }
}

TEST(Gemm, SmallIntegersAreExact) {
  Context context(2);
  unsigned turn = 200;
  std::mt19937 random(9);
  for (Shape s : shapes()) {
    s.exact = true;
    if (s.k > 1200) s.k = 1219;
    SCOPED_TRACE(s.text());
    const Weight w(s, ++turn);
    for (const DType x_type : {DType::bf16, DType::f16}) {
      std::vector<std::uint16_t> x(static_cast<std::size_t>(17 * w.k()));
      for (auto& v : x) v = to_bits(x_type, static_cast<float>(static_cast<int>(random() % 7) - 3));
      for_each_target([&](std::int64_t) {
        for (const Variant& v :
             {Variant{8, "cpu_decode"}, Variant{5, "cpu_decode"}, Variant{17, "cpu_gemm"}, Variant{4, "reference"}}) {
          const auto rows = std::vector<std::uint16_t>(x.begin(), x.begin() + v.m * w.k());
          Call c;
          c.kernel = v.kernel;
          c.x_type = x_type;
          const auto y = run(context, w, v.m, rows, c);
          const auto e = expect(w, v.m, rows, x_type);
          for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], e.y[i]) << v.kernel << " element " << i;
        }
      });
    }
  }
}

// What a target rounds: the number of partial sums a row of W (lanes t in one vector) and whether it has FMA.
struct Rounds {
  int lanes;
  bool fma;
  std::int64_t depth;  // columns of one chain of cpu_gemm
  float add(float a, float b, float c) const {
    if (fma) return std::fma(a, b, c);
    const float product = a * b;
    return product + c;
  }
};

// A plain model of cpu_decode: each run of up to 128 columns of one scale row as `lanes` fp32 chains that start at −zero·Σx, then
// total = fma(scale, chain, total), fma(offset, Σx, total), chains added at the end.
float model_decode(const Weight& w, std::int64_t row, const float* x, Rounds rounds) {
  const std::int64_t k = w.k();
  const bool fp4 = w.shape.code == CodeType::fp4;
  const double extra = fp4 ? 6 : 0;
  const std::array<int, 4> order = fp4 ? std::array{0, 1, 8, 9} : std::array{0, 8, 1, 9};
  std::vector<float> total(static_cast<std::size_t>(rounds.lanes), 0.0f);
  for (std::int64_t begin = 0; begin < k;) {
    std::int64_t end = begin;
    while (end < k && end < begin + 128 && w.at(row, end).row == w.at(row, begin).row) end += 16;
    const Element first = w.at(row, begin);
    for (int lane = 0; lane < rounds.lanes; ++lane) {
      float sum_x = 0;
      for (std::int64_t s = begin; s < end; s += 16)
        for (int t = lane; t < 4; t += rounds.lanes) {
          const float* at = x + s + 2 * t;
          sum_x += (at[0] + at[1]) + (at[8] + at[9]);
        }
      auto chain = static_cast<float>(-(first.zero + extra)) * sum_x;
      for (std::int64_t s = begin; s < end; s += 16)
        for (int t = lane; t < 4; t += rounds.lanes)
          for (const int i : order)
            chain = rounds.add(static_cast<float>(w.at(row, s + 2 * t + i).value + extra), x[s + 2 * t + i], chain);
      float& sum = total[static_cast<std::size_t>(lane)];
      sum = rounds.add(static_cast<float>(first.scale), chain, sum);
      if (w.shape.zeros == Zeros::offsets) sum = rounds.add(static_cast<float>(first.offset), sum_x, sum);
    }
    begin = end;
  }
  for (std::size_t half = total.size() / 2; half >= 1; half /= 2)
    for (std::size_t i = 0; i < half; ++i) total[i] += total[i + half];
  return total[0];
}

// A plain model of cpu_gemm: w rounded to fp32, chains of `depth` columns, then the chains in order.
float model_gemm(const Weight& w, std::int64_t row, const float* x, Rounds rounds) {
  float total = 0;
  for (std::int64_t begin = 0; begin < w.k(); begin += rounds.depth) {
    float chain = 0;
    for (std::int64_t j = begin; j < std::min(begin + rounds.depth, w.k()); ++j) {
      const Element e = w.at(row, j);
      chain = rounds.add(static_cast<float>(e.scale * (e.value - e.zero) + e.offset), x[j], chain);
    }
    total += chain;
  }
  return total;
}

enum class Data { gaussian, mean, channel };

TEST(Gemm, ErrorIsThatOfAModelWithTheSameRoundings) {
  Context context(2);
  std::vector<Shape> some;
  for (const CodeType code : {CodeType::int4, CodeType::int8}) {
    for (const Zeros zeros : {Zeros::constant, Zeros::u8, Zeros::offsets}) {
      Shape s;
      s.code = code;
      s.zeros = zeros;
      s.k = 768;
      s.part_n = {128};
      some.push_back(s);
    }
  }
  Shape fp4;
  fp4.code = CodeType::fp4;
  fp4.scale_type = DType::f8_e4m3;
  fp4.group = 16;
  fp4.k = 768;
  fp4.part_n = {128};
  some.push_back(fp4);
  unsigned turn = 300;
  for (const Shape& s : some) {
    const Weight w(s, ++turn);
    const std::int64_t n = w.n(), k = w.k(), m = 8;
    for (const Data data : {Data::gaussian, Data::mean, Data::channel}) {
      auto x = gaussian(m * k, DType::f16, ++turn, data == Data::mean ? 100.0f : 0.0f);
      if (data == Data::channel)
        for (std::int64_t r = 0; r < m; ++r) {
          auto& v = x[static_cast<std::size_t>(r * k + 77)];
          v = to_bits(DType::f16, 1000 * from_bits(DType::f16, v));
        }
      std::vector<float> xf;
      for (const auto v : x) xf.push_back(from_bits(DType::f16, v));
      const auto e = expect(w, m, x, DType::f16);
      for_each_target([&](std::int64_t target) {
        const Rounds rounds{target == HWY_AVX2   ? 2
                            : target <= HWY_AVX3 ? 4
                                                 : 1,
                            target != HWY_SSE4 && target != HWY_EMU128, target <= HWY_AVX3 ? 128 : 256};
        for (const bool decode : {true, false}) {
          for (const DType y_type : {DType::f32, DType::bf16}) {
            Call c;
            c.kernel = decode ? "cpu_decode" : "cpu_gemm";
            c.x_type = DType::f16;
            c.y_type = y_type;
            const auto y = run(context, w, m, x, c);
            double error = 0, model_error = 0;
            for (std::int64_t r = 0; r < m; ++r) {
              for (std::int64_t i = 0; i < n; ++i) {
                float f = (decode ? model_decode : model_gemm)(w, i, &xf[static_cast<std::size_t>(r * k)], rounds);
                if (y_type == DType::bf16) f = bf16_to_f32(f32_to_bf16(f));
                const auto at = static_cast<std::size_t>(r * n + i);
                error += (y[at] - e.y[at]) * (y[at] - e.y[at]);
                model_error += (f - e.y[at]) * (f - e.y[at]);
              }
            }
            EXPECT_LE(std::sqrt(error), 1.1 * std::sqrt(model_error))
                << s.text() << " " << c.kernel << " data " << static_cast<int>(data) << " y " << name(y_type);
          }
        }
      });
    }
  }
}

TEST(Gemm, ResultsDependOnNeitherThreadsNorRepetitionNorM) {
  for (const std::int64_t k : {200, 4163}) {  // one range of K, several
    Shape s;
    s.zeros = Zeros::u8;
    s.k = k;
    s.part_n = {130};
    const Weight w(s, 5);
    const auto x = gaussian(257 * k, DType::bf16, 6);
    Context one(1), three(3);
    for (const Variant& v : {Variant{3, "cpu_decode"}, Variant{33, "cpu_gemm"}}) {
      const auto rows = std::vector<std::uint16_t>(x.begin(), x.begin() + v.m * k);
      const auto y = run(one, w, v.m, rows, {v.kernel});
      for (int i = 0; i < 100; ++i) ASSERT_EQ(run(three, w, v.m, rows, {v.kernel}), y) << v.kernel << " run " << i;
    }
    for (const char* kernel : {"cpu_decode", "cpu_gemm"}) {
      const auto y = run(one, w, 1, std::vector<std::uint16_t>(x.begin(), x.begin() + k), {kernel});
      for (const std::int64_t m : {4, 8, 16, 64, 257}) {
        if (kernel[4] == 'd' && m > 8) continue;
        auto many = run(three, w, m, std::vector<std::uint16_t>(x.begin(), x.begin() + m * k), {kernel});
        many.resize(y.size());
        ASSERT_EQ(many, y) << kernel << " row 0 of M " << m;
      }
    }
  }
}

TEST(Gemm, ManyThreadsShareOneContext) {
  Shape s;
  s.k = 512;
  s.part_n = {192};
  const Weight w(s, 7);
  Context context(2);
  const auto x = gaussian(16 * 512, DType::bf16, 8);
  const auto few = run(context, w, 2, std::vector<std::uint16_t>(x.begin(), x.begin() + 2 * 512), {});
  const auto many = run(context, w, 16, x, {});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const bool small = (t + i) % 2 == 0;
        const auto y =
            small ? run(context, w, 2, std::vector<std::uint16_t>(x.begin(), x.begin() + 2 * 512), {}) : run(context, w, 16, x, {});
        if (y != (small ? few : many)) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// Shapes from the field: K without a common factor with any tile, partial groups, N below and between blocks.
TEST(Gemm, ShapesOfTheField) {
  Context context(2);
  unsigned turn = 400;
  std::vector<std::array<std::int64_t, 2>> shapes = {{96, 344}, {192, 100}, {704, 344}, {256, 464}, {256, 928}, {256, 1368}};
  for (const std::int64_t k : {10944, 2880, 1368, 232, 3696})
    for (const std::int64_t n : {344, 100, 8}) shapes.push_back({k, n});
  for (const auto& [k, n] : shapes) {
    Shape s;
    s.k = k;
    s.part_n = {n};
    s.zeros = turn % 2 ? Zeros::u8 : Zeros::constant;
    const Weight w(s, ++turn);
    for (const std::int64_t m : {1, 8, 17}) {
      const auto x = gaussian(m * k, DType::bf16, turn);
      check_bound(w, run(context, w, m, x, {}), expect(w, m, x, DType::bf16), DType::f32, {}, s.text());
    }
  }
}

// Tensor parallelism along K: equal cuts, also inside a group, and of act-order weights; the shards' products add up to the whole.
TEST(Gemm, ShardsOfKAddUpToTheWhole) {
  Context context(2);
  for (const bool act_order : {false, true}) {
    Shape s;
    s.k = act_order ? 1024 : 29568;  // 29568 / 8 = 28.875 groups of 128
    s.part_n = {72};
    s.zeros = Zeros::u8;
    s.act_order = act_order;
    s.exact = true;
    const Weight w(s, act_order ? 41 : 40);
    const std::int64_t n = w.n(), m = 3;
    std::mt19937 random(42);
    std::vector<std::uint16_t> x(static_cast<std::size_t>(m * s.k));
    for (auto& v : x) v = to_bits(DType::bf16, static_cast<float>(static_cast<int>(random() % 7) - 3));
    const auto whole = expect(w, m, x, DType::bf16);
    for (const std::int64_t shards : {2, 4, 8}) {
      const std::int64_t k = s.k / shards;
      std::vector<double> sum(static_cast<std::size_t>(m * n), 0.0);
      for (std::int64_t shard = 0; shard < shards; ++shard) {
        const PackedWeight part = pack(slice(w.tensors[0], 0, n, 1, shard * k, k).value(), 2).value();
        std::vector<std::uint16_t> columns;
        for (std::int64_t r = 0; r < m; ++r)
          columns.insert(columns.end(), x.begin() + r * s.k + shard * k, x.begin() + r * s.k + (shard + 1) * k);
        const auto y = run(context, part.view, m, columns, {});
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += y[i];
      }
      EXPECT_EQ(sum, whole.y) << shards << " shards" << (act_order ? ", act-order" : "");
    }
  }
}

// A tiny global on the largest block scales, and scales of hundreds: nothing may overflow in 16 bits on the way.
TEST(Gemm, ExtremeScalesAndGlobalsStayFinite) {
  Context context(2);
  Shape nvfp4;
  nvfp4.code = CodeType::fp4;
  nvfp4.scale_type = DType::f8_e4m3;
  nvfp4.group = 16;
  nvfp4.k = 4096;
  nvfp4.scale_value = 448;
  nvfp4.global_value = 0x1p-14f;
  Shape large;
  large.k = 2880;
  large.group = 32;
  large.scale_value = 600;
  for (const Shape& s : {nvfp4, large}) {
    const Weight w(s, 43);
    const std::int64_t m = 9;
    auto x = gaussian(m * s.k, DType::f16, 44);
    for (auto& v : x) v = to_bits(DType::f16, 3 * from_bits(DType::f16, v));
    const auto e = expect(w, m, x, DType::f16);
    for (const char* kernel : {"cpu_decode", "cpu_gemm", "reference"}) {
      const std::int64_t rows = kernel[4] == 'd' ? 8 : m;
      const auto few = std::vector<std::uint16_t>(x.begin(), x.begin() + rows * s.k);
      check_bound(w, run(context, w, rows, few, {kernel, DType::f16, DType::f32}), e, DType::f32, {}, kernel);
      if (s.global_value == 0) continue;  // 600 · 15 · 3 · √2880 is beyond fp16
      check_bound(w, run(context, w, rows, few, {kernel, DType::f16, DType::f16}), e, DType::f16, {}, kernel);
    }
  }
}

// fp16 x with partial sums beyond 65504 and a small total: nothing may be kept in fp16 on the way.
TEST(Gemm, LargePartialSumsStayFinite) {
  Shape s;
  s.exact = true;
  s.k = 8192;
  s.part_n = {64};
  const Weight w(s, 11);
  std::vector<std::uint16_t> x(8192);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = to_bits(DType::f16, (i < 4096 ? 1500.0f : -1500.0f));
  Context context(2);
  for (const char* kernel : {"cpu_decode", "cpu_gemm"}) {
    Call c{kernel, DType::f16, DType::f32};
    const auto e = expect(w, 1, x, DType::f16);
    check_bound(w, run(context, w, 1, x, c), e, DType::f32, {}, kernel);
  }
}

// A code equal to its zero point is exactly 0, whatever the scale; an infinity in one row of x stays in that row of y.
TEST(Gemm, RowsOfXDoNotMix) {
  Shape s;
  const Weight w(s, 12);
  auto x = gaussian(7 * s.k, DType::bf16, 13);
  x[static_cast<std::size_t>(2 * s.k + 5)] = 0x7f80;
  x[static_cast<std::size_t>(4 * s.k + 9)] = 0x7fc0;
  Context context(1);
  for_each_target([&](std::int64_t) {
    for (const char* kernel : {"cpu_decode", "cpu_gemm"}) {
      const auto y = run(context, w, 7, x, {kernel});
      for (std::int64_t r = 0; r < 7; ++r)
        for (std::int64_t i = 0; i < w.n(); ++i) {
          const double v = y[static_cast<std::size_t>(r * w.n() + i)];
          if (r == 4) {
            EXPECT_FALSE(std::isfinite(v)) << kernel;
          } else if (r != 2) {
            EXPECT_TRUE(std::isfinite(v)) << kernel << " row " << r;
          }
        }
    }
  });
}

// f16 infinities and NaN, subnormals of both types.
TEST(Gemm, ExtremeActivationsAreReadRight) {
  Shape s;
  s.exact = true;
  s.k = 64;
  s.part_n = {64};
  const Weight w(s, 14);
  Context context(1);
  for_each_target([&](std::int64_t) {
    for (const DType type : {DType::f16, DType::bf16}) {
      for (const std::uint16_t b : {0x0001, 0x03ff, 0x8001, 0x0400, 0x7bff, 0xfbff, 0x7b00, 0x0080}) {
        for (const char* kernel : {"cpu_decode", "cpu_gemm"}) {
          std::vector<std::uint16_t> x(64, 0);
          x[7] = b;
          const auto y = run(context, w, 1, x, {kernel, type, DType::f32});
          const auto e = expect(w, 1, x, type);
          for (std::size_t i = 0; i < y.size(); ++i)
            ASSERT_EQ(static_cast<float>(y[i]), static_cast<float>(e.y[i])) << kernel << " x bits " << b << " " << name(type);
        }
      }
      std::vector<std::uint16_t> x(64, 0);
      x[7] = type == DType::f16 ? 0x7c00 : 0x7f80;
      const auto y = run(context, w, 1, x, {"cpu_gemm", type, DType::f32});
      for (std::int64_t i = 0; i < 64; ++i)
        EXPECT_TRUE(w.at(i, 7).value == w.at(i, 7).zero || !std::isfinite(y[static_cast<std::size_t>(i)])) << name(type);
    }
  });
}

}  // namespace
}  // namespace swordfish::test
