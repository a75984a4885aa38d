// A whole small kernel in the model: a cp.async ring, ldmatrix, mma, split-K with a last arriver. It is right and the same under
// every order of threads; and each of six faults of the kind that slips into such kernels is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "emulator/emulator.h"
#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/async_copy.h"
#include "kernels/cuda/ptx/barrier.h"
#include "kernels/cuda/ptx/matrix.h"
#include "kernels/cuda/ptx/memory.h"
#include "kernels/cuda/ptx/registers.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

using namespace ptx;

enum Planted { sound, wait_count, no_barrier_in_loop, stale_slot, no_barrier_before_counter, tail_off_by_one, barrier_count };

constexpr int kStages = 3;

struct Parameters {
  gptr<const std::uint16_t> x, w;  // [16, k], [n, k] bf16
  gptr<float> partial;             // [splits, n/16, 64, 4]
  gptr<std::uint32_t> counter;     // [n/16]
  gptr<float> y;                   // [16, n]
  int k, n, splits;
};

// y = x·wᵀ. A block of two warps owns 16 columns of y over a slice of k; each warp eight of them. A stage of the ring holds 16 k of
// x and of w.
template <Planted fault>
SF_KERNEL void gemm(const Parameters p) {
  auto cursor = dyn_smem();
  const sptr<std::uint16_t> xs = carve<std::uint16_t>(cursor, kStages * 256), ws = carve<std::uint16_t>(cursor, kStages * 256);
  const sptr<std::uint32_t> last = carve<std::uint32_t>(cursor, 1);
  const int t = static_cast<int>(tid_x()), lane = t % 32, warp = t / 32;
  const int column = static_cast<int>(ctaid_x()) / p.splits, split = static_cast<int>(ctaid_x()) % p.splits;
  const int steps = p.k / 16 / p.splits + (fault == tail_off_by_one ? 1 : 0), first = split * (p.k / 16 / p.splits);

  const auto copy = [&](int step) {
    if (step < steps) {
      const int row = lane / 2, half = 8 * (lane % 2), slot = step % kStages;
      const std::int64_t source = std::int64_t{row} * p.k + 16 * (first + step) + half;
      if (warp == 0)
        cp_async_cg(xs + 256 * slot + 16 * row + half, p.x + source);
      else
        cp_async_cg(ws + 256 * slot + 16 * row + half, p.w + std::int64_t{16} * column * p.k + source);
    }
    cp_async_commit();
  };
  for (int s = 0; s < kStages - 1; ++s) copy(s);
  float d[4] = {};
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<fault == wait_count ? kStages - 1 : kStages - 2>();
    if (fault != no_barrier_in_loop) bar_sync(0, fault == barrier_count ? 96 : 64);
    copy(step + kStages - 1);
    const int slot = (fault == stale_slot ? step + kStages - 1 : step) % kStages;
    std::uint32_t a[4], b[2];
    ldmatrix(a, xs + 256 * slot + 16 * (lane % 16) + 8 * (lane / 16));
    ldmatrix(b, ws + 256 * slot + 16 * (8 * warp + lane % 8) + 8 * (lane / 8 % 2));
    mma_m16n8k16<Half::bf16>(d, a, b);
  }

  const std::int64_t tiles = p.n / 16;
  st(p.partial + ((split * tiles + column) * 64 + t) * 4, F32x4{d[0], d[1], d[2], d[3]});
  if (fault != no_barrier_before_counter) bar_sync(0);
  if (t == 0) last[0] = atom_inc_acq_rel(p.counter + column, static_cast<std::uint32_t>(p.splits) - 1);
  bar_sync(0);
  if (static_cast<std::uint32_t>(last[0]) != static_cast<std::uint32_t>(p.splits) - 1) return;
  F32x4 sum{0, 0, 0, 0};
  for (int s = 0; s < p.splits; ++s) {
    const F32x4 v = ld_relaxed_f32x4(p.partial + ((s * tiles + column) * 64 + t) * 4);
    sum = {add_f32(sum.x, v.x), add_f32(sum.y, v.y), add_f32(sum.z, v.z), add_f32(sum.w, v.w)};
  }
  const std::int64_t to = std::int64_t{lane / 4} * p.n + 16 * column + 8 * warp + 2 * (lane % 4);
  st(p.y + to, F32x2{sum.x, sum.y});
  st(p.y + to + std::int64_t{8} * p.n, F32x2{sum.z, sum.w});
}

