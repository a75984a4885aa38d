// Rules of the GPTQ and compressed-tensors readers one at a time: overrides of single modules, leaves that do not belong, shapes
// and types of every leaf. Each would load, or load as something else, were its rule not there.
#include <gtest/gtest.h>

#include "formats/integer_models.h"

namespace swordfish {
namespace {

const std::string kOther = "model.layers.1.mlp.down_proj";

std::string gptq(const std::string& more = "") {
  return "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":true" + more + "}";
}
std::string auto_round(const std::string& more) {
  return "{\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":32,\"sym\":true" + more + "}";
}
std::vector<TestTensor> gptq_model(const std::string& module = kModule, int bits = 4) {
  return gptq_tensors(module, random_matrix(16, 64, 32, bits, 1 << (bits - 1), 3), v1);
}
Status gptq_status(const std::string& more, const std::vector<TestTensor>& tensors) {
  return ModelFolder(gptq(more), tensors).status();
}

TEST(GptqRules, ExtraConfigNamesModulesExactly) {
  auto tensors = gptq_model();
  append(tensors, gptq_model(kOther, 8));
  const auto extra = [](const std::string& entry) { return auto_round(",\"extra_config\":{\"" + kOther + "\":" + entry + "}"); };
  const IntMatrix eight = random_matrix(16, 64, 32, 8, 128, 3);
  expect_values(ModelFolder(extra("{\"bits\":8}"), tensors).path(), 1, 0,
                [&](std::int64_t n, std::int64_t k) { return eight.value(n, k); });
  expect_refused(ModelFolder(auto_round(""), tensors).status(), {kOther});
  expect_refused(ModelFolder(extra("{\"bits\":3}"), tensors).status(), {"extra_config", "bits 3"});
  expect_refused(ModelFolder(extra("{\"bits\":\"8\"}"), tensors).status(), {"extra_config", "integer"});
  expect_refused(ModelFolder(extra("{\"bits\":16}"), tensors).status(), {kOther, "excludes"});
  // 16 bits: stays plain; 8 bits: must not.
  auto plain_one = gptq_model();
  plain_one.push_back(plain(kOther, 16, 64));
  EXPECT_TRUE(ModelFolder(extra("{\"bits\":16}"), plain_one).status().ok());
  expect_refused(ModelFolder(extra("{\"bits\":8}"), plain_one).status(), {kOther, "plain weight"});
  // One name is not the beginning of another.
  auto longer = gptq_model();
  append(longer, gptq_model(kOther + "_b"));
  EXPECT_TRUE(ModelFolder(extra("{\"bits\":8}"), longer).status().ok());
}

TEST(GptqRules, BlocksToQuantizeAreSubstrings) {
  auto tensors = gptq_model();
  tensors.push_back(plain(kOther, 16, 64));
  const auto blocks = [](const std::string& list) { return ",\"modules_in_block_to_quantize\":" + list; };
  for (const char* list : {"[\"layers.0.mlp.down_proj\"]", "[[\"self_attn.q_proj\"],[\"layers.0.mlp\"]]"})
    EXPECT_TRUE(gptq_status(blocks(list), tensors).ok()) << list;
  for (const char* list : {"[\"mlp.down_proj\"]", "[[\"self_attn.q_proj\"],[\"mlp.down_proj\"]]", "[]", "null"})
    expect_refused(gptq_status(blocks(list), tensors), {kOther, "plain weight"});
  expect_refused(gptq_status(blocks("[1]"), tensors), {"modules_in_block_to_quantize", "strings", "integer"});
  expect_refused(gptq_status(blocks("\"mlp\""), tensors), {"modules_in_block_to_quantize", "array"});
}

TEST(GptqRules, DynamicRulesAreObjectsOfOverrides) {
  expect_refused(gptq_status(",\"dynamic\":[\".*\"]", gptq_model()), {"dynamic", "object", "array"});
  expect_refused(gptq_status(",\"dynamic\":{\".*\":{\"bits\":\"8\"}}", gptq_model()), {"dynamic", "bits", "integer"});
  expect_refused(gptq_status(",\"dynamic\":{\".*\":{\"group_size\":0}}", gptq_model()), {"dynamic", "group_size 0"});
  expect_refused(gptq_status(",\"dynamic\":{\".*\":{\"sym\":1}}", gptq_model()), {"dynamic", "sym", "boolean"});
  expect_refused(gptq_status(",\"dynamic\":{\".*\":{\"desc_act\":1}}", gptq_model()), {"dynamic", "desc_act", "boolean"});
  // What a negative rule says besides does not matter; the first rule that matches decides.
  auto tensors = gptq_model();
  tensors.push_back(plain(kOther, 16, 64));
  EXPECT_TRUE(gptq_status(",\"dynamic\":{\"-:.*layers\\\\.1\":{\"bits\":3},\".*\":{}}", tensors).ok());
  expect_refused(gptq_status(",\"dynamic\":{\".*\":{},\"-:.*layers\\\\.1\":{}}", tensors), {kOther, "plain weight"});
}

TEST(GptqRules, WordWiseWriters) {
  auto tensors = gptq_tensors(kModule, random_matrix(8, 32, 32, 4, 8, 7), v1);
  find(tensors, "qzeros").bytes = raw(std::vector<std::uint32_t>{0x777776F7});
  const auto status = [&](const std::string& more) {
    return ModelFolder("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false" + more + "}", tensors).status();
  };
  for (const char* known : {",\"meta\":{\"quantizer\":\"auto-round:0.6\"}", ",\"meta\":{\"quantizer\":[\"auto_round:0.6\"]}",
                            ",\"auto_round_version\":\"0.6\""})
    EXPECT_TRUE(status(known).ok()) << known;
  for (const char* unknown : {",\"meta\":{\"quantizer\":\"optimum:1.0\"}", ",\"meta\":{}", ",\"meta\":\"gptqmodel\""})
    expect_refused(status(unknown), {"ambiguous v1 zero point"});
}

TEST(GptqRules, LeavesOfOtherTypesAndShapes) {
  auto bias = gptq_model();
  bias.push_back({kModule + ".bias", "I32", {16}, std::string(64, '\0')});
  expect_refused(gptq_status("", bias), {kModule + ".bias", "I32"});
  auto rank = gptq_model();
  find(rank, "g_idx").shape = {8, 8};
  expect_refused(gptq_status("", rank), {kModule + ".g_idx", "[8, 8]", "64"});
  auto empty = gptq_model();
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{0, 16}, {8, 0}, {8, 0, 16}}) {
    find(empty, "qweight") = {kModule + ".qweight", "I32", shape, ""};
    expect_refused(gptq_status("", empty), {kModule + ".qweight", "[K/8, N]", shape_text(shape)});
  }
  for (const char* type : {"Int32", "int32"})
    EXPECT_TRUE(gptq_status(",\"pack_dtype\":\"" + std::string(type) + "\"", gptq_model()).ok());
  auto eora = gptq_model();
  eora.push_back({kModule + ".eora.A", "F16", {1}, std::string(2, '\0')});
  expect_refused(gptq_status("", eora), {"eora", "low-rank"});
  auto marlin = gptq_model();
  marlin.push_back({kModule + ".B_meta", "I32", {1}, std::string(4, '\0')});
  expect_refused(gptq_status("", marlin), {"B_meta", "2:4"});
  for (const char* unset : {",\"rotation\":null", ",\"rotation\":false", ",\"adapter\":null"})
    EXPECT_TRUE(gptq_status(unset, gptq_model()).ok()) << unset;
}

