// The layout mma64/1: golden words, golden blocks, and the invariants that kernels rely on.
#include "pack/mma64.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "pack/synthetic.h"
#include "pack/tile.h"

namespace swordfish {
namespace {

using test::slow_block;

std::uint32_t word(const std::vector<std::uint8_t>& block, int byte) {
  std::uint32_t w = 0;
  std::memcpy(&w, block.data() + byte, 4);
  return w;
}

// Packs one 64 x block_k tile through the fast path.
template <class Q>
std::vector<std::uint8_t> fast_block(CodeType code, Q q) {
  const int bits = code == CodeType::int8 ? 8 : 4;
  const std::size_t width = static_cast<std::size_t>(mma64::block_k(bits));
  std::vector<std::uint8_t> tile(64 * width), out(2048);
  for (std::size_t n = 0; n < 64; ++n) {
    for (std::size_t k = 0; k < width; ++k)
      tile[n * width + k] = static_cast<std::uint8_t>(q(static_cast<int>(n), static_cast<int>(k)));
  }
  pack_blocks(bits, tile.data(), width, 1, out.data());
  return out;
}

constexpr auto kInt4 = [](int n, int k) { return (3 * n + k) % 16; };
constexpr auto kInt8 = [](int n, int k) { return (7 * n + k) % 256; };
constexpr auto kFp4 = [](int n, int k) { return (5 * n + 3 * k + n * k / 7) % 16; };

TEST(Mma64, GoldenWordsOfInt4) {
  for (const auto& block : {fast_block(CodeType::int4, kInt4), slow_block(CodeType::int4, kInt4)}) {
    EXPECT_EQ(word(block, 16 * 0 + 4 * 0), 0x19910880u);
    EXPECT_EQ(word(block, 16 * 5 + 4 * 2), 0x6EE65DD5u);
    EXPECT_EQ(word(block, 16 * 31 + 4 * 3), 0xC44CB33Bu);
  }
}

TEST(Mma64, GoldenWordsOfInt8) {
  for (const auto& block : {fast_block(CodeType::int8, kInt8), slow_block(CodeType::int8, kInt8)}) {
    EXPECT_EQ(word(block, 16 * 0), 0x09010800u);
    EXPECT_EQ(word(block, 16 * 5 + 4 * 2), 0x827A8179u);
    EXPECT_EQ(word(block, 512 + 16 * 31 + 4 * 3), 0xC8C0C7BFu);
  }
}

TEST(Mma64, HelpersAgreeWithTheFormula) {
  std::mt19937_64 random(1);
  for (const CodeType code : {CodeType::int4, CodeType::int8, CodeType::fp4}) {
    const int bits = code == CodeType::int8 ? 8 : 4;
    std::vector<std::uint8_t> q(64 * 64);
    for (auto& c : q) c = static_cast<std::uint8_t>(random() % (1u << bits));
    const auto at = [&](int n, int k) { return q[static_cast<std::size_t>(64 * n + k)]; };
    const auto block = slow_block(code, at);
    ASSERT_EQ(block.size(), 2048u);
    EXPECT_EQ(fast_block(code, at), block);
    for (int n = 0; n < 64; ++n) {
      for (int k = 0; k < mma64::block_k(bits); ++k) ASSERT_EQ(mma64::code_at(block.data(), bits, n, k), at(n, k)) << n << ' ' << k;
    }
  }
}

// A lane's codes of one sub-tile (half) are 16 neighbouring bytes, and lane l's bytes follow lane l-1's: a warp's access covers 512
// bytes once, which is free of bank conflicts in shared memory (each quarter-warp touches all 32 banks once).
TEST(Mma64, OneAccessOfSixteenBytesALane) {
  for (const int bits : {4, 8}) {
    std::set<int> seen;
    for (int n = 0; n < 64; ++n) {
      for (int k = 0; k < mma64::block_k(bits); ++k) {
        const int byte = bits == 8 ? mma64::byte8(n, k) : mma64::nibble4(n, k).byte;
        const int nibble = bits == 8 ? 0 : mma64::nibble4(n, k).shift;
        EXPECT_EQ(byte % 512 / 16, mma64::lane(n, k));
        const int part = bits == 8 ? 2 * (k / 16) + n / 32 : k / 16;
        EXPECT_EQ(byte / 512, part);
        EXPECT_TRUE(seen.insert(2 * byte + nibble / 4).second);
      }
    }
    EXPECT_EQ(seen.size(), bits == 8 ? 2048u : 4096u);  // every code has a place of its own and no place is left over
  }
  for (int quarter = 0; quarter < 4; ++quarter) {
    std::set<int> banks;
    for (int lane = 8 * quarter; lane < 8 * quarter + 8; ++lane) {
      for (int w = 0; w < 4; ++w) banks.insert((16 * lane + 4 * w) / 4 % 32);
    }
    EXPECT_EQ(banks.size(), 32u);
  }
}

// No shuffle: what a lane reads is what mma.sync m16n8k16 wants of it. B fragment (16 k x 8 n) of lane 4g+t: b0 = k 2t, 2t+1, b1 =
// k 2t+8, 2t+9, all of column n = g. A fragment (16 n-rows x 16 k): a0 = (g, 2t..), a1 = (g+8, 2t..), a2 = (g, 2t+8..), a3 = (g+8,
// 2t+8..).
TEST(Mma64, NeedsNoShuffle) {
  std::mt19937_64 random(2);
  std::vector<std::uint8_t> q(64 * 64);
  for (auto& c : q) c = static_cast<std::uint8_t>(random() % 16);
  const auto at = [&](int n, int k) { return static_cast<std::uint32_t>(q[static_cast<std::size_t>(64 * n + k)]); };
  const auto pair = [&](int n, int k) { return at(n, k) | at(n, k + 1) << 16; };
  const auto block = fast_block(CodeType::int4, at);
  for (int s = 0; s < 4; ++s) {
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t w = word(block, 512 * s + 16 * lane + 4 * j);
        const auto i = [&](int shift) { return w >> (4 * shift) & 0x000f000fu; };
        const int n = 16 * j + g, k = 16 * s + 2 * t;
        EXPECT_EQ(i(0), pair(n, k));          // b0 of rows g; a0
        EXPECT_EQ(i(1), pair(n, k + 8));      // b1 of rows g; a2
        EXPECT_EQ(i(2), pair(n + 8, k));      // b0 of rows g+8; a1
        EXPECT_EQ(i(3), pair(n + 8, k + 8));  // b1 of rows g+8; a3
      }
    }
  }
  for (auto& c : q) c = static_cast<std::uint8_t>(random() % 256);
  const auto block8 = fast_block(CodeType::int8, at);
  for (int s = 0; s < 2; ++s) {
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int j = 0; j < 4; ++j) {
        for (int r = 0; r < 2; ++r) {
          const std::uint32_t w = word(block8, 1024 * s + 512 * (j / 2) + 16 * lane + 4 * (2 * (j % 2) + r));
          EXPECT_EQ(w & 0x00ff00ffu, pair(16 * j + g + 8 * r, 16 * s + 2 * t));
          EXPECT_EQ(w >> 8 & 0x00ff00ffu, pair(16 * j + g + 8 * r, 16 * s + 2 * t + 8));
        }
      }
    }
  }
}

