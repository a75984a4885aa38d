// One planted fault per kind of report, in small kernels; each has its sound twin, which must run clean under every seed and mode.
// One file of 670 lines: a planted fault for each report of the machine, to be read beside each other.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "emulator/emulator.h"
#include "kernels/cuda/ptx/async_copy.h"
#include "kernels/cuda/ptx/barrier.h"
#include "kernels/cuda/ptx/cluster.h"
#include "kernels/cuda/ptx/dependency.h"
#include "kernels/cuda/ptx/matrix.h"
#include "kernels/cuda/ptx/memory.h"
#include "kernels/cuda/ptx/registers.h"
#include "kernels/cuda/ptx/warp.h"

namespace swordfish {
namespace {

using namespace ptx;  // as kernel files do
using emu::FaultKind;

constexpr std::uint64_t kSeeds = 20;

std::vector<std::uint32_t> counting(std::size_t n) {
  std::vector<std::uint32_t> v(n);
  std::iota(v.begin(), v.end(), 0u);
  return v;
}

// Runs a case once per seed and copy mode; `make` sets up fresh memory and returns the kernel.
using Make = std::function<std::function<void()>(emu::Memory&)>;

void expect_clean(const LaunchShape& shape, const Make& make) {
  for (emu::Copies copies : {emu::Copies::late, emu::Copies::early, emu::Copies::mixed}) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      emu::Memory memory;
      const auto kernel = make(memory);
      const emu::Outcome o = emu::launch(shape, {.kernel = "sound", .seed = seed, .copies = copies}, kernel);
      ASSERT_FALSE(o.fault) << "seed " << seed << ": " << o.fault->message();
    }
  }
}

// The fault is found under every seed, in this file, at this line, and the message says `text`.
void expect_fault(FaultKind kind, unsigned line, const std::string& text, const LaunchShape& shape, const Make& make) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emu::Memory memory;
    const auto kernel = make(memory);
    const emu::Outcome o = emu::launch(shape, {.kernel = "planted", .seed = seed}, kernel);
    ASSERT_TRUE(o.fault) << "seed " << seed << ": nothing found";
    EXPECT_EQ(o.fault->kind, kind) << o.fault->message();
    EXPECT_EQ(o.fault->line, line) << o.fault->message();
    EXPECT_NE(o.fault->file.find("fault_test.cc"), std::string::npos) << o.fault->message();
    EXPECT_NE(o.fault->message().find(text), std::string::npos) << o.fault->message();
    EXPECT_EQ(o.fault->message().rfind("planted, block (", 0), 0u) << o.fault->message();
  }
}

constexpr LaunchShape kOneWarp{.threads = 32, .dynamic_smem = 4096};
constexpr LaunchShape kFourWarps{.threads = 128, .dynamic_smem = 4096};

// The line of the access in the kernel below it, noted by the kernel itself.
unsigned planted = 0;
#define PLANT planted = __LINE__

void expect_planted(FaultKind kind, const std::string& text, const LaunchShape& shape, const Make& make) {
  {
    emu::Memory memory;
    emu::launch(shape, {}, make(memory));  // notes the line
  }
  expect_fault(kind, planted, text, shape, make);
}

// For faults that either of two accesses may meet first, as the seed has it.
void expect_found(FaultKind kind, const LaunchShape& shape, const Make& make) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emu::Memory memory;
    const auto kernel = make(memory);
    const emu::Outcome o = emu::launch(shape, {.seed = seed}, kernel);
    ASSERT_TRUE(o.fault) << "seed " << seed << ": nothing found";
    EXPECT_EQ(o.fault->kind, kind) << o.fault->message();
  }
}

