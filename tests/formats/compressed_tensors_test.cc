// compressed-tensors reader: every integer arrangement against its formula, config groups and targets, and the refusals of
// formats.md section 9.
#include <gtest/gtest.h>

#include "formats/integer_models.h"

namespace swordfish {
namespace {

const std::string kPack4 = "\"num_bits\":4,\"type\":\"int\",\"symmetric\":false,\"strategy\":\"group\",\"group_size\":32";
const std::string kPack4Sym = "\"num_bits\":4,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"group\",\"group_size\":32";

std::string group(const std::string& weights, const std::string& targets = "[\"Linear\"]", const std::string& more = "") {
  return "{\"targets\":" + targets + ",\"weights\":{" + weights + "}" + more + "}";
}
std::string ct_config(const std::string& groups, const std::string& more = "", const std::string& format = "pack-quantized") {
  return "{\"quant_method\":\"compressed-tensors\",\"format\":\"" + format + "\",\"quantization_status\":\"compressed\"," +
         "\"config_groups\":{" + groups + "}" + more + "}";
}
std::string one(const std::string& weights, const std::string& more = "", const std::string& format = "pack-quantized") {
  return ct_config("\"group_0\":" + group(weights), more, format);
}

std::vector<TestTensor> packed(const IntMatrix& m, const std::string& module = kModule) {
  auto tensors = ct_packed_tensors(module, m);
  drop(tensors, module + ".weight_g_idx");
  return tensors;
}
std::vector<TestTensor> symmetric(const IntMatrix& m, const std::string& module = kModule) {
  auto tensors = packed(m, module);
  drop(tensors, module + ".weight_zero_point");
  return tensors;
}
IntMatrix sym4(unsigned seed = 1) { return random_matrix(16, 64, 32, 4, 8, seed); }

TEST(CompressedTensors, PackedIntegers) {
  for (const int bits : {4, 8}) {
    for (const auto& [n, k, size] : {std::tuple{16, 64, 32}, {13, 96, 32}, {7, 45, -1}}) {
      const std::string groups =
          size == -1 ? "\"strategy\":\"channel\",\"group_size\":null" : "\"group_size\":" + std::to_string(size);
      const std::string weights = "\"num_bits\":" + std::to_string(bits) + ",\"type\":\"int\"," + groups;
      IntMatrix m = random_matrix(n, k, size == -1 ? k : size, bits, -1, 2);
      m.zero_at(0, 0) = 0;
      const auto value = [&](std::int64_t i, std::int64_t j) { return m.value(i, j); };
      expect_values(ModelFolder(one(weights + ",\"symmetric\":false"), packed(m)).path(), 0, 0, value);
      std::fill(m.zero.begin(), m.zero.end(), 1 << (bits - 1));
      expect_values(ModelFolder(one(weights + ",\"symmetric\":true"), symmetric(m)).path(), 0, 0, value);
      // Zero points that are all 0 are ignored under symmetric:true.
      expect_values(ModelFolder(one(weights + ",\"symmetric\":true"), packed(m)).path(), 0, 0, value);
    }
  }
}

TEST(CompressedTensors, GoldenWord) {
  // formats.md 4.3: signed -8,-1,0,7,1,2,3,-4 is 0x4BA9F870.
  const std::vector<TestTensor> tensors = {{kModule + ".weight_packed", "I32", {1, 1}, raw(std::vector<std::uint32_t>{0x4BA9F870})},
                                           {kModule + ".weight_scale", "F32", {1, 1}, raw(std::vector<float>{1.0f})},
                                           {kModule + ".weight_shape", "I32", {2}, raw(std::vector<std::int32_t>{1, 8})}};
  const float signed_values[] = {-8, -1, 0, 7, 1, 2, 3, -4};
  expect_values(ModelFolder(one("\"num_bits\":4,\"group_size\":-1"), tensors).path(), 0, 0,
                [&](std::int64_t, std::int64_t k) { return signed_values[k]; });
}

TEST(CompressedTensors, OldUnpackedZeroPoints) {
  IntMatrix m = random_matrix(13, 64, 32, 4, -1, 3);
  auto tensors = packed(m);
  std::vector<std::int8_t> zeros;
  for (const int zero : m.zero) zeros.push_back(static_cast<std::int8_t>(zero - 8));
  find(tensors, "zero_point") = {kModule + ".weight_zero_point", "I8", {13, 2}, raw(zeros)};
  expect_values(ModelFolder(one(kPack4), tensors).path(), 0, 0, [&](std::int64_t n, std::int64_t k) { return m.value(n, k); });
  zeros[3] = 9;
  find(tensors, "zero_point").bytes = raw(zeros);
  expect_refused(ModelFolder(one(kPack4), tensors).status(), {"weight_zero_point", "9 at index 3", "4 bits"});
}

TEST(CompressedTensors, BytesOfIntegers) {
  for (const int bits : {4, 8}) {
    IntMatrix m = random_matrix(13, 64, 32, bits, -1, 4);
    const int middle = 1 << (bits - 1);
    std::vector<std::int8_t> weight, zeros;
    for (const int code : m.q) weight.push_back(static_cast<std::int8_t>(code - middle));
    for (const int zero : m.zero) zeros.push_back(static_cast<std::int8_t>(zero - middle));
    std::vector<TestTensor> tensors = {{kModule + ".weight", "I8", {13, 64}, raw(weight)},
                                       {kModule + ".weight_scale", "F16", {13, 2}, raw(to_f16(m.scale))},
                                       {kModule + ".weight_zero_point", "I8", {13, 2}, raw(zeros)}};
    const std::string weights = "\"num_bits\":" + std::to_string(bits) + ",\"group_size\":32,\"symmetric\":false";
    for (const char* format : {"int-quantized", "naive-quantized"}) {
      expect_values(ModelFolder(one(weights, "", format), tensors).path(), 0, 0,
                    [&](std::int64_t n, std::int64_t k) { return m.value(n, k); });
    }
    if (bits == 8) continue;
    weight[70] = -9;
    tensors[0].bytes = raw(weight);
    expect_refused(ModelFolder(one(weights, "", "naive-quantized"), tensors).status(), {kModule + ".weight", "-9 at index 70"});
    tensors[0].dtype = "U8";
    expect_refused(ModelFolder(one(weights, "", "naive-quantized"), tensors).status(), {kModule + ".weight", "I8", "U8"});
  }
}

TEST(CompressedTensors, OneScaleForTheTensor) {
  IntMatrix m = random_matrix(13, 64, 64, 8, 128, 5);
  std::fill(m.scale.begin(), m.scale.end(), 0.25f);
  std::vector<std::int8_t> weight;
  for (const int code : m.q) weight.push_back(static_cast<std::int8_t>(code - 128));
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{1}, std::vector<std::int64_t>{}}) {
    const std::vector<TestTensor> tensors = {{kModule + ".weight", "I8", {13, 64}, raw(weight)},
                                             {kModule + ".weight_scale", "F32", shape, raw(std::vector<float>{0.25f})}};
    expect_values(ModelFolder(one("\"num_bits\":8,\"strategy\":\"tensor\"", "", "int-quantized"), tensors).path(), 0, 0,
                  [&](std::int64_t n, std::int64_t k) { return m.value(n, k); });
  }
}