// Which of two files, or of two places in one, speaks the truth, nobody knows.
TEST(GptqRules, ConfigurationsThatContradictEachOther) {
  const auto second = [](const std::string& first, const std::string& more) {
    const ModelFolder folder("null", gptq_model());
    folder.write_config("config.json",
                        "{\"quantization_config\":" + first + ",\"text_config\":{\"quantization_config\":" + more + "}}");
    return folder.status();
  };
  EXPECT_TRUE(second(gptq(), "{\"bits\":4}").ok());
  expect_refused(second(gptq(), "{\"bits\":8}"), {"contradicting", "text_config.quantization_config", "bits", "4", "8"});
  expect_refused(second(gptq(), "{\"q_group_size\":64}"), {"contradicting", "q_group_size", "64"});
  expect_refused(second(gptq(",\"zero_point\":true"), "{\"zero_point\":false}"), {"contradicting", "zero_point"});
  expect_refused(second(auto_round(",\"packing_format\":\"auto_round\""), "{\"packing_format\":\"auto_round:auto_awq\"}"),
                 {"contradicting", "packing_format", "auto_awq"});
  expect_refused(second(gptq(",\"w_bit\":8"), "{}"), {"contradicting", "bits", "w_bit"});
}

// --- compressed-tensors ----------------------------------------------------------------------------------------------------------

