// Timing on the CPU: copies of a weight take turns so that each is cold; percentiles of single calls; and the machine's own rates.
#include "swordfish/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/try.h"
#include "device/measure.h"
#include "kernels/cpu/machine.h"
#include "kernels/kernel.h"
#include "pack/packed_weight.h"
#include "plan/bench_gpu.h"
#include "plan/bench_sample.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::uint64_t largest_cache() {
  const long bytes = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE));
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : std::uint64_t{32} << 20;
}

Buffer copy(const Buffer& from) {
  Buffer to(from.size());
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return to;
}

PackedWeight copy(const PackedWeight& from) {
  PackedWeight to;
  to.view = from.view;
  to.codes = copy(from.codes);
  to.scales = copy(from.scales);
  to.zeros = copy(from.zeros);
  to.offsets = copy(from.offsets);
  to.row_of_slice = copy(from.row_of_slice);
  to.gather = copy(from.gather);
  to.parts = from.parts;
  to.name = from.name;
  bind(to);
  return to;
}

}  // namespace

Result<PackedWeight> random_weight(CodeType code, std::int64_t n, std::int64_t k, std::int64_t group_size) {
  SF_ASSIGN(PackedWeight weight, describe(code, n, k, group_size));
  const PackedView& v = weight.view;
  const auto blocks = static_cast<std::uint64_t>(v.n_blocks), values = blocks * static_cast<std::uint64_t>(v.rows) * 64;
  std::mt19937_64 random(1);
  weight.codes = Buffer(blocks * static_cast<std::uint64_t>(v.k_blocks) * 2048);
  for (std::size_t i = 0; i < weight.codes.size() / 8; ++i) weight.codes.as<std::uint64_t>()[i] = random();
  weight.scales = Buffer(values * static_cast<std::uint64_t>(bits(v.scale_type)) / 8);
  // 1/32 … 1/16, in whatever type the scales have.
  for (std::uint64_t i = 0; i < values; ++i) {
    switch (v.scale_type) {
      case DType::f8_e4m3: weight.scales.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(0x10 + random() % 8); break;
      case DType::f8_e8m0: weight.scales.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(127 - 5); break;
      default: weight.scales.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(f32_to_bf16(0x1p-5f) + random() % 128); break;
    }
  }
  bind(weight);
  return weight;
}

MachineRates measure_machine(Context& context) {
  MachineRates rates;
  rates.threads = context.threads();
  rates.vectors = cpu::vectors_in_use();
  ThreadPool& threads = pool(context);
  std::atomic<std::uint64_t> sink{0};

  constexpr std::size_t kPiece = std::size_t{1} << 20;
  const std::size_t bytes = std::max<std::size_t>(4 * largest_cache(), std::size_t{256} << 20) / kPiece * kPiece;
  Buffer memory(bytes);
  std::memset(memory.data(), 1, bytes);
  for (int pass = 0; pass < 8; ++pass) {
    const auto start = Clock::now();
    threads.parallel_for(static_cast<std::int64_t>(bytes / kPiece), [&](std::int64_t piece, int) {
      sink += cpu::read_loop(memory.data() + static_cast<std::size_t>(piece) * kPiece, kPiece);
    });
    rates.read_bytes_per_second = std::max(rates.read_bytes_per_second, static_cast<double>(bytes) / seconds_since(start));
  }

  constexpr std::int64_t kRounds = 1 << 20;
  for (int pass = 0; pass < 8; ++pass) {
    const auto start = Clock::now();
    threads.parallel_for(rates.threads, [&](std::int64_t, int) { sink += cpu::fma_loop(kRounds) > 0 ? 1 : 0; });
    const double fmas = static_cast<double>(rates.threads * kRounds * cpu::fma_per_round());
    rates.fma_per_second = std::max(rates.fma_per_second, fmas / seconds_since(start));
  }
  return rates;
}

namespace {

// Times one planned call; the weight and its copies take turns.
Result<BenchPoint> time_on_cpu(Context& context, const PackedWeight& weight, const std::vector<PackedWeight>& copies,
                               Problem problem, const Plan& chosen, double seconds) {
  const PackedView& v = weight.view;
  const std::vector<std::uint16_t> x = random_x(problem.x_type, problem.m * v.k);
  Buffer y(static_cast<std::size_t>(problem.m) * static_cast<std::size_t>(v.n) * static_cast<std::size_t>(bits(problem.y_type)) /
           8);
  Buffer workspace(chosen.workspace);
  RunArgs args;
  args.x = x.data();
  args.ldx = v.k;
  args.y = y.data();
  args.ldy = v.n;
  args.workspace = workspace.data();
  args.workspace_size = workspace.size();
  SF_TRY(workspace_init(chosen, problem.device, args.workspace, args.workspace_size));

  constexpr std::size_t kWarmUp = 2, kLeast = 10;
  std::vector<double> times;
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < kWarmUp + kLeast || seconds_since(begin) < seconds; ++i) {
    const std::size_t turn = i % (copies.size() + 1);
    problem.weight = turn == 0 ? &v : &copies[turn - 1].view;
    const auto start = Clock::now();
    SF_TRY(run(context, problem, chosen, args));
    if (i >= kWarmUp) times.push_back(seconds_since(start));
  }
  std::sort(times.begin(), times.end());
  BenchPoint point;
  point.m = problem.m;
  point.n = v.n;
  point.k = v.k;
  point.kernel = chosen.kernel_name;
  point.threads = context.threads();
  point.runs = static_cast<std::int64_t>(times.size());
  point.median = quantile(times, 0.5);
  point.p05 = quantile(times, 0.05);
  point.p95 = quantile(times, 0.95);
  point.weight_bytes = weight.bytes();

  problem.weight = &v;
  std::memset(y.data(), 0xff, y.size());
  SF_TRY(run(context, problem, chosen, args));
  SF_TRY(check_sample(weight, problem, chosen, x, y.data(), point));
  return point;
}

}  // namespace

Result<std::vector<BenchPoint>> bench(Context& context, const PackedWeight& weight, const BenchOptions& options) {
  std::vector<std::pair<Problem, Plan>> calls;  // all are planned before anything takes time
  for (const std::int64_t m : options.ms) {
    if (m < 1) return invalid_argument("m is {}: only a positive number of rows can be timed", m);
    Problem problem;
    problem.weight = &weight.view;
    problem.m = m;
    problem.x_type = options.x_type;
    problem.y_type = options.y_type;
    problem.threads = context.threads();
    problem.device = options.device;
    SF_ASSIGN(const Plan chosen, plan(problem, {options.kernel}));
    calls.emplace_back(problem, chosen);
  }
  if (options.device.kind == Device::Kind::cuda) return bench_on_gpu(context, weight, options, calls);

  const std::uint64_t one = std::max<std::uint64_t>(weight.bytes(), 1);
  const std::uint64_t cold = options.cold_bytes != 0 ? options.cold_bytes : 4 * largest_cache();
  std::vector<PackedWeight> copies;
  for (std::uint64_t have = one; have < cold; have += one) copies.push_back(copy(weight));

  std::vector<BenchPoint> points;
  for (const auto& [problem, chosen] : calls) {
    SF_ASSIGN(const BenchPoint point, time_on_cpu(context, weight, copies, problem, chosen, options.seconds));
    points.push_back(point);
  }
  return points;
}

}  // namespace swordfish