struct GemmRun {
  emu::Outcome outcome;
  std::vector<float> y;
  bool all_written = false;
  std::uint32_t counter = 1;
};

constexpr int kK = 256, kN = 32, kSplits = 2;

std::vector<std::uint16_t> gaussian(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> v(n);
  for (auto& e : v) e = f32_to_bf16(normal(engine));
  return v;
}

template <Planted fault>
GemmRun run(const emu::Options& options) {
  const auto x = gaussian(16 * kK, 1), w = gaussian(kN * kK, 2);
  const std::vector<std::uint32_t> zeros(kN / 16);
  emu::Memory m;
  Parameters p;
  p.x = m.constant<std::uint16_t>("x", x);
  p.w = m.constant<std::uint16_t>("w", w);
  p.partial = m.array<float>("partial", std::size_t{kSplits} * kN * 16);
  p.counter = m.array<std::uint32_t>("counter", zeros);
  p.y = m.array<float>("y", std::size_t{16} * kN);
  p.k = kK;
  p.n = kN;
  p.splits = kSplits;
  const LaunchShape shape{.grid_x = kN / 16 * kSplits, .threads = 64, .dynamic_smem = 4096};
  GemmRun r;
  r.outcome = emu::launch(shape, options, [p] { gemm<fault>(p); });
  r.y = m.read(p.y, std::size_t{16} * kN);
  r.all_written = m.all_written(p.y, std::size_t{16} * kN);
  r.counter = m.read(p.counter, 1)[0];
  return r;
}

TEST(Pipeline, RightAndTheSameUnderEveryOrder) {
  const auto x = gaussian(16 * kK, 1), w = gaussian(kN * kK, 2);
  std::vector<float> first;
  for (const auto copies : {emu::Copies::late, emu::Copies::early, emu::Copies::mixed}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      const GemmRun r = run<sound>({.kernel = "gemm", .seed = seed, .copies = copies});
      ASSERT_FALSE(r.outcome.fault) << r.outcome.fault->message();
      EXPECT_TRUE(r.all_written);
      EXPECT_EQ(r.counter, 0u);
      if (first.empty()) first = r.y;
      EXPECT_EQ(r.y, first) << "seed " << seed;
    }
  }
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < kN; ++j) {
      double exact = 0, size = 0;
      for (std::size_t k = 0; k < kK; ++k) {
        const double term = static_cast<double>(bf16_to_f32(x[i * kK + k])) * bf16_to_f32(w[j * kK + k]);
        exact += term;
        size += std::fabs(term);
      }
      // Each of the 17 mma in a row cuts off at most 18 times 2^-24 of the largest term or sum.
      EXPECT_NEAR(first[i * kN + j], exact, size * 17 * 18 * 0x1p-24);
    }
  }
}

TEST(Pipeline, TheSameSeedGivesTheSameRun) {
  const GemmRun a = run<sound>({.seed = 5}), b = run<sound>({.seed = 5}), c = run<sound>({.seed = 6});
  EXPECT_EQ(a.outcome.counters.switches, b.outcome.counters.switches);
  EXPECT_NE(a.outcome.counters.switches, c.outcome.counters.switches);
}

template <Planted fault>
void expect_found(std::initializer_list<emu::FaultKind> kinds) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const GemmRun r = run<fault>({.kernel = "gemm", .seed = seed});
    ASSERT_TRUE(r.outcome.fault) << "fault " << fault << ", seed " << seed;
    EXPECT_TRUE(std::find(kinds.begin(), kinds.end(), r.outcome.fault->kind) != kinds.end()) << r.outcome.fault->message();
    EXPECT_NE(r.outcome.fault->file.find("pipeline_test.cc"), std::string::npos);
  }
}

TEST(Pipeline, WaitCount) { expect_found<wait_count>({emu::FaultKind::in_flight, emu::FaultKind::race}); }
TEST(Pipeline, NoBarrierInLoop) {
  expect_found<no_barrier_in_loop>({emu::FaultKind::race, emu::FaultKind::in_flight, emu::FaultKind::uninitialised});
}
TEST(Pipeline, StaleSlot) { expect_found<stale_slot>({emu::FaultKind::in_flight, emu::FaultKind::uninitialised}); }
TEST(Pipeline, NoBarrierBeforeCounter) { expect_found<no_barrier_before_counter>({emu::FaultKind::race}); }
TEST(Pipeline, TailOffByOne) { expect_found<tail_off_by_one>({emu::FaultKind::out_of_bounds}); }
TEST(Pipeline, BarrierCount) { expect_found<barrier_count>({emu::FaultKind::barrier}); }