// A block is copyable as raw bytes: it is one run of 2,048 bytes that starts at a multiple of 2,048, and its content does not
// depend on where it lies.
TEST(Mma64, ABlockIsOneRunOfBytes) {
  EXPECT_EQ(mma64::block_offset(0, 0, 7), 0);
  EXPECT_EQ(mma64::block_offset(2, 3, 7), 2048 * 17);
  EXPECT_EQ(mma64::block_offset(1'000'000, 5, 1'000), 2048 * std::int64_t{1'000'000'005});
  std::mt19937_64 random(3);
  for (const int bits : {4, 8}) {
    const auto width = static_cast<std::size_t>(mma64::block_k(bits));
    std::vector<std::uint8_t> tile(64 * 3 * width), three(3 * 2048), one(2048);
    for (auto& c : tile) c = static_cast<std::uint8_t>(random() % (1u << bits));
    pack_blocks(bits, tile.data(), 3 * width, 3, three.data());
    for (std::size_t b = 0; b < 3; ++b) {
      pack_blocks(bits, tile.data() + b * width, 3 * width, 1, one.data());
      EXPECT_EQ(std::memcmp(one.data(), three.data() + 2048 * b, 2048), 0);
    }
  }
}

// Whole blocks, written once by a program of its own from the design's formula: they never change.
TEST(Mma64, GoldenBlocks) {
  const auto check = [](CodeType code, auto q) {
    std::ifstream file(std::string(SWORDFISH_TEST_DATA "/mma64/").append(name(code)) + ".bin", std::ios::binary);
    const std::vector<std::uint8_t> golden{std::istreambuf_iterator<char>(file), {}};
    ASSERT_EQ(golden.size(), 2048u);
    EXPECT_EQ(fast_block(code, q), golden);
    EXPECT_EQ(slow_block(code, q), golden);
  };
  check(CodeType::int4, kInt4);
  check(CodeType::int8, kInt8);
  check(CodeType::fp4, kFp4);
}

}  // namespace
}  // namespace swordfish