// --- initialisation --------------------------------------------------------------------------------------------------------------
TEST(Fault, UninitialisedShared) {
  const auto make = [](bool whole) {
    return [whole](emu::Memory& m) -> std::function<void()> {
      auto y = m.array<std::uint32_t>("y", 32);
      return [=] {
        auto cursor = dyn_smem();
        auto s = carve<std::uint32_t>(cursor, 32);
        if (whole || tid_x() != 5) s[tid_x()] = tid_x();
        syncwarp();
        PLANT, y[tid_x()] = s[31 - tid_x()];
      };
    };
  };
  expect_clean(kOneWarp, make(true));
  expect_planted(FaultKind::uninitialised, "byte 20 was never written", kOneWarp, make(false));
}

TEST(Fault, UninitialisedGlobal) {
  expect_planted(FaultKind::uninitialised, "scratch", kOneWarp, [](emu::Memory& m) -> std::function<void()> {
    auto x = m.array<std::uint32_t>("scratch", 64);
    return [=] {
      std::uint32_t v = (PLANT, x[tid_x()]);
      (void)v;
    };
  });
}

// --- bounds and alignment --------------------------------------------------------------------------------------------------------
TEST(Fault, OutOfBoundsGlobal) {
  expect_planted(FaultKind::out_of_bounds, "offset 128 of x (128 bytes)", kOneWarp, [](emu::Memory& m) -> std::function<void()> {
    const auto values = counting(32);
    auto x = m.constant<std::uint32_t>("x", values);
    return [=] {
      std::uint32_t v = (PLANT, x[tid_x() + 1]);
      (void)v;
    };
  });
}

TEST(Fault, OutOfBoundsCarvedArray) {
  // Past its own array, though still inside of the block's shared memory.
  expect_planted(FaultKind::out_of_bounds, "array of 128", kOneWarp, [](emu::Memory&) -> std::function<void()> {
    return [=] {
      auto cursor = dyn_smem();
      auto a = carve<std::uint32_t>(cursor, 32);
      auto b = carve<std::uint32_t>(cursor, 32);
      b[tid_x()] = 0u;
      PLANT, a[tid_x() + 1] = 0u;
    };
  });
}

TEST(Fault, CarvedPastTheDynamicSharedMemory) {
  expect_planted(FaultKind::out_of_bounds, "shared offset", kOneWarp, [](emu::Memory&) -> std::function<void()> {
    return [=] {
      auto cursor = dyn_smem();
      auto a = carve<std::uint32_t>(cursor, 2048);
      PLANT, a[1024 + tid_x()] = 0u;
    };
  });
}

TEST(Fault, NullPointer) {
  expect_planted(FaultKind::out_of_bounds, "null", kOneWarp, [](emu::Memory&) -> std::function<void()> {
    return [] {
      const gptr<float> p = nullptr;
      PLANT, p[0] = 1.0f;
    };
  });
}

TEST(Fault, MisalignedGlobalVector) {
  expect_planted(FaultKind::misaligned, "no multiple of 16", kOneWarp, [](emu::Memory& m) -> std::function<void()> {
    const auto values = counting(256);
    auto x = m.constant<std::uint32_t>("x", values);
    return [=] { PLANT, ld<U32x4>(x + 4 * tid_x() + 1); };
  });
}

TEST(Fault, MisalignedSharedVector) {
  expect_planted(FaultKind::misaligned, "no multiple of 8", kOneWarp, [](emu::Memory&) -> std::function<void()> {
    return [] {
      auto cursor = dyn_smem();
      auto s = carve<std::uint32_t>(cursor, 256);
      PLANT, st(s + 2 * tid_x() + 1, U32x2{1, 2});
    };
  });
}

TEST(Fault, MisalignedAsyncCopySource) {
  expect_planted(FaultKind::misaligned, "source of cp.async", kOneWarp, [](emu::Memory& m) -> std::function<void()> {
    const auto values = counting(256);
    auto x = m.constant<std::uint32_t>("x", values);
    return [=] {
      auto cursor = dyn_smem();
      auto s = carve<std::uint32_t>(cursor, 256);
      PLANT, cp_async_cg(s + 4 * tid_x(), x + 4 * tid_x() + 2);
    };
  });
}

