// Our transform against CUTLASS's SFA and SFB at every coordinate, and products that read scales through CUTLASS's layout.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "blockscaled/blockscaled.h"
#include "blockscaled/cutlass_layout.h"
#include "swordfish/checkpoint.h"

namespace swordfish::test {
namespace {

TEST(Cutlass, LayoutsAgreeAtEveryCoordinate) {
  std::int64_t coordinates = 0;
  for (const int v : {16, 32}) {
    for (const int rows : {1, 8, 100, 128, 129, 200, 384}) {
      for (const int k : {v, 3 * v, 4 * v, 5 * v, 8 * v, 17 * v, 64 * v, 90 * v, 4 * v + v / 2}) {
        for (const int batches : {1, 3}) {
          for (const char operand : {'A', 'B'}) {
            const CutlassLayout layout = cutlass_layout(operand, v, rows, k, batches);
            ASSERT_TRUE(layout.constant_in_blocks);
            const std::int64_t s = (k + v - 1) / v, k_atoms = sm1xx::k_atoms(s);
            const std::int64_t batch_bytes = (rows + 127) / 128 * k_atoms * sm1xx::atom_bytes;
            ASSERT_EQ(layout.bytes, batches * batch_bytes);
            // A plane whose scale i is told from all others near it by two passes: low byte and high byte of i.
            std::vector<std::uint8_t> low(static_cast<std::size_t>(batches * rows * s)), high(low.size());
            for (std::size_t i = 0; i < low.size(); ++i)
              low[i] = static_cast<std::uint8_t>(i), high[i] = static_cast<std::uint8_t>(i >> 8);
            Buffer low_atoms(static_cast<std::size_t>(layout.bytes)), high_atoms(low_atoms.size());
            for (std::int64_t l = 0; l < batches; ++l) {
              sm1xx::swizzle_scales(low.data() + l * rows * s, s, rows, s, low_atoms.as<std::uint8_t>() + l * batch_bytes);
              sm1xx::swizzle_scales(high.data() + l * rows * s, s, rows, s, high_atoms.as<std::uint8_t>() + l * batch_bytes);
            }
            for (std::size_t i = 0; i < low.size(); ++i, ++coordinates) {
              const std::int64_t at = layout.offset[i], in_batch = static_cast<std::int64_t>(i) % (rows * s);
              ASSERT_EQ(at, static_cast<std::int64_t>(i) / (rows * s) * batch_bytes +
                                sm1xx::scale_offset(in_batch / s, in_batch % s, k_atoms))
                  << operand << ' ' << v << ' ' << rows << ' ' << k << " scale " << i;
              ASSERT_EQ(low_atoms.as<std::uint8_t>()[at], low[i]);
              ASSERT_EQ(high_atoms.as<std::uint8_t>()[at], high[i]);
            }
          }
        }
      }
    }
  }
  RecordProperty("coordinates", std::to_string(coordinates));
}

// Multiplies through CUTLASS's SFB, then with the packed bytes read as if they were row-major, then with a row-major file's bytes
// read through the layout: [right, control, control].
struct Errors {
  double through_layout, unswizzled;
};
Errors errors(const std::vector<QuantTensor>& parts, std::int64_t m, std::mt19937_64& random) {
  auto packed = pack_blockscaled(parts, "w");
  EXPECT_TRUE(packed.ok()) << packed.status().message();
  const PackedView& v = packed->view;
  const auto x = gaussian(random, m, v.k);
  const auto ref = reference(parts, x, m);
  std::map<std::string, CutlassLayout> layouts;
  for (const PackedPart& part : packed->parts)
    layouts[part.name] = cutlass_layout('B', static_cast<int>(v.group_size), static_cast<int>(part.n), static_cast<int>(v.k), 1);
  const auto through = multiply(v, x, m, [&](const PackedPart& part, std::int64_t n, std::int64_t s) {
    return layouts.at(part.name).offset[static_cast<std::size_t>(n * v.rows + s)];
  });
  const auto unswizzled = multiply(v, x, m, [&](const PackedPart&, std::int64_t n, std::int64_t s) { return n * v.rows + s; });
  return {relative_error(through, ref), relative_error(unswizzled, ref)};
}

constexpr double kLimit = 1e-4;

TEST(Cutlass, ProductsThroughItsLayoutAreRight) {
  std::mt19937_64 random(11);
  struct Shape {
    const char* name;
    std::int64_t n, k;
  };
  for (const std::int64_t group : {16, 32}) {
    for (const Shape shape : {Shape{"down", 4096, 2048}, Shape{"gate", 2048, 4096}}) {
      const QuantTensor t = quantized(shape.name, heavy_tailed(random, shape.n, shape.k), shape.n, shape.k, group);
      std::map<int, std::int64_t> histogram;  // block scales by power of two
      for (std::int64_t n = 0; n < t.n; ++n) {
        for (std::int64_t r = 0; r < t.rows; ++r) {
          const float scale = plane_value(t.scales.type, t.scales.at(n, r));
          if (scale > 0) ++histogram[std::ilogb(scale)];
        }
      }
      std::string text;
      for (const auto& [power, count] : histogram) text += " 2^" + std::to_string(power) + ":" + std::to_string(count);
      EXPECT_GE(histogram.rbegin()->first - histogram.begin()->first, 6) << text;
      const Errors e = errors({t}, 8, random);
      std::printf("%s N=%lld K=%lld per %lld: error %.2g, unswizzled %.2g; block scales%s\n", shape.name,
                  static_cast<long long>(shape.n), static_cast<long long>(shape.k), static_cast<long long>(group), e.through_layout,
                  e.unswizzled, text.c_str());
      EXPECT_LE(e.through_layout, kLimit);
      EXPECT_GE(e.unswizzled, 1000 * kLimit);
    }
  }
}

TEST(Cutlass, FixturesThroughItsLayoutAreRight) {
  std::mt19937_64 random(12);
  int layers = 0, folders = 0;
  for (const std::string& root : {std::string(SWORDFISH_SHARED) + "/fixtures", std::string(SWORDFISH_TEST_DATA) + "/fixtures"}) {
    if (!std::filesystem::is_directory(root)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      std::string path = entry.path().string();
      if (!entry.is_directory()) continue;
      for (const auto& file : std::filesystem::directory_iterator(entry.path()))
        if (file.path().extension() == ".gguf") path = file.path().string();
      const auto checkpoint = Checkpoint::open(path);
      if (!checkpoint.ok()) continue;  // tests/checkpoint says which must open
      ++folders;
      for (std::size_t l = 0; l < checkpoint->layers().size(); ++l) {
        const LayerInfo& info = checkpoint->layers()[l];
        if (info.code != CodeType::fp4) continue;
        for (std::int64_t expert = 0; expert < std::max<std::int64_t>(1, info.experts); ++expert) {
          auto t = checkpoint->load(l, expert);
          if (!t.ok()) continue;
          const Errors e = errors({*t}, 8, random);
          EXPECT_LE(e.through_layout, kLimit) << path << ' ' << info.name;
          if (t->scales.type == DType::f8_e4m3) {
            EXPECT_GE(e.unswizzled, 10 * kLimit) << path << ' ' << info.name;
          }
          ++layers;
        }
      }
    }
  }
  std::printf("%d FP4 matrices of %d checkpoints\n", layers, folders);
  if (std::filesystem::is_directory(std::string(SWORDFISH_SHARED) + "/fixtures")) {
    EXPECT_GT(layers, 100);
  }
}

TEST(Cutlass, GateAndUpWithOtherGlobals) {
  std::mt19937_64 random(13);
  for (const float ratio : {16.0f / 13.0f, 10.0f}) {
    std::vector<QuantTensor> parts;
    for (const char* name : {"gate", "up"}) parts.push_back(quantized(name, heavy_tailed(random, 192, 352), 192, 352, 16));
    parts[1].global.value = parts[0].global.value * ratio;
    const Errors e = errors(parts, 8, random);
    EXPECT_LE(e.through_layout, kLimit);
    EXPECT_GE(e.unswizzled, 1000 * kLimit);
  }
}

}  // namespace
}  // namespace swordfish::test
