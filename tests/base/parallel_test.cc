// ThreadPool: every task runs once, calls nest and overlap, exceptions come back to the caller.
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace swordfish {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {0, 1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads == 0 ? usable_cores() : threads);
    for (std::int64_t n : {0, 1, 2, 3, 100, 10000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
      pool.parallel_for(n, [&](std::int64_t task, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, pool.threads());
        seen[static_cast<std::size_t>(task)]++;
      });
      for (const auto& s : seen) ASSERT_EQ(s, 1);
    }
  }
}

TEST(ThreadPool, OneWorkerIndexIsNeverUsedTwiceAtOnce) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  pool.parallel_for(5000, [&](std::int64_t, int worker) {
    auto& mine = inside[static_cast<std::size_t>(worker)];
    ASSERT_EQ(mine.fetch_add(1), 0);
    std::this_thread::yield();
    mine.fetch_sub(1);
  });
}

TEST(ThreadPool, NestedCallsRun) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  pool.parallel_for(10, [&](std::int64_t, int) { pool.parallel_for(10, [&](std::int64_t, int) { count++; }); });
  EXPECT_EQ(count, 100);
}

TEST(ThreadPool, CallsFromSeveralThreadsTakeTurns) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) pool.parallel_for(17, [&](std::int64_t task, int) { sum += task; });
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * (17 * 16 / 2));
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolLivesOn) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.parallel_for(100,
                                   [&](std::int64_t task, int) {
                                     if (task == round) throw std::runtime_error("task");
                                   }),
                 std::runtime_error);
  }
  std::atomic<int> count{0};
  pool.parallel_for(100, [&](std::int64_t, int) { count++; });
  EXPECT_EQ(count, 100);
}

}  // namespace
}  // namespace swordfish