TEST(Fault, WriteToConstant) {
  expect_planted(FaultKind::read_only, "weights", kOneWarp, [](emu::Memory& m) -> std::function<void()> {
    const auto values = counting(32);
    auto x = m.constant<std::uint32_t>("weights", values);
    const gptr<std::uint32_t> writable(const_cast<std::uint32_t*>(x.raw()), x.allocation());
    return [=] { PLANT, writable[tid_x()] = 1u; };
  });
}

TEST(Fault, WriteToMemoryReadAsNonCoherent) {
  expect_planted(FaultKind::read_only, "ld.global.nc", kOneWarp, [](emu::Memory& m) -> std::function<void()> {
    const auto values = counting(32);
    auto x = m.array<std::uint32_t>("x", values);
    return [=] {
      const auto v = ld_nc<std::uint32_t>(x + tid_x());
      PLANT, x[tid_x()] = v + 1;
    };
  });
}

// --- asynchronous copies
// ----------------------------------------------------------------------------------------------------------- A ring of two slots
// of one 16-byte copy a lane; each lane consumes its own bytes.
template <int wait, bool commit>
Make ring() {
  return [](emu::Memory& m) -> std::function<void()> {
    const auto values = counting(std::size_t{32} * 4 * 8);
    auto x = m.constant<std::uint32_t>("x", values);
    auto y = m.array<std::uint32_t>("y", 32);
    return [=] {
      auto cursor = dyn_smem();
      auto s = carve<std::uint32_t>(cursor, 2 * 128);
      const auto copy = [&](std::uint32_t i) {
        cp_async_cg(s + (i % 2) * 128 + 4 * tid_x(), x + i * 128 + 4 * tid_x());
        if (commit) cp_async_commit();
      };
      copy(0);
      std::uint32_t sum = 0;
      for (std::uint32_t i = 0; i < 8; ++i) {
        if (i + 1 < 8) copy(i + 1);
        if (i + 1 < 8)
          cp_async_wait<wait>();
        else
          cp_async_wait_all();
        const U32x4 v = (PLANT, ld<U32x4>(s + (i % 2) * 128 + 4 * tid_x()));
        sum += v.x;
      }
      y[tid_x()] = sum;
    };
  };
}
TEST(Fault, AsyncCopyWaitCount) {
  expect_clean(kOneWarp, ring<1, true>());
  expect_planted(FaultKind::in_flight, "has not waited for", kOneWarp, ring<2, true>());
}
TEST(Fault, AsyncCopyWithoutCommit) { expect_planted(FaultKind::in_flight, "has not waited for", kOneWarp, ring<1, false>()); }

TEST(Fault, AsyncCopyReadByAnotherLaneBeforeItsWarpSync) {
  const auto make = [](bool sync) {
    return [sync](emu::Memory& m) -> std::function<void()> {
      const auto values = counting(128);
      auto x = m.constant<std::uint32_t>("x", values);
      return [=] {
        auto cursor = dyn_smem();
        auto s = carve<std::uint32_t>(cursor, 128);
        cp_async_cg(s + 4 * tid_x(), x + 4 * tid_x());
        cp_async_commit();
        cp_async_wait<0>();
        if (sync) syncwarp();
        vote_ballot(true);  // brings the lanes together, but orders no memory
        PLANT, ld<U32x4>(s + 4 * (31 - tid_x()));
      };
    };
  };
  expect_clean(kOneWarp, make(true));
  expect_planted(FaultKind::race, "read of 16 bytes", kOneWarp, make(false));
}

TEST(Fault, AsyncCopyOverSlotStillRead) {
  // The slot is refilled while another warp may still read it: a barrier is missing at the end of the loop.
  const auto make = [](bool barrier_after) {
    return [barrier_after](emu::Memory& m) -> std::function<void()> {
      const auto values = counting(512);
      auto x = m.constant<std::uint32_t>("x", values);
      return [=] {
        auto cursor = dyn_smem();
        auto s = carve<std::uint32_t>(cursor, 512);
        for (int i = 0; i < 3; ++i) {
          cp_async_cg(s + 4 * tid_x(), x + 4 * tid_x());
          cp_async_commit();
          cp_async_wait<0>();
          bar_sync(0);
          ld<U32x4>(s + 4 * (127 - tid_x()));
          if (barrier_after) bar_sync(0);
        }
      };
    };
  };
  expect_clean(kFourWarps, make(true));
  expect_found(FaultKind::race, kFourWarps, make(false));
}

