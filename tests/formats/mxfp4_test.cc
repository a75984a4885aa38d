// Tests of gpt-oss and DeepSeek MXFP4 files: values, interleaved rows, both namings, and the refusals of formats.md 6.3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/build_files.h"
#include "quant/numeric.h"
#include "swordfish/checkpoint.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kExperts = 2, kRows = 6, kBlocks = 3, kK = 32 * kBlocks;

class Mxfp4 : public testing::Test {
 protected:
  Result<Checkpoint> open(const std::vector<TestTensor>& tensors, const std::string& config = kGptOss) const {
    folder_.write("config.json", config);
    folder_.write("model.safetensors", safetensors(tensors));
    return Checkpoint::open(folder_.root());
  }
  std::string refusal(const std::vector<TestTensor>& tensors, const std::string& config = kGptOss) const {
    const auto checkpoint = open(tensors, config);
    if (!checkpoint.ok()) return checkpoint.status().message();
    for (std::size_t i = 0; i < checkpoint->layers().size(); ++i) {
      if (const auto tensor = checkpoint->load(i); !tensor.ok()) return tensor.status().message();
    }
    return "";
  }
  static std::vector<TestTensor> gptoss(const std::string& stem = "model.layers.0.mlp.experts.gate_up_proj", char separator = '_') {
    return {{stem + separator + "blocks", "U8", {kExperts, kRows, kBlocks, 16}, random_bytes(kExperts * kRows * kBlocks * 16, 1)},
            {stem + separator + "scales", "U8", {kExperts, kRows, kBlocks}, e8m0_scales(kExperts * kRows * kBlocks, 2)}};
  }
  static std::vector<TestTensor> deepseek(const std::string& module = "layers.0.ffn.experts.0.w1") {
    return {{module + ".weight", "I8", {kRows, kK / 2}, random_bytes(kRows * kK / 2, 3)},
            {module + ".scale", "F8_E8M0", {kRows, kBlocks}, e8m0_scales(kRows * kBlocks, 4)}};
  }
  static void expect_values(const QuantTensor& t, const std::string& codes, const std::string& scales, std::int64_t row0) {
    std::vector<float> w(static_cast<std::size_t>(t.n * t.k));
    dequantize(t, 0, t.n, w.data(), t.k);
    for (std::int64_t n = 0; n < t.n; ++n) {
      for (std::int64_t k = 0; k < t.k; ++k) {
        // Element k of a row is nibble k%2 of byte (k%32)/2 of block k/32.
        const auto byte =
            static_cast<unsigned char>(codes[static_cast<std::size_t>(((row0 + n) * kBlocks + k / 32) * 16 + k % 32 / 2)]);
        const auto scale = static_cast<unsigned char>(scales[static_cast<std::size_t>((row0 + n) * kBlocks + k / 32)]);
        ASSERT_EQ(w[static_cast<std::size_t>(n * t.k + k)],
                  kE2m1[k % 2 == 0 ? byte & 15 : byte >> 4] * std::ldexp(1.0f, scale - 127));
      }
    }
  }
  static constexpr char kGptOss[] =
      R"({"model_type":"gpt_oss","quantization_config":{"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]}})";
  static constexpr char kDeepSeek[] =
      R"({"model_type":"deepseek_v4","expert_dtype":"fp4","quantization_config":{"quant_method":"fp8"}})";
  TempFolder folder_;
};