TEST(CompressedTensors, ActOrder) {
  IntMatrix m = sym4(6);
  std::shuffle(m.row_of_k.begin(), m.row_of_k.end(), std::mt19937(1));
  auto tensors = ct_packed_tensors(kModule, m);
  drop(tensors, "zero_point");
  const auto value = [&](std::int64_t n, std::int64_t k) { return m.value(n, k); };
  for (const char* order : {"\"group\"", "\"dynamic\"", "true"}) {
    expect_values(ModelFolder(one(kPack4Sym + ",\"actorder\":" + order), tensors).path(), 0, 0, value);
  }
  expect_refused(ModelFolder(one(kPack4Sym + ",\"actorder\":\"weight\""), tensors).status(), {"weight_g_idx", "actorder"});
  expect_refused(ModelFolder(one(kPack4Sym + ",\"actorder\":\"group\""), symmetric(m)).status(), {"missing", "weight_g_idx"});
  expect_refused(ModelFolder(one(kPack4Sym + ",\"actorder\":\"columns\""), tensors).status(), {"actorder", "columns"});
  // Groups of unequal size, out of range, and the placeholder.
  std::vector<std::int32_t> rows(m.row_of_k.begin(), m.row_of_k.end());
  const auto with = [&](const std::vector<std::int32_t>& values) {
    find(tensors, "g_idx").bytes = raw(values);
    return ModelFolder(one(kPack4Sym + ",\"actorder\":\"group\""), tensors).status();
  };
  auto unequal = rows;
  *std::find(unequal.begin(), unequal.end(), 1) = 0;
  expect_refused(with(unequal), {"weight_g_idx", "33 members", "32"});
  auto range = rows;
  range[5] = 2;
  expect_refused(with(range), {"weight_g_idx", "2 at index 5"});
  EXPECT_TRUE(with(std::vector<std::int32_t>(64, -1)).ok());
}

