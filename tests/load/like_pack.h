// What a load must have made, by the reference way: the whole layer read by its format, sliced, and packed.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "load/ranks.h"
#include "pack/same_weight.h"
#include "swordfish/load.h"

namespace swordfish::test {

inline void make_cold(const std::string& path) {
  const auto drop = [](const std::filesystem::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY);
    if (fd < 0) return;
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  };
  if (!std::filesystem::is_directory(path)) return drop(path);
  for (const auto& file : std::filesystem::directory_iterator(path)) drop(file.path());
}

// What a rank holds of a layer, by the reference way: the whole layer read, sliced and packed.
inline Result<PackedWeight> reference(const Checkpoint& checkpoint, const LayerInfo& info, std::size_t layer, std::int64_t expert,
                                      const Rank& rank) {
  const Result<LayerCut> cut = cut_layer(info, rank);
  if (!cut.ok()) return cut.status();
  Result<QuantTensor> tensor = checkpoint.load(layer, expert);
  if (!tensor.ok()) return tensor.status();
  std::vector<QuantTensor> parts;
  for (const auto& [n0, n] : cut->rows) {
    Result<QuantTensor> part = slice(*tensor, n0, n, 1, cut->k0, cut->k);
    if (!part.ok()) return part.status();
    if (cut->rows.size() > 1) part->name = info.projections[parts.size()].weight_name;
    if (cut->rows.size() > 1 && part->name.ends_with(".weight")) part->name.resize(part->name.size() - 7);
    parts.push_back(std::move(part).value());
  }
  return pack(parts, info.name, 1);
}

// The checkpoint must open; every layer of the model is compared with pack().
inline void expect_like_pack(const std::string& path, const LoadOptions& options) {
  SCOPED_TRACE(path);
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok());
  const Result<LoadedModel> model = load(path, options);
  const Rank rank{options.rank, options.ranks, options.whole_experts};
  bool refused = false;
  for (const LayerInfo& info : checkpoint->layers()) refused = refused || !cut_layer(info, rank).ok();
  if (refused) {
    EXPECT_EQ(model.status().code(), Code::unsupported);
    return;
  }
  for (std::size_t l = 0; l < checkpoint->layers().size() && !model.ok(); ++l) {
    if (checkpoint->load(l).status().message() == model.status().message()) return;  // values that pack refuses too
  }
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->report.unplanned_bytes, 0u) << "the plan foresees every read";
  const std::vector<bool> held = held_layers(checkpoint->layers(), rank);
  std::size_t next = 0;
  std::set<std::string> names;
  for (std::size_t l = 0; l < checkpoint->layers().size(); ++l) {
    const LayerInfo& info = checkpoint->layers()[l];
    names.insert(info.tensors.begin(), info.tensors.end());
    names.insert(info.bias);
    if (!held[l]) continue;
    ASSERT_LT(next, model->layers.size());
    const LoadedLayer& layer = model->layers[next++];
    ASSERT_EQ(layer.name, info.name);
    const auto [first, last] = info.experts == 0 ? std::pair<std::int64_t, std::int64_t>{0, 1} : expert_range(info.experts, rank);
    EXPECT_EQ(layer.first_expert, first);
    ASSERT_EQ(static_cast<std::int64_t>(layer.weights.size()), last - first);
    const LayerCut cut = *cut_layer(info, rank);
    bool any_bias = false;
    for (std::int64_t e = first; e < last; ++e) {
      const Result<PackedWeight> expected = reference(*checkpoint, info, l, e, rank);
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      expect_same(layer.weights[static_cast<std::size_t>(e - first)], *expected);
      const auto bias = *checkpoint->load_bias(l, e);
      any_bias = any_bias || (bias && cut.bias);
    }
    EXPECT_EQ(!layer.bias.empty(), any_bias);
    EXPECT_EQ(layer.bias.capacity() > 0, any_bias) << "a model has layers by the thousand";
    if (!any_bias) continue;
    for (std::int64_t e = first; e < last; ++e) {
      const auto bias = *checkpoint->load_bias(l, e);
      std::vector<float> expected;
      for (const auto& [n0, n] : cut.rows)
        for (std::int64_t i = n0; i < n0 + n; ++i) expected.push_back(bias ? (*bias)[static_cast<std::size_t>(i)] : 0.0f);
      const auto begin = layer.bias.begin() + (e - first) * cut.n;
      EXPECT_EQ(std::vector<float>(begin, begin + cut.n), expected);
    }
  }
  EXPECT_EQ(next, model->layers.size());
  std::size_t plain = 0;
  for (const TensorInfo& info : checkpoint->tensors()) {
    if (names.contains(info.name)) continue;
    ASSERT_LT(plain, model->tensors.size());
    const LoadedTensor& tensor = model->tensors[plain++];
    EXPECT_EQ(tensor.info.name, info.name);
    EXPECT_EQ(tensor.info.type, info.type);
    EXPECT_EQ(tensor.info.shape, info.shape);
    const Result<Buffer> bytes = checkpoint->read(info);
    ASSERT_TRUE(bytes.ok());
    ASSERT_EQ(bytes->size(), tensor.bytes.size());
    EXPECT_TRUE(bytes->empty() || std::memcmp(bytes->data(), tensor.bytes.data(), bytes->size()) == 0) << info.name;
  }
  EXPECT_EQ(plain, model->tensors.size());
}

}  // namespace swordfish::test