const std::string kPack = "\"num_bits\":4,\"group_size\":32";
const std::string kNvfp4 = "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16";
const std::string kMxfp4 = "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32";

std::string ct(const std::string& weights, const std::string& format = "pack-quantized", const std::string& more = "") {
  return "{\"quant_method\":\"compressed-tensors\",\"format\":\"" + format +
         "\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{" + weights + "}}}" + more + "}";
}
std::vector<TestTensor> ct_model(bool zeros, bool g_idx = false) {
  auto tensors = ct_packed_tensors(kModule, random_matrix(16, 64, 32, 4, 8, 3));
  if (!zeros) drop(tensors, "zero_point");
  if (!g_idx) drop(tensors, "g_idx");
  return tensors;
}
std::vector<TestTensor> nvfp4_model() {
  return {{kModule + ".weight_packed", "U8", {4, 16}, std::string(64, '\x11')},
          {kModule + ".weight_scale", "F8_E4M3", {4, 2}, std::string(8, '\x38')},
          {kModule + ".weight_global_scale", "F32", {1}, raw(std::vector<float>{2.0f})}};
}
std::vector<TestTensor> mxfp4_model() {
  return {{kModule + ".weight_packed", "U8", {4, 32}, std::string(128, '\x11')},
          {kModule + ".weight_scale", "U8", {4, 2}, std::string(8, '\x7f')}};
}

// The model with one leaf replaced.
struct Change {
  const char* leaf;
  const char* dtype;
  std::vector<std::int64_t> shape;
  std::size_t bytes;
  std::vector<std::string> words;
};
void refuse_changes(const std::string& config, const std::vector<TestTensor>& model, const std::vector<Change>& changes) {
  ASSERT_TRUE(ModelFolder(config, model).status().ok()) << ModelFolder(config, model).status().message();
  for (const Change& c : changes) {
    auto tensors = model;
    drop(tensors, std::string(".") + c.leaf);
    tensors.push_back({kModule + "." + c.leaf, c.dtype, c.shape, std::string(c.bytes, '\0')});
    SCOPED_TRACE(std::string(c.leaf) + " " + c.dtype);
    auto words = c.words;
    words.push_back(kModule + "." + c.leaf);
    expect_refused(ModelFolder(config, tensors).status(), words);
  }
}

TEST(CompressedTensorsRules, LeavesOfPackedIntegers) {
  refuse_changes(ct(kPack + ",\"symmetric\":false"), ct_model(true),
                 {{"weight_packed", "F32", {16, 8}, 512, {"I32", "F32"}},
                  {"weight_packed", "I32", {128}, 512, {"rank", "[128]"}},
                  {"weight_shape", "F32", {2}, 8, {"I64", "F32"}},
                  {"weight_shape", "I64", {3}, 24, {"[2]", "[3]"}},
                  {"weight_zero_point", "I16", {16, 2}, 64, {"I32", "I16"}},
                  {"weight_zero_point", "I32", {16, 2}, 128, {"[2, 2]", "[16, 2]"}},
                  {"weight_zero_point", "I8", {2, 16}, 32, {"[16, 2]", "[2, 16]"}},
                  {"weight_g_idx", "I64", {64}, 512, {"I32", "I64"}},
                  {"weight_g_idx", "I32", {32}, 128, {"[64]", "[32]"}},
                  {"bias", "I32", {16}, 64, {"I32"}},
                  {"bias", "F16", {8}, 16, {"[16]", "[8]"}},
                  {"weight_global_scale", "F32", {1}, 4, {"unexpected"}}});
}

