// Ranks of tensors that hold several projections: qkv_proj and gate_up_proj as Phi-3 has them, whose rows (NVFP4) or columns of
// words (GPTQ) are cut in each projection; all ranks together are the whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/safetensors_writer.h"
#include "load/like_pack.h"
#include "swordfish/load.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using test::expect_like_pack;
using test::make_cold;

constexpr std::int64_t kHidden = 256, kHeads = 8, kKvHeads = 4, kHeadSize = 64, kIntermediate = 1056;
constexpr std::int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadSize;

// Writes random values of any tensors that are added.
class Maker {
 public:
  template <class F>
  void add(const std::string& name, DType type, std::vector<std::int64_t> shape, F&& value) {
    std::size_t count = 1;
    for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
    std::vector<std::byte> bytes(count * static_cast<std::size_t>(bits(type)) / 8);
    using T = decltype(value());
    for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
      const T v = value();
      std::memcpy(bytes.data() + at, &v, sizeof v);
    }
    entries_.push_back({name, type, std::move(shape)});
    data_.push_back(std::move(bytes));
  }
  void write(const std::string& path) {
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, false, entries_, {});
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (std::size_t i = 0; i < data_.size(); ++i) ASSERT_TRUE(writer->write(i, 0, data_[i].data(), data_[i].size()).ok());
    ASSERT_TRUE(writer->commit().ok());
  }

  std::mt19937_64 random{std::random_device{}()};

  void add_nvfp4(const std::string& module, std::int64_t n, std::int64_t k) {
    add(module + ".weight", DType::u8, {n, k / 2}, [&] { return static_cast<std::uint8_t>(random()); });
    add(module + ".weight_scale", DType::f8_e4m3, {n, k / 16}, [&] { return static_cast<std::uint8_t>(random() % 0x7f); });
    add(module + ".weight_scale_2", DType::f32, {1}, [&] { return 0.25f + static_cast<float>(random() % 100) / 100; });
  }
  void add_gptq(const std::string& module, std::int64_t n, std::int64_t k) {
    add(module + ".qweight", DType::i32, {k / 8, n}, [&] { return static_cast<std::uint32_t>(random()); });
    add(module + ".qzeros", DType::i32, {k / 128, n / 8}, [&] { return std::uint32_t{0x77777777}; });
    add(module + ".scales", DType::f16, {k / 128, n}, [&] { return static_cast<std::uint16_t>(0x2000 + random() % 0x1000); });
    add(module + ".bias", DType::f16, {n}, [&] { return static_cast<std::uint16_t>(0x3000 + random() % 0x1000); });
  }

 private:
  std::vector<SafetensorsWriter::Entry> entries_;
  std::vector<std::vector<std::byte>> data_;
};

class Projections : public testing::Test {
 protected:
  std::string make(bool gptq, std::string_view heads = R"("num_attention_heads": 8, "num_key_value_heads": 4, )") {
    Maker maker;
    const auto add = [&](const std::string& module, std::int64_t n, std::int64_t k) {
      gptq ? maker.add_gptq(module, n, k) : maker.add_nvfp4(module, n, k);
    };
    for (int l = 0; l < 2; ++l) {
      const std::string layer = fmt::format("model.layers.{}.", l);
      add(layer + "self_attn.qkv_proj", kQkv, kHidden);
      add(layer + "self_attn.o_proj", kHidden, kHeads * kHeadSize);
      add(layer + "mlp.gate_up_proj", 2 * kIntermediate, kHidden);
      add(layer + "mlp.down_proj", kHidden, 1024);
    }
    const std::string folder = folder_.path(fmt::format("model{}", count_++));
    std::filesystem::create_directory(folder);
    maker.write(folder + "/model.safetensors");
    const std::string quantization =
        gptq ? R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true, "desc_act": false})"
             : R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16})";
    folder_.write(fmt::format("model{}/config.json", count_ - 1),
                  fmt::format(R"({{"model_type": "phi3", "hidden_size": 256, {}"head_dim": 64, "quantization_config": {}}})", heads,
                              quantization));
    return folder;
  }
  TempFolder folder_;
  int count_ = 0;
};

