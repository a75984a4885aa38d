// GPTQ reader: values, both versions of zero points, act-order, rules of `dynamic`, and the refusals of formats.md section 9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/integer_models.h"

namespace swordfish {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string gptq_config(const std::string& more, int bits = 4, int group = 32) {
  return "{\"quant_method\":\"gptq\",\"bits\":" + std::to_string(bits) + ",\"group_size\":" + std::to_string(group) + more + "}";
}

// A 4-bit model of one module, with hooks on its tensors.
std::vector<TestTensor> sym_model(unsigned seed = 3) { return gptq_tensors(kModule, random_matrix(16, 64, 32, 4, 8, seed), v1); }

TEST(Gptq, VersionsOfZerosGiveTheSameWeights) {
  for (const int bits : {4, 8}) {
    const IntMatrix m = random_matrix(24, 96, 32, bits, -1, 4);
    const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
    expect_values(ModelFolder(gptq_config(",\"sym\":false", bits), gptq_tensors(kModule, m, v1)).path(), 0, 0, value);
    for (const char* format : {"gptq_v2", "gptq_p", "GPTQ_V2"}) {
      const std::string more = ",\"sym\":false,\"checkpoint_format\":\"" + std::string(format) + "\"";
      expect_values(ModelFolder(gptq_config(more, bits), gptq_tensors(kModule, m, v2)).path(), 0, 0, value);
    }
  }
}

TEST(Gptq, V2HoldsEveryZeroPoint) {
  IntMatrix m = random_matrix(16, 32, 32, 4, 8, 5);
  for (int n = 0; n < 16; ++n) m.zero_at(n, 0) = n;
  expect_values(ModelFolder(gptq_config(",\"sym\":false,\"checkpoint_format\":\"gptq_v2\""), gptq_tensors(kModule, m, v2)).path(),
                0, 0, [&](std::int64_t n, std::int64_t k) { return m.value(n, k); });
}

// `sym: true` has one true zero, whichever version the words are in; and without `sym` the words decide.
TEST(Gptq, SymmetricZeros) {
  for (const int bits : {4, 8}) {
    const IntMatrix m = random_matrix(16, 64, 32, bits, 1 << (bits - 1), 6);
    const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
    expect_values(ModelFolder(gptq_config(",\"sym\":true", bits), gptq_tensors(kModule, m, v1)).path(), 0, 0, value);
    expect_values(ModelFolder(gptq_config(",\"sym\":true", bits), gptq_tensors(kModule, m, v2)).path(), 0, 0, value);
    const ModelFolder silent(gptq_config("", bits), gptq_tensors(kModule, m, v1));
    expect_values(silent.path(), 0, 0, value);
    const auto checkpoint = Checkpoint::open(silent.path());
    ASSERT_TRUE(checkpoint.ok());
    EXPECT_FALSE(bool(checkpoint->load(0)->zeros));
  }
}

// Zeros of the other version load, since sym says what they are, but whoever looks is told.
TEST(Gptq, SymmetricZerosOfTheOtherVersionAreNoted) {
  const IntMatrix m = random_matrix(16, 64, 32, 4, 8, 6);
  const auto note = [&](const char* more, int (*stored)(int)) {
    const ModelFolder folder(gptq_config(more), gptq_tensors(kModule, m, stored));
    return Checkpoint::open(folder.path()).value().load(0).value().note;
  };
  EXPECT_EQ(note(",\"sym\":true", v1), "");
  EXPECT_EQ(note(",\"sym\":true,\"checkpoint_format\":\"gptq_v2\"", v2), "");
  EXPECT_EQ(note("", v1), "");
  EXPECT_THAT(note(",\"sym\":true", v2), AllOf(HasSubstr(kModule + ".qzeros"), HasSubstr("are 8"), HasSubstr("gptq_v2")));
  EXPECT_THAT(note(",\"sym\":true,\"checkpoint_format\":\"gptq_v2\"", v1), AllOf(HasSubstr("are 7"), HasSubstr("gptq v1")));
}

TEST(Gptq, Row40SymmetricWithOtherZeros) {
  auto tensors = sym_model();
  find(tensors, "qzeros").bytes = raw(std::vector<std::uint32_t>{0x77777777, 0x77777777, 0x77727777, 0x77777777});
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), tensors).status(), {kModule + ".qzeros", "index 20", " is 2", "gptq"});
  // A mixture of both versions is not symmetric either.
  find(tensors, "qzeros").bytes = raw(std::vector<std::uint32_t>{0x77777777, 0x77777777, 0x77778777, 0x77777777});
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), tensors).status(), {kModule + ".qzeros", "index 19", " is 8"});
}