TEST(CompressedTensorsRules, ValuesAndSizesOfPackedIntegers) {
  auto nan = ct_model(false);
  find(nan, "weight_scale").bytes.replace(10, 2, std::string("\x00\x7c", 2));
  expect_refused(ModelFolder(ct(kPack), nan).status(), {"weight_scale", "index 5", "Inf"});
  auto negative = ct_model(false, true);
  std::vector<std::int32_t> rows(64, 0);
  rows[9] = -1;
  find(negative, "g_idx").bytes = raw(rows);
  expect_refused(ModelFolder(ct(kPack + ",\"actorder\":\"group\""), negative).status(), {"weight_g_idx", "-1 at index 9"});
  auto empty = ct_model(false);  // N = 0
  find(empty, "weight_packed") = {kModule + ".weight_packed", "I32", {0, 8}, ""};
  find(empty, "weight_scale") = {kModule + ".weight_scale", "F16", {0, 2}, ""};
  find(empty, "weight_shape").bytes = raw(std::vector<std::int64_t>{0, 64});
  expect_refused(ModelFolder(ct(kPack), empty).status(), {kModule + ".weight_packed", "[0, 8]"});
  auto experts = ct_model(false);  // E = 0
  find(experts, "weight_packed") = {kModule + ".weight_packed", "I32", {0, 16, 8}, ""};
  expect_refused(ModelFolder(ct(kPack), experts).status(), {"weight_packed", "[E, ...]", "[0, 16, 8]"});
  const std::vector<TestTensor> narrow = {{kModule + ".weight", "I8", {16, 0}, ""},
                                          {kModule + ".weight_scale", "F16", {16, 1}, std::string(32, '\0')}};
  expect_refused(ModelFolder(ct("\"num_bits\":8,\"strategy\":\"channel\"", "int-quantized"), narrow).status(),
                 {kModule, "[16, 0]", "N and K within 1.."});
}

// Row 33: a plain matrix that a group names; one that "Linear" means, by its name or since its likes are quantized; others.
TEST(CompressedTensorsRules, PlainMatricesThatShouldBeQuantized) {
  const auto status = [](const std::string& targets, const std::string& module) {
    auto tensors = ct_packed_tensors("model.layers.0.mixer.in", random_matrix(16, 64, 32, 4, 8, 3));
    drop(tensors, "zero_point");
    drop(tensors, "g_idx");
    tensors.push_back(plain(module, 16, 64));
    return ModelFolder(
               "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"a\":{\"targets\":" +
                   targets + ",\"weights\":{" + kPack + "}}}}",
               tensors)
        .status();
  };
  expect_refused(status("[\"re:.*mixer\"]", "model.layers.0.mixer.out"), {"mixer.out", "plain weight"});     // named
  expect_refused(status("[\"Linear\"]", "model.layers.0.mlp.up_proj"), {"up_proj", "plain weight"});         // a projection
  expect_refused(status("[\"Linear\"]", "model.layers.1.mixer.in"), {"layers.1.mixer.in", "plain weight"});  // its likes
  EXPECT_TRUE(status("[\"Linear\"]", "model.layers.0.mixer.out").ok());                                      // who knows
  EXPECT_TRUE(status("[\"re:.*mixer.in\"]", "model.layers.0.mlp.up_proj").ok());                             // not targeted
}

TEST(CompressedTensorsRules, LeavesOfPlainIntegers) {
  const IntMatrix m = random_matrix(16, 64, 32, 8, 128, 3);
  std::vector<std::int8_t> weight;
  for (const int code : m.q) weight.push_back(static_cast<std::int8_t>(code - 128));
  const std::vector<TestTensor> model = {{kModule + ".weight", "I8", {16, 64}, raw(weight)},
                                         {kModule + ".weight_scale", "F16", {16, 2}, raw(to_f16(m.scale))},
                                         {kModule + ".weight_zero_point", "I8", {16, 2}, std::string(32, '\0')}};
  const std::string config = ct("\"num_bits\":8,\"group_size\":32,\"symmetric\":true", "int-quantized");
  refuse_changes(config, model,
                 {{"weight", "I8", {1024}, 1024, {"rank", "[1024]"}},
                  {"weight_scale", "F16", {16, 1}, 32, {"[16, 2]", "[16, 1]"}},
                  {"weight_zero_point", "I32", {4, 2}, 32, {"I8", "I32"}},
                  {"weight_packed", "I32", {16, 16}, 1024, {"unexpected"}},
                  {"weight_global_scale", "F32", {1}, 4, {"unexpected"}}});
  auto zeros = model;
  find(zeros, "zero_point").bytes[7] = 3;
  expect_refused(ModelFolder(config, zeros).status(), {"weight_zero_point", "index 7", "3"});
}