// --- races
// ---------------------------------------------------------------------------------------------------------------------------
TEST(Fault, SharedRaceBetweenWarps) {
  const auto make = [](bool sync) {
    return [sync](emu::Memory&) -> std::function<void()> {
      return [=] {
        auto cursor = dyn_smem();
        auto s = carve<std::uint32_t>(cursor, 128);
        s[tid_x()] = tid_x();
        bar_sync(0);
        if (tid_x() < 32) s[tid_x()] = 7u;
        if (sync)
          bar_sync(0);
        else
          syncwarp();
        if (tid_x() >= 96) {
          std::uint32_t v = s[tid_x() - 96];
          (void)v;
        }
      };
    };
  };
  expect_clean(kFourWarps, make(true));
  expect_found(FaultKind::race, kFourWarps, make(false));
}

TEST(Fault, RaceNamesBothPlaces) {
  unsigned first = 0, second = 0;
  emu::Memory m;
  auto x = m.array<std::uint32_t>("x", 1);
  const auto o = emu::launch({.threads = 64}, {}, [&] {
    if (tid_x() == 0) first = __LINE__, x[0] = 1u;
    if (tid_x() == 32) second = __LINE__, x[0] = 2u;
  });
  ASSERT_TRUE(o.fault);
  EXPECT_TRUE(o.fault->line == first || o.fault->line == second);
  const unsigned other = o.fault->line == first ? second : first;
  EXPECT_NE(o.fault->text.find("fault_test.cc:" + std::to_string(other) + ":"), std::string::npos) << o.fault->message();
}

// Many warps read the same words over and over: what is kept of it stays small (this took minutes when it did not).
TEST(Fault, RepeatedReadsByManyWarps) {
  expect_clean({.threads = 256, .dynamic_smem = 256}, [](emu::Memory&) -> std::function<void()> {
    return [] {
      auto cursor = dyn_smem();
      auto s = carve<std::uint32_t>(cursor, 32);
      for (int round = 0; round < 4; ++round) {
        if (warpid() == 0) s[laneid()] = 1u;
        bar_sync(0);
        for (int i = 0; i < 50; ++i) {
          std::uint32_t v = s[(laneid() + static_cast<std::uint32_t>(i)) % 32];
          (void)v;
          syncwarp();
        }
        bar_sync(0);
      }
    };
  });
}

TEST(Fault, HalfWordStoresDoNotRaceWithTheirNeighbours) {
  expect_clean(kOneWarp, [](emu::Memory& m) -> std::function<void()> {
    auto y = m.array<std::uint16_t>("y", 64);
    return [=] {
      y[2 * tid_x()] = std::uint16_t{1};
      y[2 * ((tid_x() + 1) % 32) + 1] = std::uint16_t{2};
    };
  });
}

TEST(Fault, PlainIncrementFromManyThreads) {
  expect_planted(FaultKind::race, "of sum", kFourWarps, [](emu::Memory& m) -> std::function<void()> {
    const std::vector<std::uint32_t> zero(1);
    auto sum = m.array<std::uint32_t>("sum", zero);
    return [=] { PLANT, sum[0] += 1u; };
  });
}

TEST(Fault, ReaderSynchronisedWithOnlyOneOfTwoWarps) {
  // Two warps read; the writer waited for the first of them alone.
  expect_found(FaultKind::race, kFourWarps, [](emu::Memory& m) -> std::function<void()> {
    const auto values = counting(4);
    auto x = m.array<std::uint32_t>("x", values);
    return [=] {
      const std::uint32_t warp = warpid();
      if (warp == 2) {
        bar_sync(1, 64);
        if (laneid() == 0) x[0] = 9u;
      } else {
        std::uint32_t v = x[0];
        (void)v;
        if (warp == 1) bar_sync(1, 64);
      }
    };
  });
}