// True zeros 8,0,8,8,8,8,8,8 (formats.md 2.3): word-wise 0x777776F7.
TEST(Gptq, Row41AmbiguousV1Zeros) {
  IntMatrix m = random_matrix(8, 32, 32, 4, 8, 7);
  m.zero_at(1, 0) = 0;
  auto tensors = gptq_tensors(kModule, m, v1);
  find(tensors, "qzeros").bytes = raw(std::vector<std::uint32_t>{0x777776F7});
  const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
  const ModelFolder unknown(gptq_config(",\"sym\":false"), tensors);
  expect_refused(unknown.status(), {kModule + ".qzeros", "ambiguous v1 zero point", "1 words", "index 1"});
  expect_values(unknown.path(), 0, 0, value, {GptqV1Zeros::word});
  // Writers that are known to subtract from whole words.
  for (const char* meta : {",\"meta\":{\"quantizer\":[\"gptqmodel:1.2\"]}", ",\"meta\":{\"quantizer\":\"GPTQModel:7\"}",
                           ",\"autoround_version\":\"0.5\""}) {
    expect_values(ModelFolder(gptq_config(std::string(",\"sym\":false") + meta), tensors).path(), 0, 0, value);
  }
  expect_values(ModelFolder("{\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":32,\"sym\":false}", tensors).path(), 0, 0,
                value);
  // Lane by lane the third lane is one too small, which is why it is not the default.
  IntMatrix lane = m;
  lane.zero_at(2, 0) = 7;
  expect_values(unknown.path(), 0, 0, [&](std::int64_t n, std::int64_t k) { return lane.value(n, k); }, {GptqV1Zeros::lane});
  lane.zero_at(1, 0) = 16;
  expect_values(unknown.path(), 0, 0, [&](std::int64_t n, std::int64_t k) { return lane.value(n, k); }, {GptqV1Zeros::unmasked});
}

TEST(Gptq, Unmasked8BitZeroIs256) {
  IntMatrix m = random_matrix(4, 32, 32, 8, 200, 8);
  auto tensors = gptq_tensors(kModule, m, [](int) { return 255; });
  const ModelFolder folder(gptq_config(",\"sym\":false", 8), tensors);
  for (int n = 0; n < 4; ++n) m.zero_at(n, 0) = 256;
  expect_values(folder.path(), 0, 0, [&](std::int64_t n, std::int64_t k) { return m.value(n, k); }, {GptqV1Zeros::unmasked});
}

TEST(Gptq, GIdxContentsDecide) {
  IntMatrix m = random_matrix(16, 64, 16, 4, 8, 9);
  std::shuffle(m.row_of_k.begin(), m.row_of_k.end(), std::mt19937(1));
  const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
  for (const char* more : {",\"sym\":true,\"desc_act\":true", ",\"sym\":true,\"desc_act\":false", ",\"sym\":true"}) {
    const ModelFolder folder(gptq_config(more, 4, 16), gptq_tensors(kModule, m, v1));
    expect_values(folder.path(), 0, 0, value);
    EXPECT_FALSE(Checkpoint::open(folder.path())->load(0)->row_of_k.empty());
  }
  // Trivial contents under desc_act true, a placeholder, and no g_idx at all.
  IntMatrix regular = random_matrix(16, 64, 16, 4, 8, 9);
  for (const int kind : {0, 1, 2}) {
    auto tensors = gptq_tensors(kModule, regular, v1);
    if (kind == 1) find(tensors, "g_idx").bytes = raw(std::vector<std::int32_t>(64, -1));
    if (kind == 2) drop(tensors, "g_idx");
    const ModelFolder folder(gptq_config(",\"sym\":true,\"desc_act\":true", 4, 16), tensors);
    expect_values(folder.path(), 0, 0, [&](std::int64_t n, std::int64_t k) { return regular.value(n, k); });
    EXPECT_TRUE(Checkpoint::open(folder.path())->load(0)->row_of_k.empty());
  }
}