TEST(Pipeline, Counts) {
  const GemmRun r = run<sound>({.kernel = "gemm", .count = true});
  ASSERT_FALSE(r.outcome.fault);
  const emu::Counters& c = r.outcome.counters;
  const std::uint64_t blocks = kN / 16 * kSplits, steps = kK / 16 / kSplits;
  EXPECT_EQ(c.mma, blocks * steps * 2);
  // Two warps, each 32 copies of 16 bytes a step.
  EXPECT_EQ(c.async_copies.requests, blocks * steps * 2);
  EXPECT_EQ(c.async_copies.bytes, blocks * steps * 1024);
  EXPECT_EQ(c.async_copies.sectors, blocks * steps * 32);
  // ldmatrix x4 and x2: rows lie 32 bytes apart, so that each 8 rows take two passes through the banks where one would do.
  EXPECT_EQ(c.shared_loads.requests, blocks * (steps * 2 * 2 + 2));
  EXPECT_EQ(c.shared_loads.shared_wavefronts, blocks * (steps * 2 * (4 + 2) * 2 + 2));
  EXPECT_EQ(c.shared_loads.shared_ideal, blocks * (steps * 2 * (4 + 2) + 2));
  // Distinct sectors: x and w once, partial sums and the counter.
  EXPECT_EQ(c.distinct_sectors_read, (16 * kK + kN * kK) * 2 / 32 + kSplits * kN * 16 * 4 / 32 + 1);
}

TEST(Counters, BankConflicts) {
  struct Pattern {
    int stride;  // words between lanes
    std::uint64_t wavefronts;
  };
  for (const Pattern pattern :
       {Pattern{1, 1}, Pattern{0, 1}, Pattern{2, 2}, Pattern{3, 1}, Pattern{8, 8}, Pattern{32, 32}, Pattern{33, 1}}) {
    const auto o = emu::launch({.threads = 32, .dynamic_smem = 8192}, {.count = true}, [&] {
      auto cursor = dyn_smem();
      auto s = carve<std::uint32_t>(cursor, 2048);
      if (pattern.stride != 0 || tid_x() == 0) s[pattern.stride * static_cast<int>(tid_x())] = 1u;
    });
    ASSERT_FALSE(o.fault) << o.fault->message();
    EXPECT_EQ(o.counters.shared_stores.requests, 1u);
    EXPECT_EQ(o.counters.shared_stores.shared_wavefronts, pattern.wavefronts) << pattern.stride;
  }
  // 16 bytes a lane: four phases of eight lanes.
  const auto o = emu::launch({.threads = 32, .dynamic_smem = 2048}, {.count = true}, [] {
    auto cursor = dyn_smem();
    auto s = carve<std::uint32_t>(cursor, 512);
    st(s + 4 * tid_x(), U32x4{1, 2, 3, 4});
  });
  EXPECT_EQ(o.counters.shared_stores.shared_wavefronts, 4u);
  EXPECT_EQ(o.counters.shared_stores.shared_ideal, 4u);
}

TEST(Counters, GlobalSectors) {
  std::vector<std::uint32_t> values(1024);
  emu::Memory m;
  auto x = m.constant<std::uint32_t>("x", values);
  const auto o = emu::launch({.threads = 32}, {.count = true}, [=] {
    std::uint32_t v = x[tid_x()];           // 128 bytes in a row: four sectors
    v += x[8 * static_cast<int>(tid_x())];  // one sector a lane
    (void)v;
  });
  EXPECT_EQ(o.counters.global_loads.requests, 2u);
  EXPECT_EQ(o.counters.global_loads.sectors, 36u);
  EXPECT_EQ(o.counters.global_loads.bytes, 256u);
  EXPECT_EQ(o.counters.distinct_sectors_read, 32u);
  EXPECT_EQ(o.lines.size(), 2u);
}

}  // namespace
}  // namespace swordfish
