// The timing harness: its numbers are plausible and its random weights can be run.
#include "swordfish/bench.h"

#include <gtest/gtest.h>

#include <cmath>

namespace swordfish {
namespace {

TEST(Bench, TimesEveryM) {
  Context context(2);
  for (const CodeType code : {CodeType::int4, CodeType::int8, CodeType::fp4}) {
    for (const std::int64_t group : {0, 32}) {
      const auto weight = random_weight(code, 130, 256, group);
      ASSERT_TRUE(weight.ok()) << weight.status().message();
      BenchOptions options;
      options.ms = {1, 9};
      options.seconds = 0.001;
      options.cold_bytes = 1 << 20;
      const auto points = bench(context, *weight, options);
      ASSERT_TRUE(points.ok()) << points.status().message();
      ASSERT_EQ(points->size(), 2u);
      EXPECT_EQ((*points)[0].kernel, "cpu_decode");
      EXPECT_EQ((*points)[1].kernel, "cpu_gemm");
      for (const BenchPoint& p : *points) {
        EXPECT_GE(p.runs, 10);
        EXPECT_GT(p.p05, 0);
        EXPECT_LE(p.p05, p.median);
        EXPECT_LE(p.median, p.p95);
        EXPECT_EQ(p.n, 130);
        EXPECT_EQ(p.weight_bytes, weight->bytes());
      }
    }
  }
}

TEST(Bench, RefusesNoRowsAndUnknownKernels) {
  Context context(1);
  const auto weight = random_weight(CodeType::int4, 64, 64, 0);
  BenchOptions options;
  options.cold_bytes = 1;
  options.ms = {0};
  EXPECT_EQ(bench(context, *weight, options).status().code(), Code::invalid_argument);
  options.ms = {1};
  options.kernel = "no such kernel";
  EXPECT_EQ(bench(context, *weight, options).status().code(), Code::invalid_argument);
}

TEST(Bench, MachineRatesArePlausible) {
  Context context(1);
  const MachineRates rates = measure_machine(context);
  EXPECT_EQ(rates.threads, 1);
  EXPECT_FALSE(rates.vectors.empty());
  EXPECT_GT(rates.read_bytes_per_second, 1e8);
  EXPECT_GT(rates.fma_per_second, 1e8);
  EXPECT_TRUE(std::isfinite(rates.fma_per_second));
}

}  // namespace
}  // namespace swordfish