TEST(Gptq, UnequalGroupsPartialGroupsAndOddShapesLoad) {
  IntMatrix unequal = random_matrix(16, 64, 32, 4, 8, 10);
  for (int k = 0; k < 40; ++k) unequal.row_of_k[static_cast<std::size_t>(k)] = 0;
  expect_values(ModelFolder(gptq_config(",\"sym\":true"), gptq_tensors(kModule, unequal, v1)).path(), 0, 0,
                [&](std::int64_t n, std::int64_t k) { return unequal.value(n, k); });
  for (const auto& [n, k] : {std::pair{12, 80}, {8, 44}, {3, 33}, {107, 333}}) {
    for (const int group : {32, -1}) {
      const IntMatrix m = random_matrix(n, k, group == -1 ? k : group, 4, -1, 11);
      expect_values(ModelFolder(gptq_config(",\"sym\":false", 4, group), gptq_tensors(kModule, m, v1)).path(), 0, 0,
                    [&](std::int64_t i, std::int64_t j) { return m.value(i, j); });
    }
  }
}

TEST(Gptq, Row38) {
  const auto with_g_idx = [](std::vector<std::int32_t> values) {
    auto tensors = sym_model();
    TestTensor& g_idx = find(tensors, "g_idx");
    g_idx.shape = {static_cast<std::int64_t>(values.size())};
    g_idx.bytes = raw(values);
    return ModelFolder(gptq_config(",\"sym\":true"), tensors).status();
  };
  std::vector<std::int32_t> values(64, 0);
  values[10] = 2;
  expect_refused(with_g_idx(values), {kModule + ".g_idx", "2 at index 10", "G = 2"});
  values[10] = -1;
  expect_refused(with_g_idx(values), {kModule + ".g_idx", "-1 at index 10"});
  expect_refused(with_g_idx(std::vector<std::int32_t>(50, 0)), {kModule + ".g_idx", "[50]", "64"});
  expect_refused(with_g_idx(std::vector<std::int32_t>(63, 0)), {kModule + ".g_idx", "length 63"});  // a lane too few
}

TEST(Gptq, Rows32To35) {
  for (const char* leaf : {"qweight", "qzeros", "scales"}) {
    auto tensors = sym_model();
    drop(tensors, leaf);
    expect_refused(ModelFolder(gptq_config(",\"sym\":true"), tensors).status(),
                   {"missing tensor '" + kModule + "." + leaf, "g_idx"});
  }
  auto both = sym_model();
  both.push_back(plain(kModule, 16, 64));
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), both).status(), {kModule, "both", ".weight"});
  for (const char* leaf : {"qweight", "qzeros", "g_idx"}) {
    auto tensors = sym_model();
    find(tensors, leaf).dtype = "F32";
    expect_refused(ModelFolder(gptq_config(",\"sym\":true"), tensors).status(),
                   {kModule + "." + leaf, "expected I32", "found F32"});
  }
  auto scales = sym_model();
  find(scales, "scales").dtype = "U16";
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), scales).status(),
                 {kModule + ".scales", "F16 or BF16 or F32", "found U16"});
  auto shape = sym_model();
  find(shape, "scales").shape = {16, 2};
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), shape).status(), {kModule + ".scales", "[2, 16]", "[16, 2]"});
  auto rank = sym_model();
  find(rank, "qweight").shape = {128};
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), rank).status(), {kModule + ".qweight", "[K/8, N]", "[128]"});
  // Old writers lost the tail of qzeros when N is no multiple of the lanes.
  auto floor = gptq_tensors(kModule, random_matrix(12, 64, 32, 4, 8, 12), v1);
  find(floor, "qzeros") = {kModule + ".qzeros", "I32", {2, 1}, raw(std::vector<std::uint32_t>(2, 0x77777777))};
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), floor).status(), {kModule + ".qzeros", "[2, 2]", "[2, 1]"});
}

