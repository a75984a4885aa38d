// Slices as runs of bytes, against a mask of every byte; ranks that together hold everything once.
#include "load/slices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "load/ranks.h"

namespace swordfish {
namespace {

// Which bytes the ranges select, index by index.
std::vector<bool> mask(const std::vector<std::int64_t>& shape, std::uint64_t element, const std::vector<AxisRange>& ranges) {
  std::vector<bool> out;
  std::vector<std::int64_t> index(shape.size(), 0);
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    bool in = true;
    for (const AxisRange& r : ranges) in = in && index[r.axis] >= r.begin && index[r.axis] < r.end;
    out.insert(out.end(), element, in);
  }
  return out;
}

TEST(Slices, RunsAreTheMask) {
  std::mt19937_64 random(std::random_device{}());
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int64_t> shape(1 + random() % 4);
    for (std::int64_t& dim : shape) dim = 1 + static_cast<std::int64_t>(random() % 6);
    const std::uint64_t element = 1 + random() % 4;
    std::vector<AxisRange> ranges;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (random() % 2 == 0) continue;
      const auto begin = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape[d]));
      ranges.push_back({d, begin, begin + 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape[d] - begin))});
    }
    std::vector<bool> expected = mask(shape, element, ranges);
    const auto runs = slice_runs(shape, expected.size(), ranges, 0);
    std::vector<bool> found(expected.size(), false);
    std::uint64_t end = 0;
    for (const io::ByteRange& run : runs) {
      ASSERT_TRUE(end == 0 || run.offset > end) << "runs touch";
      for (std::uint64_t b = run.offset; b < run.end(); ++b) found[b] = true;
      end = run.end();
    }
    ASSERT_EQ(found, expected);
    // Short runs: from the first byte to the last.
    const auto joined = slice_runs(shape, expected.size(), ranges, 1 << 20);
    ASSERT_EQ(joined.size(), 1u);
    EXPECT_EQ(joined[0].offset, runs.front().offset);
    EXPECT_EQ(joined[0].end(), runs.back().end());
  }
}

TEST(Slices, BytesThatTheShapeDoesNotDivideAreWhole) {
  const std::vector<std::int64_t> shape{3, 5};
  const std::vector<AxisRange> one{{0, 1, 2}};
  EXPECT_EQ(slice_runs(shape, 8, one, 0), (std::vector<io::ByteRange>{{0, 8}}));
  EXPECT_TRUE(slice_runs(shape, 0, one, 0).empty());
  EXPECT_TRUE(slice_runs(shape, 15, std::vector<AxisRange>{{0, 2, 2}}, 0).empty());
}

LayerInfo layer(const char* name, std::int64_t n, std::int64_t k, std::int64_t group) {
  LayerInfo info;
  info.name = name;
  info.k_first = true;
  info.n = n;
  info.k = k;
  info.group_size = group;
  return info;
}

// Square tensors, whose shape does not tell which axis is which: k_proj of Llama-3 70B in GPTQ (K = 8 N) and NVFP4 (K = 2 N), AWQ
// with N = 8 K.
TEST(Slices, AxesOfSquareTensors) {
  const std::vector<std::int64_t> square{64, 64};
  LayerInfo info = layer("k_proj", 64, 512, 128);
  const TensorAxes gptq = axes_of(info, "k_proj.qweight", square);
  EXPECT_EQ(gptq.k_axis, 0);
  EXPECT_EQ(gptq.k_step, 8);
  EXPECT_EQ(gptq.n_axis, 1);
  EXPECT_EQ(gptq.n_step, 1);
  info = layer("k_proj", 512, 64, 32);
  const TensorAxes awq = axes_of(info, "k_proj.qweight", square);
  EXPECT_EQ(awq.k_axis, 0);
  EXPECT_EQ(awq.k_step, 1);
  EXPECT_EQ(awq.n_axis, 1);
  EXPECT_EQ(awq.n_step, 8);
  for (const bool k_first : {false, true}) {
    info = layer("k_proj", 64, 128, 16);
    info.k_first = k_first;
    const TensorAxes nvfp4 = axes_of(info, "k_proj.weight", square);
    EXPECT_EQ(nvfp4.k_axis, k_first ? 0 : 1);
    EXPECT_EQ(nvfp4.k_step, 2);
    EXPECT_EQ(nvfp4.n_axis, k_first ? 1 : 0);
    EXPECT_EQ(nvfp4.n_step, 1);
  }
}

// 29568 = 231 · 128: 231 groups over 2, 4, 8 ranks; 10944 and 2880 do not divide by 128.
TEST(Ranks, TogetherHoldEverythingOnceAtGroupBoundaries) {
  for (const std::int64_t k : {29568, 10944, 2880, 1368, 704, 4096}) {
    for (const std::int64_t group : {std::int64_t{32}, std::int64_t{48}, std::int64_t{64}, std::int64_t{128}, k}) {
      for (const int ranks : {1, 2, 3, 4, 8}) {
        std::int64_t at_k = 0, at_n = 0;
        int biases = 0;
        bool refused = false;
        for (int r = 0; r < ranks; ++r) {
          const auto row = cut_layer(layer("model.layers.0.mlp.down_proj", 344, k, group), {r, ranks, false});
          const auto column = cut_layer(layer("model.layers.0.mlp.up_proj", k, 344, group), {r, ranks, false});
          ASSERT_TRUE(column.ok());
          EXPECT_EQ(column->rows.front().n0, at_n);
          EXPECT_EQ(column->k, 344);
          at_n += column->n;
          refused = refused || !row.ok();
          if (!row.ok()) continue;
          EXPECT_EQ(row->k0, at_k);
          EXPECT_EQ(row->k0 % (group == k ? 64 : group), 0);
          EXPECT_EQ(row->k0 % 16, 0);
          EXPECT_EQ(row->n, 344);
          at_k += row->k;
          biases += row->bias;
        }
        EXPECT_EQ(at_n, k);
        if (refused) continue;  // fewer groups than ranks
        EXPECT_EQ(at_k, k) << group << " " << ranks;
        EXPECT_EQ(biases, 1) << "a row-parallel bias is added once";
      }
    }
  }
}