TEST(CompressedTensors, StackedExperts) {
  const IntMatrix a = random_matrix(16, 64, 32, 4, -1, 7), b = random_matrix(16, 64, 32, 4, -1, 8);
  auto tensors = packed(a);
  auto second = packed(b);
  for (TestTensor& tensor : tensors) {
    if (tensor.name.ends_with("weight_shape")) {
      tensor.shape = {3};
      tensor.bytes = raw(std::vector<std::int64_t>{2, 16, 64});
    } else {
      tensor.bytes += find(second, tensor.name).bytes;
      tensor.shape.insert(tensor.shape.begin(), 2);
    }
  }
  const ModelFolder folder(one(kPack4), tensors);
  expect_values(folder.path(), 0, 0, [&](std::int64_t n, std::int64_t k) { return a.value(n, k); });
  expect_values(folder.path(), 0, 1, [&](std::int64_t n, std::int64_t k) { return b.value(n, k); });
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint->layers()[0].experts, 2);
  EXPECT_EQ(checkpoint->load(0, 2).status().code(), Code::invalid_argument);
}

TEST(CompressedTensors, Rows32To37And49) {
  for (const char* leaf : {"weight_packed", "weight_scale", "weight_shape", "weight_zero_point"}) {
    auto tensors = packed(sym4());
    drop(tensors, leaf);
    expect_refused(ModelFolder(one(kPack4), tensors).status(), {"missing tensor '" + kModule + "." + leaf});
  }
  const auto shape = [](std::vector<std::int64_t> values) {
    auto tensors = symmetric(sym4());
    find(tensors, "weight_shape").bytes = raw(values);
    return ModelFolder(one(kPack4Sym), tensors).status();
  };
  for (const auto& values :
       {std::vector<std::int64_t>{16, 72}, {16, 56}, {15, 64}, {-16, 64}, {16, -64}, {16, std::int64_t{1} << 62}}) {
    expect_refused(shape(values), {kModule + ".weight_shape", "contradicts", shape_text(values), "[16, 8]"});
  }
  EXPECT_TRUE(shape({16, 64}).ok());
  expect_refused(ModelFolder(one("\"num_bits\":4,\"group_size\":48"), symmetric(sym4())).status(), {kModule, "K = 64", "48"});
  auto scale = symmetric(sym4());
  find(scale, "weight_scale").dtype = "I16";
  expect_refused(ModelFolder(one(kPack4Sym), scale).status(), {kModule + ".weight_scale", "I16"});
  find(scale, "weight_scale").dtype = "F16";
  find(scale, "weight_scale").shape = {2, 16};
  expect_refused(ModelFolder(one(kPack4Sym), scale).status(), {kModule + ".weight_scale", "[16, 2]", "[2, 16]"});
  auto asymmetric = packed(random_matrix(16, 64, 32, 4, -1, 9));
  expect_refused(ModelFolder(one(kPack4Sym), asymmetric).status(), {"weight_zero_point", "symmetric is true", "index 0"});
  auto global = symmetric(sym4());
  global.push_back({kModule + ".weight_global_scale", "F32", {1}, raw(std::vector<float>{2.0f})});
  expect_refused(ModelFolder(one(kPack4Sym), global).status(), {"unexpected", "weight_global_scale"});
}

TEST(CompressedTensors, Row33) {
  auto tensors = symmetric(sym4());
  tensors.push_back(plain("model.layers.1.mlp.down_proj", 16, 64));
  expect_refused(ModelFolder(one(kPack4Sym), tensors).status(), {"layers.1.mlp.down_proj", "plain weight", "group_0"});
  for (const char* ignore : {"model.layers.1.mlp.down_proj", "re:.*layers\\\\.1\\\\."}) {
    EXPECT_TRUE(ModelFolder(one(kPack4Sym, ",\"ignore\":[\"" + std::string(ignore) + "\"]"), tensors).status().ok());
  }
  expect_refused(ModelFolder(one(kPack4Sym, ",\"ignore\":[\"re:.*down_proj\"]"), tensors).status(), {kModule, "ignore"});
  auto both = symmetric(sym4());
  both.push_back(plain(kModule, 16, 64));
  expect_refused(ModelFolder(one(kPack4Sym), both).status(), {"both", kModule + ".weight"});
  const std::string other = ct_config("\"group_0\":" + group(kPack4Sym, "[\"re:.*self_attn\"]"));
  expect_refused(ModelFolder(other, symmetric(sym4())).status(), {kModule, "no config group"});
  // lm_head and routers: the tensors decide, both ways.
  auto head = symmetric(sym4(), "lm_head");
  head.push_back(plain("model.layers.0.mlp.gate", 4, 64));
  EXPECT_TRUE(ModelFolder(one(kPack4Sym, ",\"ignore\":[\"lm_head\"]"), head).status().ok());
}