// The last of the blocks to arrive adds up what all have written.
Make last_arriver(bool acquire, bool sync_before) {
  return [=](emu::Memory& m) -> std::function<void()> {
    const std::vector<std::uint32_t> zero(1);
    auto counter = m.array<std::uint32_t>("counter", zero);
    auto partial = m.array<std::uint32_t>("partial", 4 * 64);
    auto y = m.array<std::uint32_t>("y", 64);
    return [=] {
      auto cursor = dyn_smem();
      auto flag = carve<std::uint32_t>(cursor, 1);
      partial[64 * ctaid_x() + tid_x()] = ctaid_x() + tid_x();
      if (sync_before) bar_sync(0);
      if (tid_x() == 0) {
        const std::uint32_t old = acquire ? atom_inc_acq_rel(counter, 3) : atom_add_relaxed(counter, 1);
        flag[0] = old;
      }
      bar_sync(0);
      if (static_cast<std::uint32_t>(flag[0]) != 3) return;
      std::uint32_t sum = 0;
      for (std::uint32_t c = 0; c < 4; ++c) sum += static_cast<std::uint32_t>((PLANT, partial[64 * c + tid_x()]));
      y[tid_x()] = sum;
    };
  };
}
constexpr LaunchShape kFourBlocks{.grid_x = 4, .threads = 64, .dynamic_smem = 64};
TEST(Fault, LastArriverWithoutAcquireRelease) {
  expect_clean(kFourBlocks, last_arriver(true, true));
  expect_planted(FaultKind::race, "of partial", kFourBlocks, last_arriver(false, true));
}
TEST(Fault, LastArriverWithoutBarrierBeforeTheCounter) {
  expect_planted(FaultKind::race, "of partial", kFourBlocks, last_arriver(true, false));
}

TEST(Fault, FencesOrderRelaxedAtomics) {
  const auto make = [](bool fences) {
    return [fences](emu::Memory& m) -> std::function<void()> {
      const std::vector<std::uint32_t> zero(1);
      auto flag = m.array<std::uint32_t>("flag", zero);
      auto data = m.array<std::uint32_t>("data", 1);
      return [=] {
        if (tid_x() != 0) return;
        if (ctaid_x() == 0) {
          data[0] = 5u;
          if (fences) fence_gpu();
          st_relaxed(flag, 1);
        } else {
          while (ld_relaxed(flag) == 0) {
          }
          if (fences) fence_gpu();
          std::uint32_t v = (PLANT, data[0]);
          (void)v;
        }
      };
    };
  };
  const LaunchShape two{.grid_x = 2, .threads = 32};
  expect_clean(two, make(true));
  expect_planted(FaultKind::race, "of data", two, make(false));
}

// Release and acquire are the lane's own: its siblings need a syncwarp before the one and after the other.
TEST(Fault, ReleaseAndAcquireCoverOneLane) {
  const auto make = [](bool before, bool after) {
    return [=](emu::Memory& m) -> std::function<void()> {
      const std::vector<std::uint32_t> zero(1);
      auto flag = m.array<std::uint32_t>("flag", std::span<const std::uint32_t>(zero));
      auto data = m.array<std::uint32_t>("data", 32);
      return [=] {
        if (ctaid_x() == 0) {
          data[tid_x()] = tid_x();
          if (before)
            syncwarp();
          else
            vote_ballot(true);
          if (tid_x() == 0) st_release(flag, 1);
        } else {
          if (tid_x() == 0)
            while (ld_acquire(flag) == 0) {
            }
          if (after)
            syncwarp();
          else
            vote_ballot(true);
          std::uint32_t v = (PLANT, data[31 - tid_x()]);
          EXPECT_EQ(v, 31 - tid_x());
        }
      };
    };
  };
  const LaunchShape two{.grid_x = 2, .threads = 32};
  expect_clean(two, make(true, true));
  expect_planted(FaultKind::race, "of data", two, make(false, true));
  expect_planted(FaultKind::race, "of data", two, make(true, false));
}

