// Fibers: a launch leaves nothing behind, however it ends, and AddressSanitizer, where it is built in, follows every switch.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <utility>

#include "emulator/emulator.h"
#include "emulator/fiber.h"
#include "kernels/cuda/ptx/barrier.h"
#include "kernels/cuda/ptx/memory.h"
#include "kernels/cuda/ptx/registers.h"
#include "sanitizer.h"
#if SWORDFISH_ASAN
#include <sanitizer/asan_interface.h>
#endif

extern "C" [[gnu::weak]] int __asan_address_is_poisoned(const volatile void* address);  // there in a program with AddressSanitizer

namespace swordfish {
namespace {

using namespace ptx;  // as kernel files do
using emu::FaultKind;

constexpr LaunchShape kShape{.grid_x = 4, .threads = 128, .dynamic_smem = 64};

// Memory on the lane's own stack, which a sanitizer surrounds with red zones there and nowhere else.
[[gnu::noinline]] void in_deep_frame(std::size_t bytes, const std::function<void(std::byte*)>& f) {
  auto* p = static_cast<std::byte*>(__builtin_alloca(bytes));
  std::memset(p, 0x5a, bytes);
  f(p);
  EXPECT_EQ(p[bytes - 1], std::byte{0x5a});
}

struct Counted {
  static inline int live = 0;
  Counted() { ++live; }
  ~Counted() { --live; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

emu::Outcome run(const std::function<void()>& kernel, std::uint64_t seed = 1) {
  return emu::launch(kShape, {.kernel = "fibers", .seed = seed}, kernel);
}
// Every lane waits inside of a frame with red zones; then one finds a fault, or one never comes.
emu::Outcome run_faulty(std::uint64_t seed) {
  return run(
      [] {
        const Counted c;
        in_deep_frame(100 + 16 * tid_x() % 512, [](std::byte*) {
          if (tid_x() == 127) bar_sync(1, 33);
          bar_sync(0);
        });
      },
      seed);
}
emu::Outcome run_deadlocked(std::uint64_t seed) {
  return run(
      [] {
        const Counted c;
        in_deep_frame(100 + 16 * tid_x() % 512, [](std::byte*) { bar_sync(tid_x() < 32 ? 1 : 0, 128); });
      },
      seed);
}

TEST(Fiber, AFaultEndsEveryLane) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const emu::Outcome faulty = run_faulty(seed), deadlocked = run_deadlocked(seed);
    ASSERT_TRUE(faulty.fault);
    ASSERT_TRUE(deadlocked.fault);
    EXPECT_EQ(deadlocked.fault->kind, FaultKind::deadlock) << deadlocked.fault->message();
    EXPECT_EQ(Counted::live, 0);
  }
}

// Red zones of a dropped launch would be found by the next one, whose frames lie elsewhere on the same stacks.
TEST(Fiber, FramesOfADroppedLaunchAreForgotten) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ASSERT_TRUE((seed % 2 ? run_faulty(seed) : run_deadlocked(seed)).fault);
    const emu::Outcome o = run([] { in_deep_frame(16384, [](std::byte*) { bar_sync(0); }); }, seed);
    ASSERT_FALSE(o.fault) << o.fault->message();
  }
}

// A sanitizer's frames for one fiber take most of a megabyte of addresses: those of 20,000 dropped lanes would be seen.
TEST(Fiber, MemoryOfADroppedLaunchIsFreed) {
  const auto pages = [] {
    std::ifstream file("/proc/self/statm");
    std::uint64_t n = 0;
    file >> n;
    return n;
  };
  ASSERT_TRUE(run_deadlocked(1).fault);
  const std::uint64_t before = pages();
  for (std::uint64_t seed = 1; seed <= 40; ++seed) ASSERT_TRUE((seed % 2 ? run_faulty(seed) : run_deadlocked(seed)).fault);
  EXPECT_LT(pages(), before + (std::uint64_t{1} << 30) / 4096);
}

TEST(Fiber, TheSanitizerIsNoticed) { EXPECT_EQ(SWORDFISH_ASAN == 1, &__asan_address_is_poisoned != nullptr); }

#if SWORDFISH_ASAN
TEST(Fiber, AStackThatIsUsedAgainHasNoRedZones) {
  emu::StackPool& pool = emu::StackPool::mine();
  const emu::Stack stack = pool.take();
  ASAN_POISON_MEMORY_REGION(stack.base + 4096, 64);
  pool.give(stack);
  const emu::Stack again = pool.take();
  EXPECT_EQ(again.base, stack.base);
  EXPECT_EQ(__asan_region_is_poisoned(again.base, again.size), nullptr);
  pool.give(again);
}

TEST(Fiber, TheSanitizerKnowsTheStackOfEachLane) {
  void* const outside = __asan_get_current_fake_stack();
  std::set<std::pair<std::uint32_t, void*>> inside;  // with the block: one that has ended leaves its memory to the next
  const emu::Outcome o = run([&] {
    in_deep_frame(64, [](std::byte* p) {
      for (int i = 0; i < 2; ++i) {
        char name[64] = "";
        void* start = nullptr;
        std::size_t size = 0;
        EXPECT_STREQ(__asan_locate_address(p, name, sizeof name, &start, &size), "stack");
        bar_sync(0);
      }
    });
    inside.emplace(ctaid_x(), __asan_get_current_fake_stack());
    bar_sync(0);
  });
  ASSERT_FALSE(o.fault) << o.fault->message();
  EXPECT_EQ(__asan_get_current_fake_stack(), outside);
  if (outside != nullptr) {  // detect_stack_use_after_return
    EXPECT_EQ(inside.size(), 512u);
    for (const auto& [block, fake_stack] : inside) EXPECT_NE(fake_stack, outside);
  }
}

TEST(FiberDeathTest, TheSanitizerFindsAFaultOnTheStackOfALane) {
  EXPECT_DEATH(run([] {
                 bar_sync(0);
                 in_deep_frame(64, [](std::byte* p) { *static_cast<volatile std::byte*>(p + 64) = std::byte{1}; });
               }),
               "dynamic-stack-buffer-overflow");
}
#endif

}  // namespace
}  // namespace swordfish