TEST_F(Mxfp4, GptOssRowsStayAsStored) {
  auto tensors = gptoss();
  tensors.push_back(
      {"model.layers.0.mlp.experts.gate_up_proj_bias", "BF16", {kExperts, kRows}, std::string(2 * kExperts * kRows, '\x3f')});
  const auto checkpoint = open(tensors);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ASSERT_EQ(checkpoint->layers().size(), 1u);
  const LayerInfo& info = checkpoint->layers()[0];
  EXPECT_EQ(info.name, "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(info.weight_name, info.name);
  EXPECT_EQ(info.experts, kExperts);
  EXPECT_EQ(info.n, kRows);
  EXPECT_EQ(info.k, kK);
  EXPECT_EQ(info.bias, info.name + "_bias");
  for (std::int64_t e = 0; e < kExperts; ++e) expect_values(*checkpoint->load(0, e), tensors[0].bytes, tensors[1].bytes, e * kRows);

  // De-interleaved by a slice with step 2: row i of gate is row 2i, of up row 2i+1.
  const auto whole = checkpoint->load(0, 1);
  const auto up = slice(*whole, 1, kRows / 2, 2, 0, kK);
  std::vector<float> w(kRows * kK), u(kRows / 2 * kK);
  dequantize(*whole, 0, kRows, w.data(), kK);
  dequantize(*up, 0, kRows / 2, u.data(), kK);
  for (std::int64_t i = 0; i < kRows / 2; ++i)
    EXPECT_EQ(u[static_cast<std::size_t>(i * kK + 7)], w[static_cast<std::size_t>((2 * i + 1) * kK + 7)]);
}

TEST_F(Mxfp4, ExampleOfTheText) {
  auto tensors = gptoss();
  tensors[0].bytes.assign(tensors[0].bytes.size(), '\x2a');  // scale 7E (0.5), byte 2A: −0.5, 0.5
  tensors[1].bytes.assign(tensors[1].bytes.size(), '\x7e');
  std::vector<float> w(kK);
  dequantize(*open(tensors)->load(0), 0, 1, w.data(), kK);
  EXPECT_EQ(w[0], -0.5f);
  EXPECT_EQ(w[1], 0.5f);
}

TEST_F(Mxfp4, OriginalNames) {
  auto tensors = gptoss("block.3.mlp.mlp1_weight", '.');
  tensors.push_back({"block.3.mlp.mlp1_bias", "BF16", {kExperts, kRows}, std::string(2 * kExperts * kRows, '\x3f')});
  const auto checkpoint = open(tensors, R"({"num_experts":2,"experts_per_token":2,"swiglu_limit":7.0})");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->layers()[0].weight_name, "block.3.mlp.mlp1_weight");
  EXPECT_EQ(checkpoint->layers()[0].bias, "block.3.mlp.mlp1_bias");
  expect_values(*checkpoint->load(0, 1), tensors[0].bytes, tensors[1].bytes, kRows);
}

TEST_F(Mxfp4, GptOssRefusals) {
  const std::string stem = "model.layers.0.mlp.experts.gate_up_proj";
  const auto expect = [&](const std::vector<TestTensor>& tensors, const std::string& word) {
    EXPECT_THAT(refusal(tensors), AllOf(HasSubstr(word), HasSubstr(stem), HasSubstr("model.safetensors")));
  };
  expect({gptoss()[0]}, "missing tensor '" + stem + "_scales'");
  expect({gptoss()[1]}, "missing tensor '" + stem + "_blocks'");
  auto t = gptoss();
  t[0].shape = {kExperts, kRows, 2 * kBlocks, 8};
  expect(t, "[E, N, K/32, 16], found [2, 6, 6, 8]");
  t = gptoss();
  t[0].shape = {kExperts, kRows, kBlocks * 16};
  expect(t, "shape");
  for (const std::vector<std::int64_t>& empty : {std::vector<std::int64_t>{0, kRows, kBlocks, 16}, {kExperts, kRows, 0, 16}}) {
    t = gptoss();
    t[0] = {t[0].name, "U8", empty, ""};
    t[1] = {t[1].name, "U8", {empty[0], empty[1], empty[2]}, ""};
    expect(t, empty[0] == 0 ? "[0, 6, 3, 16]" : "K is 0");
  }
  t = gptoss();
  t[1].shape = {kExperts, kBlocks, kRows};
  expect(t, "= [2, 6, 3], found [2, 3, 6]");
  t = gptoss();
  t[0].dtype = "I8";
  expect(t, "expected U8, found I8");
  t = gptoss();
  t[1].dtype = "F8_E4M3";
  expect(t, "dtype");
  t = gptoss();
  t[1].bytes[4] = '\xff';
  expect(t, "index 4 is NaN");
  t = gptoss();
  t[1].bytes[4] = '\x00';  // 2^-127, used for blocks of zeros
  EXPECT_EQ(refusal(t), "");
  EXPECT_THAT(refusal({{"lm_head.weight", "BF16", {1, 1}, "ab"}}), HasSubstr("_blocks"));
  const auto stated =
      open(gptoss(), R"({"model_type":"gpt_oss","num_local_experts":4,"quantization_config":{"quant_method":"mxfp4"}})");
  ASSERT_FALSE(stated.ok());
  EXPECT_THAT(stated.status().message(), AllOf(HasSubstr(stem), HasSubstr("holds 2 experts"), HasSubstr("states 4")));
  for (const auto& [type, rows, word] : {std::tuple{"BF16", kRows - 1, "[2, 5]"}, {"I16", std::int64_t{kRows}, "I16"}}) {
    t = gptoss();
    t.push_back({stem + "_bias", type, {kExperts, rows}, std::string(static_cast<std::size_t>(2 * kExperts * rows), '\0')});
    EXPECT_THAT(open(t)->load_bias(0, 1).status().message(), AllOf(HasSubstr(stem + "_bias"), HasSubstr(word)));
  }
}

