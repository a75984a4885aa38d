// Buffers, alone and in a slab: apart, aligned, alive as long as they are held, and never past the memory that was given.
#include "base/buffer_slab.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "sanitizer.h"
#include "swordfish/buffer.h"

namespace swordfish {
namespace {

TEST(BufferSlab, BuffersKeepTheirBytesAfterTheSlabAndItsScope) {
  std::mt19937 random(std::random_device{}());
  std::vector<Buffer> buffers;
  {
    BufferSlab slab;
    for (int i = 0; i < 400; ++i) {
      const SlabScope scope(slab);
      Buffer& buffer = buffers.emplace_back(random() % (i % 50 == 0 ? std::size_t{6} << 20 : std::size_t{200} << 10));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % Buffer::alignment, 0u);
      if (!buffer.empty()) std::memset(buffer.data(), i & 0xff, buffer.size());
    }
  }
  std::swap(buffers[3], buffers[5]);
  std::swap(buffers[3], buffers[5]);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (const std::byte b : buffers[i].bytes()) ASSERT_EQ(b, static_cast<std::byte>(i & 0xff));
  }
}

TEST(Buffer, AnySizeIsAlignedAndWhole) {
  for (const std::size_t about :
       {std::size_t{64}, std::size_t{256} << 10, std::size_t{2} << 20, std::size_t{4} << 20, std::size_t{9} << 20}) {
    for (const std::size_t size : {about - 1, about, about + 1, about + 4095}) {
      Buffer buffer(size);
      ASSERT_EQ(buffer.size(), size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % Buffer::alignment, 0u);
      std::memset(buffer.data(), 7, size);
      const Buffer moved = std::move(buffer);
      EXPECT_EQ(moved.data()[0], std::byte{7});
      EXPECT_EQ(moved.data()[size - 1], std::byte{7});
    }
  }
  EXPECT_THROW(Buffer(static_cast<std::size_t>(-1)), std::bad_alloc);
  EXPECT_THROW(Buffer(static_cast<std::size_t>(-1) / 2), std::bad_alloc);
}

std::size_t resident() {  // bytes
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0, pages = 0;
  file >> size >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(Buffer, LargeOnesGiveTheirMemoryBack) {
#if SWORDFISH_ASAN
  GTEST_SKIP() << "the sanitizer keeps what is freed";
#endif
  constexpr std::size_t kSize = std::size_t{1} << 20, kCount = 64;
  Buffer(std::size_t{3} << 20);  // after which malloc maps only what is larger than this, and keeps the rest
  std::vector<Buffer> large, between;
  for (std::size_t i = 0; i < kCount; ++i) {
    std::memset(large.emplace_back(kSize).data(), 1, kSize);
    std::memset(between.emplace_back(std::size_t{4} << 10).data(), 1, std::size_t{4} << 10);
  }
  const std::size_t before = resident();
  large.clear();
  EXPECT_GE(before, resident() + (kCount - 4) * kSize);
}

TEST(BufferSlab, NeighboursLieSideBySide) {
  BufferSlab slab;
  const SlabScope scope(slab);
  const Buffer a(100), b(64), c(1);
  EXPECT_EQ(b.data() - a.data(), 128);
  EXPECT_EQ(c.data() - b.data(), 64);
}

TEST(BufferSlab, GivenMemoryIsFilledAndNotExceeded) {
  Buffer memory(1 << 16);
  BufferSlab slab(std::span(memory.data(), memory.size()));
  const auto inside = [&](const Buffer& b) {
    return b.data() >= memory.data() && b.data() + b.size() <= memory.data() + memory.size();
  };
  const SlabScope scope(slab);
  const Buffer first(60'000), too_large(10'000), second(5'000);
  EXPECT_TRUE(inside(first));
  EXPECT_FALSE(inside(too_large));
  EXPECT_TRUE(inside(second));
}

TEST(BufferSlab, OtherScopesAndThreadsAreNotTouched) {
  BufferSlab outer, inner;
  const SlabScope first(outer);
  const Buffer a(64);
  {
    const SlabScope second(inner);
    const Buffer b(64);
    EXPECT_NE(b.data() - a.data(), 64);
  }
  const Buffer c(64);
  EXPECT_EQ(c.data() - a.data(), 64);
}

}  // namespace
}  // namespace swordfish
