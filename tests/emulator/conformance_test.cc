// The model against recorded hardware: every case of bench/conformance/cases.h, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "bench/conformance/cases.h"
#include "emulator/emulator.h"
#include "emulator/mma.h"

namespace swordfish {
namespace {

using conformance::Case;
using conformance::Word;

std::map<std::string, std::vector<Word>> recorded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::map<std::string, std::vector<Word>> out;
  std::size_t at = 0;
  const auto word = [&] {
    Word v = 0;
    if (at + 4 <= bytes.size()) std::memcpy(&v, bytes.data() + at, 4);
    at += 4;
    return v;
  };
  while (at + 4 <= bytes.size()) {
    const Word length = word();
    const std::string name = bytes.substr(std::min(at, bytes.size()), length);
    at += length;
    std::vector<Word> words(word());
    for (Word& w : words) w = word();
    out.emplace(name, std::move(words));
  }
  return out;
}

TEST(Conformance, HopperBitForBit) {
  const auto hardware = recorded(SWORDFISH_TEST_DATA "/conformance/hopper.bin");
  const std::vector<Case> cases = conformance::cases();
  EXPECT_EQ(hardware.size(), cases.size());
  std::uint64_t seed = 1;
  for (const Case& c : cases) {
    const std::vector<Word> input = conformance::fill(c, seed++);
    const auto found = hardware.find(c.name);
    ASSERT_NE(found, hardware.end()) << c.name;
    emu::Memory memory;
    const auto in = memory.constant<Word>("in", input);
    const auto out = memory.array<Word>("out", found->second.size());
    const emu::Outcome o = emu::launch(c.shape, {.kernel = c.name}, [&] { c.kernel(in, out); });
    ASSERT_FALSE(o.fault) << o.fault->message();
    const std::vector<Word> model = memory.read(out, found->second.size());
    std::size_t different = 0, first = 0;
    for (std::size_t i = model.size(); i-- > 0;) {
      if (model[i] == found->second[i]) continue;
      ++different;
      first = i;
    }
    EXPECT_EQ(different, 0u) << c.name << ": of " << model.size() << " words; the first at " << first << ": model " << std::hex
                             << model[first] << ", hardware " << found->second[first];
  }
}

// The recorded sums tell the summation model from its neighbours: more or fewer bits kept, blocks of 8 or 4.
TEST(Conformance, OtherSummationModelsAreToldApart) {
  const auto hardware = recorded(SWORDFISH_TEST_DATA "/conformance/hopper.bin");
  const std::vector<emu::MmaModel> others = {{16, 0}, {16, 1}, {16, 3}, {8, 0}, {8, 1}, {8, 2}, {8, 3}, {4, 0}, {4, 2}};
  for (const bool bf16 : {true, false}) {
    const std::string name = bf16 ? "mma bf16 cancelling" : "mma f16 cancelling";
    const auto found = hardware.find(name);
    ASSERT_NE(found, hardware.end());
    const std::vector<Case> cases = conformance::cases();
    std::uint64_t seed = 1;
    for (const Case& c : cases) {
      const std::vector<Word> in = conformance::fill(c, seed++);
      if (c.name != name) continue;
      const auto differing = [&](emu::MmaModel model) {
        std::size_t different = 0;
        for (std::size_t tile = 0; tile < c.shape.grid_x; ++tile) {
          std::uint16_t a[16][16], b[8][16];
          float acc[16][8], d[16][8];
          for (std::size_t l = 0; l < 32; ++l) {
            const Word* w = &in[(32 * tile + l) * 10];
            for (std::size_t i = 0; i < 8; ++i)
              a[l / 4 + 8 * (i / 2 % 2)][2 * (l % 4) + 8 * (i / 4) + i % 2] = static_cast<std::uint16_t>(w[i / 2] >> 16 * (i % 2));
            for (std::size_t i = 0; i < 4; ++i) {
              b[l / 4][2 * (l % 4) + 8 * (i / 2) + i % 2] = static_cast<std::uint16_t>(w[4 + i / 2] >> 16 * (i % 2));
              acc[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2] = std::bit_cast<float>(w[6 + i]);
            }
          }
          emu::mma_16x8x16(d, a, b, acc, bf16, model);
          for (std::size_t l = 0; l < 32; ++l)
            for (std::size_t i = 0; i < 4; ++i)
              different +=
                  std::bit_cast<Word>(d[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2]) != found->second[(32 * tile + l) * 4 + i];
        }
        return different;
      };
      EXPECT_EQ(differing(emu::kHopperMma), 0u) << name;
      for (const emu::MmaModel& m : others) EXPECT_GT(differing(m), 10u) << name << " block " << m.block << " extra " << m.extra;
    }
  }
}

}  // namespace
}  // namespace swordfish