TEST(CompressedTensorsRules, LeavesOfFp4) {
  refuse_changes(ct(kNvfp4, "nvfp4-pack-quantized"), nvfp4_model(),
                 {{"weight_packed", "I8", {4, 16}, 64, {"U8", "I8"}},
                  {"weight_packed", "U8", {64}, 64, {"rank", "[64]"}},
                  {"weight_scale", "U8", {4, 2}, 8, {"F8_E4M3", "U8"}},
                  {"weight_scale", "BF16", {4, 2}, 16, {"F8_E4M3", "BF16"}},
                  {"weight_scale", "F8_E4M3", {4, 1}, 4, {"[4, 2]", "[4, 1]"}},
                  {"weight_global_scale", "F16", {1}, 2, {"F32", "F16"}},
                  {"weight_zero_point", "I8", {4, 2}, 8, {"unexpected"}},
                  {"weight_g_idx", "I32", {32}, 128, {"unexpected"}}});
  refuse_changes(ct(kMxfp4, "mxfp4-pack-quantized"), mxfp4_model(),
                 {{"weight_scale", "F8_E4M3", {4, 2}, 8, {"U8", "F8_E4M3"}},
                  {"weight_scale", "U8", {4, 4}, 16, {"[4, 2]", "[4, 4]"}},
                  {"weight_global_scale", "F32", {1}, 4, {"unexpected"}}});
  auto narrow = nvfp4_model();  // K = 24
  narrow[0] = {kModule + ".weight_packed", "U8", {4, 12}, std::string(48, '\x11')};
  expect_refused(ModelFolder(ct(kNvfp4, "nvfp4-pack-quantized"), narrow).status(), {kModule, "K = 24", "16"});
}

TEST(CompressedTensorsRules, ArgumentsOfFp4) {
  const auto nv = [](const std::string& weights) {
    return ModelFolder(ct(weights, "nvfp4-pack-quantized"), nvfp4_model()).status();
  };
  EXPECT_TRUE(nv(kNvfp4).ok());
  EXPECT_TRUE(nv("\"num_bits\":4,\"type\":\"float\"").ok());  // the format leaves no choice
  expect_refused(nv(kNvfp4 + ",\"symmetric\":false"), {"symmetric"});
  expect_refused(nv(kNvfp4 + ",\"actorder\":\"group\""), {"actorder"});
  expect_refused(nv("\"num_bits\":8,\"type\":\"float\""), {"num_bits 8"});
  expect_refused(nv("\"num_bits\":4,\"type\":\"int\""), {"type", "int", "float"});
  expect_refused(nv("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\""), {"strategy", "group", "tensor_group"});
  expect_refused(
      ModelFolder(ct("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\"", "mxfp4-pack-quantized"), mxfp4_model())
          .status(),
      {"strategy", "tensor_group"});
}

TEST(CompressedTensorsRules, ArgumentsOfIntegers) {
  const auto status = [](const std::string& weights) { return ModelFolder(ct(weights), ct_model(false)).status(); };
  EXPECT_TRUE(status(kPack).ok());
  expect_refused(status("\"num_bits\":4,\"strategy\":\"group\""), {"strategy", "group", "null"});
  expect_refused(status("\"num_bits\":4,\"strategy\":\"group\",\"group_size\":-1"), {"strategy", "group", "-1"});
  expect_refused(status(kPack + ",\"actorder\":1"), {"actorder", "boolean or string", "integer"});
  expect_refused(status(kPack + ",\"dynamic\":\"local\""), {"dynamic"});
  EXPECT_TRUE(status(kPack + ",\"dynamic\":false,\"actorder\":null,\"observer\":\"mse\",\"observer_kwargs\":{}").ok());
  for (const char* order : {"\"weight\"", "\"static\"", "false"})
    EXPECT_TRUE(status(kPack + ",\"actorder\":" + std::string(order)).ok()) << order;
}