TEST(CompressedTensors, TargetsAndPriorities) {
  const IntMatrix four = sym4(10), eight = random_matrix(16, 64, 64, 8, 128, 11);
  auto tensors = symmetric(four);
  append(tensors, symmetric(eight, "model.layers.0.self_attn.o_proj"));
  const std::string w8 = "\"num_bits\":8,\"strategy\":\"channel\"";
  const auto check = [&](const std::string& groups) {
    const ModelFolder folder(ct_config(groups), tensors);
    expect_values(folder.path(), 0, 0, [&](std::int64_t n, std::int64_t k) { return four.value(n, k); });
    expect_values(folder.path(), 1, 0, [&](std::int64_t n, std::int64_t k) { return eight.value(n, k); });
  };
  check("\"a\":" + group(kPack4Sym) + ",\"b\":" + group(w8, "[\"re:.*self_attn\"]"));
  check("\"b\":" + group(w8, "[\"re:.*\"]") + ",\"a\":" + group(kPack4Sym, "[\"" + kModule + "\"]"));
  check("\"W4A16\":" + group(kPack4Sym, "[\"re:.*mlp\"]", ",\"format\":\"pack-quantized\"") +
        ",\"b\":" + group(w8, "[\"LINEAR\"]"));
  const std::string clash = "\"a\":" + group(kPack4Sym, "[\"re:.*down\"]") + ",\"b\":" + group(w8, "[\"re:.*\"]");
  expect_refused(ModelFolder(ct_config(clash), tensors).status(), {kModule, "re:.*down", "re:.*", "different arguments"});
  // The same arguments twice are no clash.
  check("\"a\":" + group(kPack4Sym, "[\"re:.*mlp\"]") + ",\"c\":" + group(kPack4Sym, "[\"re:.*down\"]") +
        ",\"b\":" + group(w8, "[\"re:.*attn\"]"));
}

TEST(CompressedTensors, Presets) {
  const IntMatrix m = random_matrix(16, 256, 128, 4, 8, 12);
  expect_values(ModelFolder(ct_config("\"W4A16\":[\"Linear\"]"), symmetric(m)).path(), 0, 0,
                [&](std::int64_t n, std::int64_t k) { return m.value(n, k); });
  expect_refused(ModelFolder(ct_config("\"FP8_BLOCK\":[\"Linear\"]"), symmetric(m)).status(), {"preset", "FP8_BLOCK", "W4A16"});
}