TEST(Gptq, Row33ConfigurationAgainstTensors) {
  auto tensors = sym_model();
  tensors.push_back(plain("model.layers.1.mlp.down_proj", 16, 64));
  const std::string sym = ",\"sym\":true";
  expect_refused(ModelFolder(gptq_config(sym), tensors).status(), {"model.layers.1.mlp.down_proj", "plain weight"});
  const std::string negative = ",\"dynamic\":{\"-:.*layers\\\\.1\\\\.\":{}}";
  EXPECT_TRUE(ModelFolder(gptq_config(sym + negative), tensors).status().ok());
  expect_refused(ModelFolder(gptq_config(sym + ",\"dynamic\":{\"-:.*down_proj\":{}}"), sym_model()).status(),
                 {kModule, "excludes"});
  auto named = sym_model();
  named.push_back(plain("model.layers.0.mlp.other", 16, 64));
  EXPECT_TRUE(ModelFolder(gptq_config(sym), named).status().ok());
  expect_refused(ModelFolder(gptq_config(sym + ",\"dynamic\":{\"+:.*other\":{\"bits\":8}}"), named).status(),
                 {"mlp.other", "plain weight"});
  // Routers, embeddings and lm_head: the tensors decide.
  auto head = sym_model();
  head.push_back(plain("lm_head", 16, 64));
  EXPECT_TRUE(ModelFolder(gptq_config(sym + ",\"lm_head\":true,\"dynamic\":{\"lm_head\":{\"bits\":8}}"), head).status().ok());
}

TEST(Gptq, DynamicRulesFirstMatchWins) {
  const IntMatrix four = random_matrix(16, 64, 32, 4, 8, 13), eight = random_matrix(16, 64, 16, 8, 128, 14);
  auto tensors = gptq_tensors("model.layers.0.mlp.down_proj", four, v1);
  append(tensors, gptq_tensors("model.layers.1.mlp.down_proj", eight, v1));
  const std::string rules =
      ",\"sym\":true,\"dynamic\":{\".*layers\\\\.1\":{\"bits\":8,\"group_size\":16},\".*down_proj\":{\"mse\":1}}";
  const ModelFolder folder(gptq_config(rules), tensors);
  expect_values(folder.path(), 0, 0, [&](std::int64_t n, std::int64_t k) { return four.value(n, k); });
  expect_values(folder.path(), 1, 0, [&](std::int64_t n, std::int64_t k) { return eight.value(n, k); });
  // Anchored at the start: "layers" alone matches nothing, so layer 1 is read as 4 bits and refused.
  const std::string unanchored = ",\"sym\":true,\"dynamic\":{\"layers\\\\.1\":{\"bits\":8,\"group_size\":16}}";
  expect_refused(ModelFolder(gptq_config(unanchored), tensors).status(), {"model.layers.1.mlp.down_proj"});
  expect_refused(ModelFolder(gptq_config(",\"dynamic\":{\"(\":{}}"), tensors).status(), {"dynamic", "\"(\"", "regex"});
  expect_refused(ModelFolder(gptq_config(",\"dynamic\":{\".*\":{\"bits\":3}}"), tensors).status(), {"dynamic", "bits 3", "4, 8"});
  expect_refused(ModelFolder(gptq_config(",\"dynamic\":{\".*\":{},\".*\":{}}"), tensors).status(), {"duplicate", ".*"});
}