TEST_F(Mxfp4, DeepSeekExperts) {
  auto tensors = deepseek();
  tensors.push_back({"layers.0.attn.wq_a.weight", "F8_E4M3", {2, 2}, "abcd"});
  tensors.push_back({"layers.0.attn.wq_a.scale", "F8_E8M0", {1, 1}, "a"});
  for (const std::string module : {"layers.0.ffn.shared_experts.w1", "layers.1.ffn.experts.0.w1"}) {  // experts in FP8
    tensors.push_back({module + ".weight", "F8_E4M3", {2, 2}, "abcd"});
    tensors.push_back({module + ".scale", "F8_E8M0", {1, 1}, "a"});
  }
  const auto checkpoint = open(tensors, kDeepSeek);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ASSERT_EQ(checkpoint->layers().size(), 1u);
  EXPECT_EQ(checkpoint->layers()[0].name, "layers.0.ffn.experts.0.w1");
  EXPECT_EQ(checkpoint->layers()[0].experts, 0);
  expect_values(*checkpoint->load(0), tensors[0].bytes, tensors[1].bytes, 0);
  EXPECT_THAT(checkpoint->not_packed(),
              ElementsAre("layers.0.attn.wq_a.weight: F8_E4M3", "layers.0.ffn.shared_experts.w1.weight: F8_E4M3",
                          "layers.1.ffn.experts.0.w1.weight: F8_E4M3"));
}

TEST_F(Mxfp4, DeepSeekRefusals) {
  EXPECT_THAT(refusal({deepseek()[0]}, kDeepSeek), HasSubstr("missing tensor 'layers.0.ffn.experts.0.w1.scale'"));
  EXPECT_THAT(refusal({deepseek()[1]}, kDeepSeek), HasSubstr("missing tensor 'layers.0.ffn.experts.0.w1.weight'"));
  auto t = deepseek();
  t[1].shape = {kBlocks, kRows};
  EXPECT_THAT(refusal(t, kDeepSeek), HasSubstr("[N, K/32] = [6, 3]"));
  t = deepseek();
  t[0].shape = {kRows * kK / 16, 8};
  EXPECT_THAT(refusal(t, kDeepSeek), HasSubstr("K = 16 is not"));
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{kRows * kK / 2}, {kRows, 0}}) {
    t = deepseek();
    t[0].shape = shape;
    t[0].bytes.resize(shape.size() == 1 ? t[0].bytes.size() : 0);
    EXPECT_THAT(refusal(t, kDeepSeek), HasSubstr(shape.size() == 1 ? "rank" : "K = 0 is not"));
  }
  t = deepseek();
  t[0].dtype = "U8";
  EXPECT_THAT(refusal(t, kDeepSeek), HasSubstr("expected I8, found U8"));
  t = deepseek();
  t[1].dtype = "U8";
  EXPECT_THAT(refusal(t, kDeepSeek), HasSubstr("expected F8_E8M0, found U8"));
  t = deepseek();
  t[1].bytes[1] = '\xff';
  EXPECT_THAT(refusal(t, kDeepSeek), AllOf(HasSubstr("w1.scale"), HasSubstr("index 1 ")));
  EXPECT_THAT(refusal(deepseek(), R"({"expert_dtype":"fp8","quantization_config":{"quant_method":"fp8"}})"),
              AllOf(HasSubstr("expert_dtype"), HasSubstr("fp8")));
  EXPECT_THAT(refusal({{"a.weight", "F8_E4M3", {2, 2}, "abcd"}}, R"({"quantization_config":{"quant_method":"fp8"}})"),
              HasSubstr("FP8"));
}

}  // namespace
}  // namespace swordfish