TEST(CompressedTensors, Rows23To25And27And28And31) {
  const auto refuse = [](const std::string& quantization, const std::vector<std::string>& words) {
    expect_refused(ModelFolder(quantization, symmetric(sym4())).status(), words);
  };
  for (const char* format :
       {"float-quantized", "mxfp8-quantized", "dense", "fakequant", "marlin-24", "sparse-bitmask", "pack_quantized"}) {
    refuse(one(kPack4Sym, "", format), {"format", format, "pack-quantized"});
  }
  refuse(one(kPack4Sym, "", "mixed-precision"), {"format", "missing", "group_0"});
  for (const int bits : {1, 2, 3, 5, 6, 7, 16}) {
    refuse(one("\"num_bits\":" + std::to_string(bits) + ",\"group_size\":32"), {"num_bits " + std::to_string(bits), "4, 8"});
  }
  refuse(one("\"num_bits\":4,\"group_size\":0"), {"group_size 0"});
  refuse(one("\"num_bits\":4,\"group_size\":-2"), {"group_size -2"});
  refuse(one("\"num_bits\":\"4\",\"group_size\":32"), {"num_bits", "integer", "string"});
  refuse(one("\"group_size\":32"), {"num_bits", "missing"});
  refuse(one("\"num_bits\":4,\"strategy\":\"block\",\"block_structure\":[128,128]"), {"strategy", "block"});
  refuse(one("\"num_bits\":4,\"strategy\":\"tensor\""), {"strategy", "tensor", "pack-quantized"});
  refuse(one("\"num_bits\":4,\"strategy\":\"channel\",\"group_size\":32"), {"strategy", "channel", "32"});
  refuse(one(kPack4Sym + ",\"zero_stuff\":1"), {"unknown key", "zero_stuff"});
  refuse(one(kPack4Sym + ",\"dynamic\":true"), {"dynamic"});
  refuse(one("\"num_bits\":4,\"type\":\"float\",\"group_size\":32"), {"type", "float", "int"});
  refuse(one(kPack4Sym, ",\"ignore\":[\"re:.*[unclosed\"]"), {"ignore", "[unclosed", "regex"});
  refuse(one(kPack4Sym, ",\"ignore\":[1]"), {"ignore", "strings"});
  refuse(ct_config("\"a\":{\"targets\":[\"re:(\"],\"weights\":{" + kPack4Sym + "}}"), {"targets", "("});
  refuse(ct_config("\"a\":{\"weights\":{" + kPack4Sym + "}}"), {"targets", "missing"});
  refuse(one(kPack4Sym, ",\"transform_config\":{\"config_groups\":{}}"), {"transform_config"});
  refuse(one(kPack4Sym, ",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}"), {"sparsity_config"});
  EXPECT_TRUE(ModelFolder(one(kPack4Sym, ",\"sparsity_config\":{},\"transform_config\":null"), symmetric(sym4())).status().ok());
  refuse("{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}", {"config_groups", "missing"});
  refuse(
      "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"quantization_status\":\"frozen\",\"config_groups\":"
      "{}}",
      {"quantization_status", "frozen"});
  const auto fp4 = [](const std::string& weights, const std::string& format) { return one(weights, "", format); };
  refuse(fp4("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":32", "nvfp4-pack-quantized"),
         {"group_size 32", "16"});
  refuse(fp4("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":16", "mxfp4-pack-quantized"),
         {"group_size 16", "32"});
}

TEST(CompressedTensors, Fp4) {
  const std::string nv =
      one("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16", "", "nvfp4-pack-quantized");
  // formats.md 5.1-5.3: byte F3, block scale 3C, divisor 896.
  std::vector<TestTensor> tensors = {{kModule + ".weight_packed", "U8", {1, 8}, std::string(8, '\xf3')},
                                     {kModule + ".weight_scale", "F8_E4M3", {1, 1}, std::string(1, '\x3c')},
                                     {kModule + ".weight_global_scale", "F32", {1}, raw(std::vector<float>{896.0f})}};
  expect_values(ModelFolder(nv, tensors).path(), 0, 0,
                [](std::int64_t, std::int64_t k) { return (k % 2 == 0 ? 1.5f : -6.0f) * 1.5f / 896.0f; });
  auto missing = tensors;
  drop(missing, "global_scale");
  expect_refused(ModelFolder(nv, missing).status(), {"missing", "weight_global_scale"});
  for (const float bad :
       {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 0x1p-149f}) {
    auto global = tensors;
    find(global, "global_scale").bytes = raw(std::vector<float>{bad});
    expect_refused(ModelFolder(nv, global).status(), {"weight_global_scale", "divisor"});
  }
  auto two = tensors;
  find(two, "global_scale") = {kModule + ".weight_global_scale", "F32", {2}, raw(std::vector<float>{1, 1})};
  expect_refused(ModelFolder(nv, two).status(), {"weight_global_scale", "[2]"});
  for (const char bad : {'\x7f', '\xff', '\x81', '\xb8'}) {
    auto scale = tensors;
    find(scale, "weight_scale").bytes = std::string(1, bad);
    expect_refused(ModelFolder(nv, scale).status(), {"weight_scale", "index 0"});
  }

  const std::string mx =
      one("\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32", "", "mxfp4-pack-quantized");
  // formats.md 6.1: scale 7E (0.5), byte 2A: -0.5 and 0.5.
  for (const char* dtype : {"U8", "F8_E8M0"}) {
    std::vector<TestTensor> m = {{kModule + ".weight_packed", "U8", {1, 16}, std::string(16, '\x2a')},
                                 {kModule + ".weight_scale", dtype, {1, 1}, std::string(1, '\x7e')}};
    expect_values(ModelFolder(mx, m).path(), 0, 0, [](std::int64_t, std::int64_t k) { return k % 2 == 0 ? -0.5f : 0.5f; });
    find(m, "weight_scale").bytes = std::string(1, '\xff');
    expect_refused(ModelFolder(mx, m).status(), {"weight_scale", "0xff"});
  }
}

}  // namespace
}  // namespace swordfish