TEST(Ranks, FewerGroupsThanRanksAreRefusedByName) {
  bool refused = false;
  for (int r = 0; r < 8; ++r) {
    const auto cut = cut_layer(layer("model.layers.0.mlp.down_proj", 64, 512, 128), {r, 8, false});
    if (cut.ok()) continue;
    refused = true;
    EXPECT_EQ(cut.status().code(), Code::unsupported);
    EXPECT_NE(cut.status().message().find("down_proj"), std::string::npos);
  }
  EXPECT_TRUE(refused);
}

TEST(Slices, RunsAreMerged) {
  EXPECT_EQ(merge_runs({{30, 5}, {0, 10}, {8, 4}, {12, 3}, {16, 1}}), (std::vector<io::ByteRange>{{0, 15}, {16, 1}, {30, 5}}));
  EXPECT_TRUE(merge_runs({}).empty());
}

TEST(Ranks, SeveralProjectionsAreCutEach) {
  LayerInfo qkv = layer("model.layers.0.self_attn.qkv_proj", 48 * 16, 256, 128);
  qkv.projections = {{"q", 32 * 16, 32}, {"k", 8 * 16, 8}, {"v", 8 * 16, 8}};
  LayerInfo mlp = layer("model.layers.0.mlp.gate_up_proj", 2 * 90, 256, 128);
  mlp.projections = {{"gate", 90, 0}, {"up", 90, 0}};
  for (const LayerInfo& info : {qkv, mlp}) {
    for (const int ranks : {2, 4, 8}) {
      std::vector<int> held(static_cast<std::size_t>(info.n), 0);
      std::vector<std::int64_t> next;  // row of each projection
      std::int64_t first = 0;
      for (const auto& projection : info.projections) {
        next.push_back(first);
        first += projection.n;
      }
      for (int r = 0; r < ranks; ++r) {
        const auto cut = cut_layer(info, {r, ranks, false});
        ASSERT_TRUE(cut.ok()) << cut.status().message();
        ASSERT_EQ(cut->rows.size(), info.projections.size());
        std::int64_t n = 0;
        for (std::size_t p = 0; p < cut->rows.size(); ++p) {
          EXPECT_EQ(cut->rows[p].n0, next[p]) << "each projection's rows in order";
          next[p] += cut->rows[p].n;
          n += cut->rows[p].n;
          if (info.projections[p].heads > 0) {
            EXPECT_EQ(cut->rows[p].n, info.projections[p].n / ranks) << "whole heads";
          }
          for (std::int64_t i = 0; i < cut->rows[p].n; ++i) ++held[static_cast<std::size_t>(cut->rows[p].n0 + i)];
        }
        EXPECT_EQ(cut->n, n);
        EXPECT_EQ(cut->k, info.k);
      }
      EXPECT_EQ(held, std::vector<int>(held.size(), 1)) << "every row once";
    }
  }
  EXPECT_EQ(cut_layer(qkv, {0, 3, false}).status().code(), Code::unsupported) << "8 heads for 3 ranks";
  mlp.projections = {{"gate", 1, 0}, {"up", 1, 0}};
  mlp.n = 2;
  EXPECT_EQ(cut_layer(mlp, {0, 2, false}).status().code(), Code::unsupported) << "one row for 2 ranks";
}

TEST(Ranks, ProjectionsOfUnknownSizesAreRefused) {
  EXPECT_FALSE(cut_layer(layer("model.layers.0.self_attn.qkv_proj", 768, 256, 128), {0, 2, false}).ok());
  EXPECT_TRUE(cut_layer(layer("model.layers.0.self_attn.qkv_proj", 768, 256, 128), {0, 1, false}).ok());
  LayerInfo experts = layer("model.layers.0.mlp.experts.gate_up_proj", 768, 256, 32);
  experts.experts = 4;
  EXPECT_FALSE(cut_layer(experts, {0, 2, false}).ok());
  EXPECT_TRUE(cut_layer(experts, {0, 2, true}).ok()) << "whole experts need no cut";
}

TEST(Ranks, ExpertsAreDealtOutOnce) {
  std::vector<LayerInfo> layers;
  for (int e = 0; e < 7; ++e) layers.push_back(layer(fmt::format("model.layers.0.mlp.experts.{}.up_proj", e).c_str(), 64, 64, 16));
  layers.push_back(layer("model.layers.0.self_attn.o_proj", 64, 64, 16));
  std::vector<int> holders(layers.size(), 0);
  for (int r = 0; r < 3; ++r) {
    const std::vector<bool> held = held_layers(layers, {r, 3, true});
    for (std::size_t i = 0; i < held.size(); ++i) holders[i] += held[i];
  }
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(holders[i], 1);
  EXPECT_EQ(holders[7], 3) << "what is no expert belongs to every rank";
}

}  // namespace
}  // namespace swordfish