// --- who waits for whom ----------------------------------------------------------------------------------------------------------
TEST(Fault, DeadlockAtABarrierThatNotAllReach) {
  expect_planted(FaultKind::deadlock, "barrier 1 of block 0 has 96 of 128 threads", kFourWarps,
                 [](emu::Memory&) -> std::function<void()> {
                   return [] {
                     if (warpid() == 3) return;
                     PLANT, bar_sync(1, 128);
                   };
                 });
}

TEST(Fault, BarrierCountTooHigh) {
  expect_planted(FaultKind::barrier, "nobody can complete it", kFourWarps,
                 [](emu::Memory&) -> std::function<void()> { return [] { PLANT, bar_sync(1, 160); }; });
}

TEST(Fault, BarrierCountsDiffer) {
  emu::Memory m;
  const auto o = emu::launch(kFourWarps, {}, [] { bar_sync(1, warpid() == 0 ? 96 : 128); });
  ASSERT_TRUE(o.fault);
  EXPECT_EQ(o.fault->kind, FaultKind::barrier) << o.fault->message();
}

TEST(Fault, LanesLeaveTheWarpBeforeABarrier) {
  expect_planted(FaultKind::divergence, "lane", kFourWarps, [](emu::Memory&) -> std::function<void()> {
    return [] {
      if (tid_x() % 32 == 7) return;
      PLANT, bar_sync(0);
    };
  });
}

TEST(Fault, LanesAtDifferentShuffles) {
  emu::Memory m;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto o = emu::launch(kOneWarp, {.seed = seed}, [] {
      if (tid_x() < 16)
        shfl_bfly(1u, 1);
      else
        shfl_bfly(2u, 1);
    });
    ASSERT_TRUE(o.fault);
    EXPECT_EQ(o.fault->kind, FaultKind::divergence) << o.fault->message();
    EXPECT_NE(o.fault->text.find("waits for it at shfl.sync"), std::string::npos) << o.fault->message();
  }
}

TEST(Fault, PartOfAWarpAtAnAlignedInstruction) {
  expect_planted(FaultKind::divergence, "whole warp", kOneWarp, [](emu::Memory&) -> std::function<void()> {
    return [] {
      if (tid_x() == 31) return;
      float d[4] = {};
      const std::uint32_t a[4] = {}, b[2] = {};
      PLANT, mma_m16n8k16<Half::bf16>(d, a, b);
    };
  });
}

TEST(Fault, WarpSyncOfAPartWaitsForNobodyElse) {
  expect_clean(kOneWarp, [](emu::Memory&) -> std::function<void()> {
    return [] {
      if (tid_x() < 8) {
        syncwarp(0xff);
        EXPECT_EQ(shfl_idx(tid_x(), 3, 0xff), 3u);
      }
      syncwarp();
    };
  });
}

TEST(Fault, CallerOutsideOfItsMask) {
  expect_planted(FaultKind::divergence, "not in its mask", kOneWarp,
                 [](emu::Memory&) -> std::function<void()> { return [] { PLANT, syncwarp(0x0000ffff); }; });
}

TEST(Fault, ShuffleFromALaneOutsideOfTheMask) {
  expect_planted(FaultKind::undefined_value, "does not take part", kOneWarp, [](emu::Memory&) -> std::function<void()> {
    return [] {
      if (tid_x() < 16) PLANT, shfl_idx(tid_x(), tid_x() + 16, 0xffff);
    };
  });
}

TEST(Fault, LivelockOfAPollThatNobodyAnswers) {
  expect_planted(FaultKind::livelock, "polling loads", LaunchShape{.threads = 32}, [](emu::Memory& m) -> std::function<void()> {
    const std::vector<std::uint32_t> zero(1);
    auto flag = m.array<std::uint32_t>("flag", zero);
    return [=] {
      for (;;)
        if ((PLANT, ld_acquire(flag)) != 0) return;
    };
  });
}