TEST(Gptq, Rows23To25And31) {
  const auto refuse = [](const std::string& quantization, const std::vector<std::string>& words) {
    expect_refused(ModelFolder(quantization, sym_model()).status(), words);
  };
  for (const int bits : {2, 3, 5, 6, 7, 16, -4}) refuse(gptq_config("", bits), {"bits " + std::to_string(bits), "4, 8"});
  for (const int group : {0, -2, -128}) refuse(gptq_config("", 4, group), {"group_size " + std::to_string(group)});
  refuse(gptq_config("", 4, 17), {"group_size", "17"});
  for (const char* format : {"marlin", "bitblas", "gptq_v3"}) {
    refuse(gptq_config(",\"checkpoint_format\":\"" + std::string(format) + "\""), {format, "gptq_v2"});
  }
  refuse(gptq_config(",\"checkpoint_format\":\"gptq\",\"format\":\"gptq_v2\""), {"checkpoint_format", "format", "gptq_v2"});
  refuse(gptq_config(",\"is_marlin_format\":true"), {"is_marlin_format"});
  refuse(gptq_config(",\"pack_dtype\":\"int64\""), {"pack_dtype", "int64"});
  refuse(gptq_config(",\"rotation\":\"hadamard\""), {"rotation"});
  refuse(gptq_config(",\"adapter\":{\"name\":\"lora\"}"), {"adapter"});
  refuse("{\"quant_method\":\"gptq\",\"bits\":4}", {"group_size", "missing", "integer"});
  refuse("{\"quant_method\":\"gptq\",\"group_size\":32}", {"bits", "missing", "integer"});
  for (const char* method :
       {"marlin", "gptq_marlin_24", "bitsandbytes", "aqlm", "hqq", "exl2", "exl3", "quark", "bitnet", "fbgemm_fp8"}) {
    refuse("{\"quant_method\":\"" + std::string(method) + "\",\"bits\":4}", {method, "compressed-tensors"});
  }
  refuse("{\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":32,\"packing_format\":\"auto_round:awq_marlin\"}",
         {"packing_format", "awq_marlin"});
  auto sparse = sym_model();
  sparse.push_back({kModule + ".B_24", "I32", {1}, std::string(4, '\0')});
  expect_refused(ModelFolder(gptq_config(""), sparse).status(), {"B_24", "2:4"});
  auto lora = sym_model();
  lora.push_back({kModule + ".lora_A.weight", "F16", {1}, std::string(2, '\0')});
  expect_refused(ModelFolder(gptq_config(""), lora).status(), {"lora_A"});
}

TEST(Gptq, AutoRoundPackings) {
  const IntMatrix m = random_matrix(16, 64, 32, 4, -1, 15);
  const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
  const std::string base = "{\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":32,\"sym\":false";
  expect_values(ModelFolder(base + "}", gptq_tensors(kModule, m, v1)).path(), 0, 0, value);
  expect_values(ModelFolder(base + ",\"packing_format\":\"auto_round:auto_gptq\"}", gptq_tensors(kModule, m, v1)).path(), 0, 0,
                value);
  for (const char* packing : {"auto_round", "auto_round:gptqmodel"}) {
    expect_values(ModelFolder(base + ",\"packing_format\":\"" + packing + "\"}", gptq_tensors(kModule, m, v2)).path(), 0, 0, value);
  }
  expect_values(ModelFolder(base + ",\"packing_format\":\"auto_round:auto_awq\"}", awq_tensors(kModule, m)).path(), 0, 0, value);
}

TEST(Gptq, Row44) {
  auto tensors = sym_model();
  find(tensors, "scales").bytes.replace(6, 2, std::string("\x01\x7e", 2));
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), tensors).status(), {kModule + ".scales", "index 3", "NaN", "0x7e01"});
  auto bias = sym_model();
  std::vector<float> values(16, 0.0f);
  bias.push_back({kModule + ".bias", "F32", {16}, raw(values)});
  const ModelFolder zero(gptq_config(",\"sym\":true"), bias);
  const auto checkpoint = Checkpoint::open(zero.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->layers()[0].bias, kModule + ".bias");
  EXPECT_FALSE(checkpoint->load_bias(0)->has_value());  // an all-zero placeholder
  values[5] = 3.5f;
  find(bias, "bias").bytes = raw(values);
  EXPECT_EQ(**Checkpoint::open(ModelFolder(gptq_config(",\"sym\":true"), bias).path())->load_bias(0), values);
  values[5] = -std::numeric_limits<float>::infinity();
  find(bias, "bias").bytes = raw(values);
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), bias).status(), {kModule + ".bias", "index 5", "Inf"});
  find(bias, "bias").shape = {4, 4};
  expect_refused(ModelFolder(gptq_config(",\"sym\":true"), bias).status(), {kModule + ".bias", "[16]", "[4, 4]"});
}

}  // namespace
}  // namespace swordfish
