// AWQ reader: values, zero points, what it may leave plain, and the refusals of formats.md section 9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/integer_models.h"

namespace swordfish {
namespace {

std::string awq_config(const std::string& more = ",\"zero_point\":true", int group = 32) {
  return "{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemm\",\"group_size\":" + std::to_string(group) + more + "}";
}
std::vector<TestTensor> model() { return awq_tensors(kModule, random_matrix(16, 64, 32, 4, -1, 3)); }

TEST(Awq, Values) {
  for (const auto& [n, k, group] : {std::tuple{8, 16, 16}, {40, 96, 32}, {104, 336, 48}, {64, 64, -1}}) {
    IntMatrix m = random_matrix(n, k, group == -1 ? k : group, 4, -1, 4);
    m.zero_at(0, 0) = 0;
    m.zero_at(1, 0) = 15;
    expect_values(ModelFolder(awq_config(",\"zero_point\":true", group), awq_tensors(kModule, m)).path(), 0, 0,
                  [&](std::int64_t i, std::int64_t j) { return m.value(i, j); });
  }
}

TEST(Awq, WithoutZeroPoints) {
  const IntMatrix m = random_matrix(16, 64, 32, 4, 8, 5);
  const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
  auto tensors = awq_tensors(kModule, m);
  expect_values(ModelFolder(awq_config(",\"zero_point\":false"), tensors).path(), 0, 0, value);
  drop(tensors, "qzeros");
  const ModelFolder folder(awq_config(",\"zero_point\":false"), tensors);
  expect_values(folder.path(), 0, 0, value);
  EXPECT_EQ(Checkpoint::open(folder.path())->layers()[0].zero, ZeroKind::constant);
  // qzeros that are there are used, whatever the flag says.
  const IntMatrix other = random_matrix(16, 64, 32, 4, 5, 6);
  expect_values(ModelFolder(awq_config(",\"zero_point\":false"), awq_tensors(kModule, other)).path(), 0, 0,
                [&](std::int64_t n, std::int64_t k) { return other.value(n, k); });
}

// formats.md 3.2: there is none. Some writers leave an all-zero one behind; `inspect` tells of it.
TEST(Awq, AStrayGIdxIsAWarning) {
  const IntMatrix m = random_matrix(16, 64, 32, 4, -1, 11);
  const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
  auto tensors = awq_tensors(kModule, m);
  EXPECT_TRUE(Checkpoint::open(ModelFolder(awq_config(), tensors).path())->warnings().empty());
  tensors.push_back({std::string(kModule) + ".g_idx", "I32", {64}, std::string(64 * 4, '\0')});
  const ModelFolder folder(awq_config(), tensors);
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ASSERT_EQ(checkpoint->warnings().size(), 1u);
  EXPECT_THAT(checkpoint->warnings()[0], testing::HasSubstr(std::string(kModule) + ".g_idx"));
  EXPECT_THAT(checkpoint->warnings()[0], testing::HasSubstr("AWQ has no g_idx"));
  expect_values(folder.path(), 0, 0, value);
}

TEST(Awq, AliasesCaseAndOtherFiles) {
  const IntMatrix m = random_matrix(16, 64, 32, 4, -1, 7);
  const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
  expect_values(ModelFolder("{\"Quant_Method\":\"AWQ\",\"w_bit\":4,\"q_group_size\":32,\"zero_point\":true,\"version\":\"GEMM\"}",
                            awq_tensors(kModule, m))
                    .path(),
                0, 0, value);
  // AutoAWQ's own file, without a word in config.json.
  const ModelFolder folder("null", awq_tensors(kModule, m));
  folder.write_config("quant_config.json", "{\"w_bit\":4,\"q_group_size\":32,\"zero_point\":true,\"version\":\"GEMM\"}");
  expect_values(folder.path(), 0, 0, value);
}

TEST(Awq, Rows23To25) {
  const auto refuse = [](const std::string& quantization, const std::vector<std::string>& words) {
    expect_refused(ModelFolder(quantization, model()).status(), words);
  };
  for (const char* version : {"gemv", "gemv_fast", "marlin", "llm-awq"}) {
    refuse("{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"" + std::string(version) + "\"}",
           {version, "gemm"});
  }
  refuse(awq_config(",\"backend\":\"llm-awq\""), {"backend", "llm-awq"});
  refuse(awq_config(",\"format\":\"gemv\""), {"version", "format", "gemv"});  // the two must agree
  refuse(awq_config(",\"pack_dtype\":\"int64\""), {"pack_dtype", "int64"});
  refuse(awq_config(",\"rotation\":\"hadamard\""), {"rotation"});
  refuse(awq_config(",\"dynamic\":{\"-:.*down_proj\":{}}"), {kModule, "excludes", "dynamic"});
  for (const char* same :
       {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"exllama\"}",
        "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"backend\":\"autoawq\",\"pack_dtype\":\"Int32\"}"})
    EXPECT_TRUE(ModelFolder(same, model()).status().ok()) << same;
  for (const int bits : {2, 3, 8}) {
    refuse("{\"quant_method\":\"awq\",\"group_size\":32,\"bits\":" + std::to_string(bits) + "}",
           {"bits " + std::to_string(bits), "4"});
  }
  refuse(awq_config("", 0), {"group_size 0"});
  refuse(awq_config(",\"modules_to_not_convert\":\"lm_head\""), {"modules_to_not_convert", "array"});
  refuse(awq_config(",\"zero_point\":1"), {"zero_point", "boolean"});
}

TEST(Awq, Rows32To36) {
  for (const char* leaf : {"qweight", "qzeros", "scales"}) {
    auto tensors = model();
    drop(tensors, leaf);
    expect_refused(ModelFolder(awq_config(), tensors).status(), {"missing tensor '" + kModule + "." + leaf});
  }
  auto dtype = model();
  find(dtype, "scales").dtype = "I16";
  expect_refused(ModelFolder(awq_config(), dtype).status(), {kModule + ".scales", "F16 or BF16", "I16"});
  auto shape = model();
  find(shape, "qzeros") = {kModule + ".qzeros", "I32", {2, 1}, std::string(8, '\0')};
  expect_refused(ModelFolder(awq_config(), shape).status(), {kModule + ".qzeros", "[2, 2]", "[2, 1]"});
  expect_refused(ModelFolder(awq_config("", 48), model()).status(), {kModule, "K = 64", "48"});
  // gemv has the same qweight for square matrices; its scales give it away.
  auto gemv = model();
  find(gemv, "scales").shape = {16, 2};
  expect_refused(ModelFolder(awq_config(), gemv).status(), {kModule + ".scales", "[2, 16]", "[16, 2]"});
  for (const char* leaf : {"qweight", "qzeros"}) {
    auto wrong = model();
    find(wrong, leaf).dtype = "F32";
    expect_refused(ModelFolder(awq_config(), wrong).status(), {kModule + "." + leaf, "expected I32", "found F32"});
  }
  for (const auto& [rows, bytes] : {std::pair<std::vector<std::int64_t>, std::size_t>{{128}, 512}, {{0, 2}, 0}, {{64, 0}, 0}}) {
    auto wrong = model();
    find(wrong, "qweight") = {kModule + ".qweight", "I32", rows, std::string(bytes, '\0')};
    expect_refused(ModelFolder(awq_config(), wrong).status(), {kModule + ".qweight", "[K, N/8]", shape_text(rows)});
  }
  auto bias = model();
  bias.push_back({kModule + ".bias", "I32", {16}, std::string(64, '\0')});
  expect_refused(ModelFolder(awq_config(), bias).status(), {kModule + ".bias", "I32"});
  find(bias, "bias") = {kModule + ".bias", "F16", {8}, std::string(16, '\0')};
  expect_refused(ModelFolder(awq_config(), bias).status(), {kModule + ".bias", "[16]", "[8]"});
  find(bias, "bias") = {kModule + ".bias", "F16", {16}, std::string(32, '\x3c')};
  EXPECT_TRUE(ModelFolder(awq_config(), bias).status().ok());
  auto both = model();
  both.push_back(plain(kModule, 16, 64));
  expect_refused(ModelFolder(awq_config(), both).status(), {kModule + ".weight", "both"});
  auto nan = model();
  find(nan, "scales").bytes.replace(0, 2, std::string("\x00\xfe", 2));
  expect_refused(ModelFolder(awq_config(), nan).status(), {kModule + ".scales", "index 0", "0xfe00"});
}

TEST(Awq, Row33AndSubstrings) {
  auto tensors = model();
  append(tensors, awq_tensors("model.layers.0.mlp.gate_proj", random_matrix(16, 64, 32, 4, -1, 8)));
  append(tensors, awq_tensors("model.layers.0.mlp.up_proj", random_matrix(16, 64, 32, 4, -1, 9)));
  tensors.push_back(plain("model.layers.0.mlp.gate", 4, 64));
  tensors.push_back(plain("visual.blocks.0.mlp.down_proj", 16, 64));
  // "gate" is in "gate_proj" by accident, and another tower is none of this format's business.
  EXPECT_TRUE(ModelFolder(awq_config(",\"modules_to_not_convert\":[\"gate\"]"), tensors).status().ok());
  expect_refused(ModelFolder(awq_config(",\"modules_to_not_convert\":[\"mlp.down_proj\"]"), tensors).status(),
                 {kModule, "excludes"});
  tensors.push_back(plain("model.layers.1.mlp.down_proj", 16, 64));
  expect_refused(ModelFolder(awq_config(), tensors).status(), {"model.layers.1.mlp.down_proj", "plain weight"});
  EXPECT_TRUE(ModelFolder(awq_config(",\"modules_to_not_convert\":[\"layers.1.\"]"), tensors).status().ok());
}

}  // namespace
}  // namespace swordfish
