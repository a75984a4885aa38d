// Checkpoint: what a path may be, what stays readable when something is refused, and checks across modules.
#include "swordfish/checkpoint.h"

#include <gtest/gtest.h>

#include "formats/integer_models.h"

namespace swordfish {
namespace {

const std::string kConfig = "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":true}";

void add(std::vector<TestTensor>& tensors, const std::string& module, std::int64_t n = 16, int bits = 4, int zero = -1) {
  const IntMatrix m = random_matrix(n, 64, 32, bits, zero < 0 ? 1 << (bits - 1) : zero, 1);
  append(tensors, gptq_tensors(module, m, [](int z) { return z - 1; }));
}

TEST(Checkpoint, FoldersFilesAndStrangers) {
  std::vector<TestTensor> tensors;
  add(tensors, "model.layers.0.mlp.down_proj");
  const ModelFolder folder(kConfig, tensors);
  EXPECT_TRUE(Checkpoint::open(folder.path()).ok());
  EXPECT_TRUE(Checkpoint::open(folder.path() + "///").ok());
  EXPECT_TRUE(Checkpoint::open(folder.path() + "/model.safetensors").ok());
  EXPECT_EQ(Checkpoint::open(folder.path() + "/nothing").status().code(), Code::io);
  const TempFolder packed;
  const std::string header = R"({"__metadata__":{"swordfish.layout":"mma64/1"}})";
  packed.write("model.safetensors", raw(std::vector<std::uint64_t>{header.size()}) + header);
  const Status not_a_checkpoint = Checkpoint::open(packed.root()).status();
  EXPECT_EQ(not_a_checkpoint.code(), Code::invalid_argument);
  EXPECT_NE(not_a_checkpoint.message().find("packed weights"), std::string::npos) << not_a_checkpoint.message();
  folder.write_config("notes.txt", "hello");
  expect_refused(Checkpoint::open(folder.path() + "/notes.txt").status(), {"notes.txt", "GGUF", ".safetensors"});
}

TEST(Checkpoint, ListsWhatItFinds) {
  std::vector<TestTensor> tensors;
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) add(tensors, "model.layers.0.self_attn." + std::string(part));
  add(tensors, "model.layers.0.mlp.up_proj");  // no gate beside it
  tensors.push_back({"model.layers.0.self_attn.k_proj.k_scale", "F32", {}, std::string(4, '\0')});
  tensors.push_back(plain("lm_head", 8, 64));
  const auto checkpoint = Checkpoint::open(ModelFolder(kConfig, tensors).path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->scheme(), "gptq");
  ASSERT_EQ(checkpoint->layers().size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(checkpoint->layers()[i].fused_into, "model.layers.0.self_attn.qkv_proj");
    EXPECT_EQ(checkpoint->layers()[i].fused_index, static_cast<int>(i));
  }
  EXPECT_TRUE(checkpoint->layers()[3].fused_into.empty());
  EXPECT_EQ(checkpoint->unquantized(), std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(checkpoint->tensors().size(), tensors.size());
  EXPECT_EQ(checkpoint->hf_name(0).name, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(checkpoint->load(9).status().code(), Code::invalid_argument);
  EXPECT_EQ(checkpoint->load(0, 1).status().code(), Code::invalid_argument);
  EXPECT_EQ(checkpoint->load_bias(0, -1).status().code(), Code::invalid_argument);
  EXPECT_TRUE(checkpoint->read(checkpoint->tensors()[0]).ok());
  TensorInfo stranger = checkpoint->tensors()[0];
  stranger.name = "stranger";
  EXPECT_EQ(checkpoint->read(stranger).status().code(), Code::invalid_argument);
}

// Exports with tied embeddings leave lm_head out or not, and say so or not: the tensors decide.
TEST(Checkpoint, TiedHeadsAreWhatTheTensorsSay) {
  for (const char* tied : {"true", "false"}) {
    for (const std::string_view head : {"", "plain", "quantized"}) {
      std::vector<TestTensor> tensors;
      add(tensors, "model.layers.0.mlp.down_proj");
      tensors.push_back(plain("model.embed_tokens", 16, 64));
      if (head == "plain") tensors.push_back(plain("lm_head", 16, 64));
      if (head == "quantized") add(tensors, "lm_head");
      const ModelFolder folder(kConfig, tensors);
      folder.write_config("config.json",
                          "{\"tie_word_embeddings\":" + std::string(tied) + ",\"quantization_config\":" + kConfig + "}");
      const auto checkpoint = Checkpoint::open(folder.path());
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
      EXPECT_EQ(checkpoint->layers().size(), head == "quantized" ? 2u : 1u);
      EXPECT_EQ(checkpoint->unquantized().size(), head == "plain" ? 2u : 1u);
    }
  }
}

TEST(Checkpoint, PartialKeepsWhatIsSound) {
  std::vector<TestTensor> tensors;
  add(tensors, "model.layers.0.mlp.down_proj");
  add(tensors, "model.layers.1.mlp.down_proj");
  drop(tensors, "layers.0.mlp.down_proj.scales");
  Status problem;
  const Checkpoint checkpoint = Checkpoint::open_partial(ModelFolder(kConfig, tensors).path(), {}, problem);
  expect_refused(problem, {"layers.0.mlp.down_proj.scales"});
  ASSERT_EQ(checkpoint.layers().size(), 1u);
  EXPECT_EQ(checkpoint.layers()[0].name, "model.layers.1.mlp.down_proj");
  EXPECT_EQ(checkpoint.tensors().size(), 7u);
}

TEST(Checkpoint, Row30PartsOfFusedModules) {
  const std::string attn = "model.layers.0.self_attn.";
  std::vector<TestTensor> plain_part;
  add(plain_part, attn + "q_proj");
  add(plain_part, attn + "v_proj");
  plain_part.push_back(plain(attn + "k_proj", 16, 64));
  expect_refused(ModelFolder(kConfig, plain_part).status(), {attn + "qkv_proj", "k_proj: plain BF16", "q_proj: gptq int4"});
  std::vector<TestTensor> bits;
  add(bits, attn + "q_proj");
  add(bits, attn + "k_proj", 16, 8);
  add(bits, attn + "v_proj");
  const std::string rule = kConfig.substr(0, kConfig.size() - 1) + ",\"dynamic\":{\".*k_proj\":{\"bits\":8}}}";
  expect_refused(ModelFolder(rule, bits).status(), {attn + "qkv_proj", "k_proj: gptq int8", "q_proj: gptq int4"});
  std::vector<TestTensor> sym;
  add(sym, "m.mlp.gate_proj");
  add(sym, "m.mlp.up_proj", 16, 4, 3);
  const std::string asym = kConfig.substr(0, kConfig.size() - 1) + ",\"dynamic\":{\".*up_proj\":{\"sym\":false}}}";
  expect_refused(ModelFolder(asym, sym).status(), {"m.mlp.gate_up_proj", "asymmetric"});
}

// Different g_idx is no reason to refuse (row 39): the parts are sound by themselves.
TEST(Checkpoint, PartsWithDifferentGIdxLoad) {
  std::vector<TestTensor> tensors;
  add(tensors, "m.mlp.gate_proj");
  add(tensors, "m.mlp.up_proj");
  std::vector<std::int32_t> rows(64, 0);
  std::fill(rows.begin(), rows.begin() + 32, 1);
  find(tensors, "up_proj.g_idx").bytes = raw(rows);
  EXPECT_TRUE(ModelFolder(kConfig, tensors).status().ok());
}

TEST(Checkpoint, Row42Experts) {
  const std::string moe = "model.layers.0.mlp.experts.";
  const auto model = [&](int count, int without, std::int64_t odd_n = 16) {
    std::vector<TestTensor> tensors;
    for (int e = 0; e < count; ++e) {
      if (e == without) continue;
      for (const char* leaf : {"gate_proj", "up_proj", "down_proj"}) {
        add(tensors, moe + std::to_string(e) + "." + leaf, e == 1 ? odd_n : 16);
      }
    }
    return tensors;
  };
  EXPECT_TRUE(ModelFolder(kConfig, model(3, -1)).status().ok());
  expect_refused(ModelFolder(kConfig, model(3, 1)).status(), {"model.layers.0.mlp.experts", "expert 1 is missing", "3 experts"});
  expect_refused(ModelFolder(kConfig, model(3, 0)).status(), {"expert 0 is missing"});
  expect_refused(ModelFolder(kConfig, model(3, -1, 24)).status(), {"expert 1", "[24, 64]", "[16, 64]"});
  // The same N, but another K, or other zero points.
  for (const bool other_k : {true, false}) {
    auto mixed = model(3, 1);
    for (const char* leaf : {"gate_proj", "up_proj", "down_proj"}) {
      const IntMatrix m = random_matrix(16, other_k ? 96 : 64, 32, 4, other_k ? 8 : 3, 1);
      append(mixed, gptq_tensors(moe + "1." + leaf, m, [](int z) { return z - 1; }));
    }
    const std::string rule = kConfig.substr(0, kConfig.size() - 1) + ",\"dynamic\":{\".*experts.1\":{\"sym\":false}}}";
    expect_refused(ModelFolder(other_k ? kConfig : rule, mixed).status(),
                   {"differ", "expert 1", other_k ? "[16, 96]" : "asymmetric"});
  }
  auto leaf = model(3, -1);
  for (const char* name : {"qweight", "qzeros", "scales", "g_idx"}) drop(leaf, "experts.2.down_proj." + std::string(name));
  expect_refused(ModelFolder(kConfig, leaf).status(), {"expert 2 is missing", "experts.2.down_proj"});
  // The last one is missing by the word of the model's configuration.
  const ModelFolder stated(kConfig, model(3, -1));
  stated.write_config("config.json", "{\"num_local_experts\":4,\"quantization_config\":" + kConfig + "}");
  expect_refused(stated.status(), {"expert 3 is missing", "expected 4 experts"});
}

}  // namespace
}  // namespace swordfish