TEST_F(Projections, EveryRankHoldsItsRowsOfEach) {
  for (const bool gptq : {false, true}) {
    const std::string path = make(gptq);
    for (const int ranks : {1, 2, 4}) {
      for (int rank = 0; rank < ranks; ++rank) {
        LoadOptions options;
        options.rank = rank;
        options.ranks = ranks;
        options.ring_bytes = 1 << 20;
        options.threads = 2;
        expect_like_pack(path, options);
      }
    }
  }
}

// Every row of the whole is in one rank's part of its projection, in order: the dense values, side by side.
TEST_F(Projections, TheRanksTogetherAreTheWhole) {
  for (const bool gptq : {false, true}) {
    const std::string path = make(gptq);
    const Checkpoint checkpoint = *Checkpoint::open(path);
    const auto dense = [](const PackedWeight& weight) {
      std::vector<std::vector<float>> parts;
      for (std::int64_t p = 0; p < weight.view.n_parts; ++p) {
        const QuantTensor tensor = *unpack(weight.view, p);
        parts.emplace_back(static_cast<std::size_t>(tensor.n * tensor.k));
        dequantize(tensor, 0, tensor.n, parts.back().data(), tensor.k);
      }
      return parts;
    };
    const LoadedModel whole = *load(path);
    std::vector<LoadedModel> models;
    for (int rank = 0; rank < 2; ++rank) {
      LoadOptions options;
      options.rank = rank;
      options.ranks = 2;
      Result<LoadedModel> model = load(path, options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      models.push_back(std::move(model).value());
    }
    int compared = 0;
    for (std::size_t l = 0; l < whole.layers.size(); ++l) {
      const std::vector<LayerInfo::Projection>& projections = checkpoint.layers()[l].projections;
      if (projections.empty()) continue;
      ++compared;
      std::vector<float> together, bias;
      for (std::size_t p = 0; p < projections.size(); ++p) {
        for (const LoadedModel& model : models) {
          const LoadedLayer& layer = model.layers[l];
          ASSERT_EQ(layer.weight_names.size(), projections.size());
          EXPECT_EQ(layer.weight_names[p], projections[p].weight_name);
          const std::vector<std::vector<float>> parts = dense(layer.weights.front());
          together.insert(together.end(), parts[p].begin(), parts[p].end());
          if (layer.bias.empty()) continue;
          const PackedPart& part = layer.weights.front().parts[p];
          bias.insert(bias.end(), layer.bias.begin() + part.n0, layer.bias.begin() + part.n0 + part.n);
        }
      }
      EXPECT_EQ(together, dense(whole.layers[l].weights.front()).front());
      EXPECT_EQ(bias, whole.layers[l].bias);
      EXPECT_EQ(bias.empty(), !gptq);
    }
    EXPECT_EQ(compared, 4);
  }
}

TEST_F(Projections, RowsAreReadToTheByte) {
  const std::string path = make(false);
  LoadOptions options;
  options.layers = "qkv_proj|gate_up_proj";
  options.ranks = 2;
  make_cold(path);
  const Result<LoadedModel> model = load(path, options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  // Codes and scales of half the rows, and a global for each.
  const std::uint64_t row = kHidden / 2 + kHidden / 16;
  EXPECT_EQ(model->report.source_bytes, 2 * (row * (kQkv / 2 + kIntermediate) + 2 * sizeof(float)));
  EXPECT_EQ(model->report.unplanned_bytes, 0u);
  EXPECT_EQ(model->report.strided_bytes, 0u);
}

TEST_F(Projections, AreRefusedByNameWhereTheirRowsAreNotKnown) {
  for (const std::string_view heads : {"", R"("num_attention_heads": 8, )", R"("num_attention_heads": "eight", )"}) {
    const std::string path = make(false, heads);
    LoadOptions options;
    ASSERT_TRUE(load(path, options).ok());
    options.ranks = 2;
    const Result<LoadedModel> model = load(path, options);
    EXPECT_EQ(model.status().code(), Code::unsupported);
    EXPECT_NE(model.status().message().find("qkv_proj"), std::string::npos) << model.status().message();
  }
  LoadOptions options;
  options.ranks = 8;
  EXPECT_NE(load(make(false), options).status().message().find("4 heads"), std::string::npos);
}

}  // namespace
}  // namespace swordfish
