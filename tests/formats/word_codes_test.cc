// GPTQ and AWQ code sources against the formulas of formats.md, for ranges that take the wide paths, the narrow ones and both.
#include "formats/word_codes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/integer_models.h"

namespace swordfish {
namespace {

std::shared_ptr<const Buffer> buffer(const std::string& bytes, std::size_t offset) {
  auto out = std::make_shared<Buffer>(offset + bytes.size());
  std::memset(out->data(), 0xee, offset);
  std::memcpy(out->data() + offset, bytes.data(), bytes.size());
  return out;
}

void check_ranges(const CodeSource& codes, IntMatrix m) {
  std::mt19937 random(7);
  const auto pick = [&](std::int64_t limit) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit)); };
  constexpr std::size_t stride = 200;
  for (int round = 0; round < 400; ++round) {
    std::int64_t n0 = pick(m.n), k0 = pick(m.k);
    if (round % 2 == 0) {
      n0 = n0 / 8 * 8;
      k0 = k0 / 16 * 16;
    }
    const std::int64_t n = 1 + pick(std::min<std::int64_t>(90, m.n - n0)), k = 1 + pick(std::min<std::int64_t>(190, m.k - k0));
    std::vector<std::uint8_t> out(static_cast<std::size_t>(n) * stride, 0xee);
    codes.read(n0, n, k0, k, out.data(), stride);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < static_cast<std::int64_t>(stride); ++j) {
        const int want = j < k ? m.code(n0 + i, k0 + j) : 0xee;
        ASSERT_EQ(out[static_cast<std::size_t>(i) * stride + static_cast<std::size_t>(j)], want)
            << "n " << n0 << "+" << i << " k " << k0 << "+" << j;
      }
    }
  }
}

TEST(WordCodes, Gptq) {
  for (const int bits : {4, 8}) {
    const IntMatrix m = random_matrix(107, 333, 333, bits, 8, 1);
    auto tensors = gptq_tensors("m", m, [](int zero) { return zero; });
    const auto codes = gptq_codes(buffer(find(tensors, "qweight").bytes, 4), 4, m.n, bits);
    check_ranges(*codes, m);
  }
}

TEST(WordCodes, Awq) {
  const IntMatrix m = random_matrix(104, 331, 331, 4, 8, 2);
  auto tensors = awq_tensors("m", m);
  check_ranges(*awq_codes(buffer(find(tensors, "qweight").bytes, 12), 12, m.n), m);
}

TEST(WordCodes, GoldenWords) {
  // formats.md 2.2: q = 1..8 for k = 0..7 is 0x87654321; 3.2: q = 1..8 for n = 0..7 is 0x86427531.
  std::uint8_t out[8];
  const auto gptq = gptq_codes(buffer(raw(std::vector<std::uint32_t>{0x87654321}), 0), 0, 1, 4);
  gptq->read(0, 1, 0, 8, out, 8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[i], i + 1);
  const auto awq = awq_codes(buffer(raw(std::vector<std::uint32_t>{0x86427531}), 0), 0, 8);
  awq->read(0, 8, 0, 1, out, 1);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[i], i + 1);
}

TEST(WordCodes, UnpackWords) {
  std::uint8_t out[6];
  const std::vector<std::uint32_t> words = {0x777776F7};
  unpack_words(reinterpret_cast<const std::byte*>(words.data()), 1, 1, 6, 4, nullptr, 0x11111111u, out);
  const std::uint8_t zeros[] = {8, 0, 8, 8, 8, 8};
  EXPECT_EQ(std::memcmp(out, zeros, 6), 0);
}

}  // namespace
}  // namespace swordfish