// --- dependent launch ------------------------------------------------------------------------------------------------------------
TEST(Fault, DependentDataBeforeTheWait) {
  const auto make = [](bool wait_first) {
    return [wait_first](emu::Memory& m) -> std::function<void()> {
      const auto values = counting(32);
      auto w = m.constant<std::uint32_t>("w", values);
      auto x = m.array<std::uint32_t>("x", values);
      m.set_dependent(x);
      return [=] {
        std::uint32_t v = w[tid_x()];  // weights may be read at once
        if (wait_first) griddep_wait();
        v += static_cast<std::uint32_t>((PLANT, x[tid_x()]));
        griddep_wait();
        x[tid_x()] = v;
        griddep_launch_dependents();
      };
    };
  };
  const LaunchShape dependent{.threads = 32, .dependent = true};
  expect_clean(dependent, make(true));
  expect_planted(FaultKind::dependency, "of x", dependent, make(false));
  expect_clean(LaunchShape{.threads = 32}, make(false));  // a plain launch starts after the kernel ahead has ended
}

TEST(Fault, OneThreadsDependencyWaitReachesOthersByABarrier) {
  const auto make = [](bool barrier_between) {
    return [barrier_between](emu::Memory& m) -> std::function<void()> {
      const auto values = counting(128);
      auto x = m.array<std::uint32_t>("x", values);
      m.set_dependent(x);
      return [=] {
        if (tid_x() == 0) griddep_wait();
        if (barrier_between) bar_sync(0);
        std::uint32_t v = (PLANT, x[tid_x()]);
        (void)v;
      };
    };
  };
  const LaunchShape dependent{.threads = 128, .dependent = true};
  expect_clean(dependent, make(true));
  expect_planted(FaultKind::dependency, "of x", dependent, make(false));
}

// --- clusters
// ----------------------------------------------------------------------------------------------------------------------
Make exchange(bool first_barrier, bool last_barrier) {
  return [=](emu::Memory& m) -> std::function<void()> {
    auto y = m.array<std::uint32_t>("y", 2 * 64);
    return [=] {
      auto cursor = dyn_smem();
      auto s = carve<std::uint32_t>(cursor, 64);
      s[tid_x()] = 100 * cluster_ctarank() + tid_x();
      if (first_barrier) {
        cluster_arrive();
        cluster_wait();
      }
      PLANT, y[64 * ctaid_x() + tid_x()] = ld_cluster<std::uint32_t>(mapa(s, cluster_ctarank() ^ 1) + tid_x());
      if (last_barrier) {
        cluster_arrive_relaxed();
        cluster_wait();
      }
    };
  };
}
constexpr LaunchShape kPair{.grid_x = 2, .threads = 64, .cluster_x = 2, .dynamic_smem = 256};
TEST(Fault, DistributedSharedMemoryBeforeTheClusterBarrier) {
  expect_clean(kPair, exchange(true, true));
  expect_planted(FaultKind::cluster, "may not have started", kPair, exchange(false, true));
}
TEST(Fault, ExitWhileOthersMayUseTheSharedMemory) { expect_planted(FaultKind::cluster, "exit", kPair, exchange(true, false)); }

TEST(Fault, RemoteWriteRacesWithLocalRead) {
  expect_found(FaultKind::race, kPair, [](emu::Memory&) -> std::function<void()> {
    return [] {
      auto cursor = dyn_smem();
      auto s = carve<std::uint32_t>(cursor, 64);
      s[tid_x()] = 0u;
      cluster_arrive();
      cluster_wait();
      if (cluster_ctarank() == 0) {
        st_cluster(mapa(s, 1) + tid_x(), tid_x());
      } else {
        std::uint32_t v = s[tid_x()];
        (void)v;
      }
      cluster_arrive_relaxed();
      cluster_wait();
    };
  });
}

}  // namespace
}  // namespace swordfish