TEST(CompressedTensorsRules, GroupsAndTargets) {
  const auto status = [](const std::string& groups, const std::string& more = "") {
    return ModelFolder(
               "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":" + groups + more + "}",
               ct_model(false))
        .status();
  };
  const std::string weights = "\"weights\":{" + kPack + "}", eight = "\"weights\":{\"num_bits\":8,\"group_size\":32}";
  const std::string good = "{\"targets\":[\"Linear\"]," + weights + "}";
  expect_refused(status("[]"), {"config_groups", "object", "array"});
  expect_refused(
      ModelFolder("{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":" + good + "}}", ct_model(false)).status(),
      {"config_groups.a", "format", "missing too"});
  expect_refused(status("{\"a\":" + good + "}", ",\"sparsity_config\":\"sparse\""), {"sparsity_config"});
  expect_refused(status("{\"a\":{\"targets\":\"Linear\"," + weights + "}}"), {"targets", "array", "string"});
  expect_refused(status("{\"a\":{\"targets\":[1]," + weights + "}}"), {"targets", "strings"});
  expect_refused(status("{}"), {kModule, "no config group"});
  EXPECT_TRUE(status("{\"a\":" + good + ",\"activations\":{\"targets\":[\"Linear\"],\"input_activations\":{}}}").ok());
  // Exact before regex before class, in whichever order they stand; equal ranks clash only with other arguments.
  const std::string exact = "{\"targets\":[\"" + kModule + "\"]," + weights + "}",
                    regex = "{\"targets\":[\"re:.*mlp\"]," + eight + "}";
  const std::string all = "{\"targets\":[\"Linear\"]," + eight + "}";
  EXPECT_TRUE(status("{\"a\":" + exact + ",\"b\":" + regex + ",\"c\":" + all + "}").ok());
  EXPECT_TRUE(status("{\"c\":" + all + ",\"b\":" + regex + ",\"a\":" + exact + "}").ok());
  expect_refused(status("{\"a\":" + good + ",\"b\":" + all + "}"), {kModule, "Linear", "different arguments", "config_groups.a"});
  EXPECT_TRUE(status("{\"a\":" + good + ",\"b\":" + good + "}").ok());
  // A pattern is matched at the start, like Python's re.match.
  expect_refused(status("{\"a\":{\"targets\":[\"re:mlp\"]," + weights + "}}"), {kModule, "no config group"});
  expect_refused(status("{\"a\":" + good + "}", ",\"ignore\":[\"Linear\"]"), {kModule, "ignore"});
  expect_refused(status("{\"a\":" + good + "}", ",\"ignore\":\"" + kModule + "\""), {"ignore", "array"});
  EXPECT_TRUE(status("{\"a\":" + good + "}", ",\"ignore\":[\"model.layers.0.mlp.down\"]").ok());
}

TEST(CompressedTensorsRules, PresetsMeanTheirArguments) {
  const auto preset = [](const std::string& name, const std::string& format) {
    return "{\"quant_method\":\"compressed-tensors\",\"format\":\"" + format + "\",\"config_groups\":{\"" + name +
           "\":[\"Linear\"]}}";
  };
  const IntMatrix four = random_matrix(16, 256, 128, 4, -1, 5), eight = random_matrix(16, 256, 128, 8, 128, 6);
  auto asymmetric = ct_packed_tensors(kModule, four), symmetric = ct_packed_tensors(kModule, eight);
  drop(asymmetric, "g_idx");
  drop(symmetric, "g_idx");
  drop(symmetric, "zero_point");
  expect_values(ModelFolder(preset("W4A16_ASYM", "pack-quantized"), asymmetric).path(), 0, 0,
                [&](std::int64_t n, std::int64_t k) { return four.value(n, k); });
  expect_values(ModelFolder(preset("W8A16", "pack-quantized"), symmetric).path(), 0, 0,
                [&](std::int64_t n, std::int64_t k) { return eight.value(n, k); });
  const IntMatrix channel = random_matrix(16, 64, 64, 8, 128, 7);
  std::vector<std::int8_t> weight;
  for (const int code : channel.q) weight.push_back(static_cast<std::int8_t>(code - 128));
  for (const char* name : {"W8A8", "INT8"})
    expect_values(
        ModelFolder(preset(name, "int-quantized"), {{kModule + ".weight", "I8", {16, 64}, raw(weight)},
                                                    {kModule + ".weight_scale", "F16", {16, 1}, raw(to_f16(channel.scale))}})
            .path(),
        0, 0, [&](std::int64_t n, std::int64_t k) { return channel.value(n, k); });
  for (const char* name : {"NVFP4", "NVFP4A16"})
    EXPECT_TRUE(ModelFolder(preset(name, "nvfp4-pack-quantized"), nvfp4_model()).status().ok()) << name;
  for (const char* name : {"MXFP4", "mxfp4a16"})
    EXPECT_TRUE(ModelFolder(preset(name, "mxfp4-pack-quantized"), mxfp4_model()).status().ok()) << name;
}

}  // namespace
}  // namespace swordfish
