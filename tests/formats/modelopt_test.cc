// Tests of ModelOpt checkpoints: values of every FP4 scheme, globals kept apart, and each refusal of formats.md 5.8 and section 9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "formats/build_files.h"
#include "quant/numeric.h"
#include "swordfish/checkpoint.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kModule[] = "model.layers.0.mlp.down_proj";

class Modelopt : public testing::Test {
 protected:
  // N = 6, K = 64 unless a test changes it.
  static std::vector<TestTensor> nvfp4(const std::string& module = kModule, float global = 0.375f, std::int64_t block = 16) {
    return {{module + ".weight", "U8", {6, 32}, random_bytes(6 * 32, 1)},
            {module + ".weight_scale", "F8_E4M3", {6, 64 / block}, e4m3_scales(static_cast<std::size_t>(6 * 64 / block), 2)},
            {module + ".weight_scale_2", "F32", {}, raw(std::vector<float>{global})}};
  }
  static std::vector<TestTensor> mxfp4() {
    return {{std::string(kModule) + ".weight", "U8", {6, 32}, random_bytes(6 * 32, 1)},
            {std::string(kModule) + ".weight_scale", "U8", {6, 2}, e8m0_scales(12, 2)}};
  }
  Result<Checkpoint> open(const std::vector<TestTensor>& tensors,
                          const std::string& quantization = R"("quant_algo":"NVFP4")") const {
    folder_.write("config.json",
                  R"({"model_type":"llama","quantization_config":{"quant_method":"modelopt",)" + quantization + "}}");
    folder_.write("model.safetensors", safetensors(tensors));
    return Checkpoint::open(folder_.root());
  }
  // What open() or the load of some layer says.
  std::string refusal(const std::vector<TestTensor>& tensors, const std::string& quantization = R"("quant_algo":"NVFP4")") const {
    const auto checkpoint = open(tensors, quantization);
    if (!checkpoint.ok()) return checkpoint.status().message();
    for (std::size_t i = 0; i < checkpoint->layers().size(); ++i) {
      if (const auto tensor = checkpoint->load(i); !tensor.ok()) return tensor.status().message();
    }
    return "";
  }
  static TestTensor& find(std::vector<TestTensor>& tensors, const std::string& suffix) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const TestTensor& t) { return t.name.ends_with(suffix); });
  }
  static std::vector<TestTensor> without(std::vector<TestTensor> tensors, const std::string& suffix) {
    tensors.erase(std::find_if(tensors.begin(), tensors.end(), [&](const TestTensor& t) { return t.name.ends_with(suffix); }));
    return tensors;
  }
  static int byte(const std::string& bytes, std::int64_t at) {
    return static_cast<unsigned char>(bytes[static_cast<std::size_t>(at)]);
  }
  static double e2m1(int nibble) { return kE2m1[nibble]; }
  TempFolder folder_;
};

TEST_F(Modelopt, Nvfp4MeansItsFormula) {
  for (const auto& [algo, block] : {std::pair{"NVFP4", 16}, {"w4a16_nvfp4", 16}, {"W4A8_NVFP4_FP8", 32}, {"NVFP4_AWQ", 16}}) {
    SCOPED_TRACE(algo);
    const auto tensors = nvfp4(kModule, 0.00111607f, block);
    const auto checkpoint = open(tensors, std::string("\"quant_algo\":\"") + algo + "\",\"group_size\":" + std::to_string(block));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    ASSERT_EQ(checkpoint->layers().size(), 1u);
    const LayerInfo& info = checkpoint->layers()[0];
    EXPECT_EQ(info.name, kModule);
    EXPECT_EQ(info.weight_name, std::string(kModule) + ".weight");
    EXPECT_EQ(info.code, CodeType::fp4);
    EXPECT_EQ(info.group_size, block);
    EXPECT_TRUE(info.has_global);
    const auto tensor = checkpoint->load(0);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    EXPECT_EQ(tensor->global, (Global{0.00111607f, Global::Op::multiply}));
    std::vector<float> w(6 * 64);
    dequantize(*tensor, 0, 6, w.data(), 64);
    for (std::int64_t n = 0; n < 6; ++n) {
      for (std::int64_t k = 0; k < 64; ++k) {
        const int b = byte(tensors[0].bytes, n * 32 + k / 2);
        const float scale = e4m3_to_f32(static_cast<std::uint8_t>(byte(tensors[1].bytes, n * (64 / block) + k / block)));
        const double want = e2m1(k % 2 == 0 ? b & 15 : b >> 4) * scale * static_cast<double>(0.00111607f);
        ASSERT_EQ(w[static_cast<std::size_t>(n * 64 + k)], static_cast<float>(want));
      }
    }
  }
}

TEST_F(Modelopt, ExampleOfTheText) {
  auto tensors = nvfp4(kModule, 3.0f / 2688.0f);
  tensors[0].bytes.assign(6 * 32, '\xf3');
  tensors[1].bytes.assign(6 * 4, '\x3c');
  std::vector<float> w(64);
  dequantize(*open(tensors)->load(0), 0, 1, w.data(), 64);
  EXPECT_FLOAT_EQ(w[0], 0.00251116f);
  EXPECT_FLOAT_EQ(w[1], -0.01004464f);
}

TEST_F(Modelopt, Mxfp4MeansItsFormula) {
  for (const std::string algo : {"mxfp4", "W4A8_MXFP4_FP8"}) {
    for (const std::string type : {"U8", "F8_E8M0"}) {
      auto tensors = mxfp4();
      tensors[1].dtype = type;
      const auto checkpoint = open(tensors, "\"quant_algo\":\"" + algo + "\"");
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
      EXPECT_FALSE(checkpoint->layers()[0].has_global);
      std::vector<float> w(6 * 64);
      dequantize(*checkpoint->load(0), 0, 6, w.data(), 64);
      for (std::int64_t n = 0; n < 6; ++n) {
        for (std::int64_t k = 0; k < 64; ++k) {
          const int b = byte(tensors[0].bytes, n * 32 + k / 2);
          const double want = e2m1(k % 2 == 0 ? b & 15 : b >> 4) * std::ldexp(1.0, byte(tensors[1].bytes, n * 2 + k / 32) - 127);
          ASSERT_EQ(w[static_cast<std::size_t>(n * 64 + k)], static_cast<float>(want));
        }
      }
    }
  }
}

TEST_F(Modelopt, OtherSpellingsOfTheSameTensors) {
  const auto plain = nvfp4();
  const auto reference = open(plain)->load(0);
  std::vector<float> want(6 * 64), w(6 * 64);
  dequantize(*reference, 0, 6, want.data(), 64);
  auto f4 = plain, u8_scale = plain, vector_global = plain;
  f4[0].dtype = "F4";
  f4[0].shape = {6, 64};
  u8_scale[1].dtype = "U8";
  vector_global[2].shape = {1};
  for (const auto& tensors : {f4, u8_scale, vector_global}) {
    const auto checkpoint = open(tensors);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    dequantize(*checkpoint->load(0), 0, 6, w.data(), 64);
    EXPECT_EQ(w, want);
  }
}

TEST_F(Modelopt, InputAndCacheScalesAreIgnored) {
  auto tensors = nvfp4("model.layers.0.self_attn.k_proj");
  for (const std::string leaf : {"input_scale", "k_scale"}) {
    tensors.push_back({"model.layers.0.self_attn.k_proj." + leaf, "F32", {}, raw(std::vector<float>{std::nanf("")})});
  }
  EXPECT_EQ(refusal(tensors, R"("quant_algo":"NVFP4","kv_cache_scheme":"NVFP4")"), "");
}

TEST_F(Modelopt, GateAndUpKeepTheirOwnGlobals) {
  auto tensors = nvfp4("model.layers.0.mlp.gate_proj", 1.0f);
  for (const TestTensor& t : nvfp4("model.layers.0.mlp.up_proj", 0.1f)) tensors.push_back(t);
  const auto checkpoint = open(tensors);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->load(0)->global.value, 1.0f);
  EXPECT_EQ(checkpoint->load(1)->global.value, 0.1f);
  EXPECT_EQ(checkpoint->layers()[0].fused_into, checkpoint->layers()[1].fused_into);
}

// --- stacked experts -------------------------------------------------------------------------------------------------------------

class ModeloptStacked : public Modelopt {
 protected:
  static constexpr std::int64_t kExperts = 3, kK = 64, kN = 10;
  static std::vector<TestTensor> stack(std::vector<std::int64_t> global_shape = {}) {
    const std::string name = "model.layers.0.feed_forward.experts.gate_up_proj";
    std::vector<float> globals(global_shape.empty() ? 1 : static_cast<std::size_t>(global_shape[0]));
    for (std::size_t i = 0; i < globals.size(); ++i) globals[i] = 0.5f + static_cast<float>(i);
    return {{name, "U8", {kExperts, kK / 2, kN}, random_bytes(kExperts * kK / 2 * kN, 3)},
            {name + "_weight_scale", "F8_E4M3", {kExperts, kK / 16, kN}, e4m3_scales(kExperts * kK / 16 * kN, 4)},
            {name + "_weight_scale_2", "F32", std::move(global_shape), raw(globals)}};
  }
};

TEST_F(ModeloptStacked, TransposedValuesAndGlobals) {
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{}, {1}, {kExperts}}) {
    auto tensors = stack(shape);
    tensors.push_back({tensors[0].name + "_bias", "BF16", {kExperts, kN}, std::string(2 * kExperts * kN, '\x3f')});
    tensors.push_back({tensors[0].name + "_input_scale", "F32", {}, raw(std::vector<float>{1})});
    const auto checkpoint = open(tensors);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const LayerInfo& info = checkpoint->layers()[0];
    EXPECT_EQ(info.name, tensors[0].name);
    EXPECT_EQ(info.weight_name, tensors[0].name);
    EXPECT_EQ(info.experts, kExperts);
    EXPECT_EQ(info.n, kN);
    EXPECT_EQ(info.k, kK);
    EXPECT_EQ(info.bias, tensors[3].name);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const auto tensor = checkpoint->load(0, e);
      ASSERT_TRUE(tensor.ok()) << tensor.status().message();
      const float global = shape == std::vector<std::int64_t>{kExperts} ? 0.5f + static_cast<float>(e) : 0.5f;
      EXPECT_EQ(tensor->global.value, global);
      std::vector<float> w(kN * kK);
      dequantize(*tensor, 0, kN, w.data(), kK);
      for (std::int64_t n = 0; n < kN; ++n) {
        for (std::int64_t k = 0; k < kK; ++k) {
          const int b = byte(tensors[0].bytes, (e * kK / 2 + k / 2) * kN + n);
          const float scale = e4m3_to_f32(static_cast<std::uint8_t>(byte(tensors[1].bytes, (e * kK / 16 + k / 16) * kN + n)));
          ASSERT_EQ(w[static_cast<std::size_t>(n * kK + k)],
                    static_cast<float>(e2m1(k % 2 == 0 ? b & 15 : b >> 4) * scale * static_cast<double>(global)));
        }
      }
    }
    EXPECT_EQ(checkpoint->load(0, kExperts).status().code(), Code::invalid_argument);
  }
}

TEST_F(ModeloptStacked, MixedPrecisionNamesTheModuleOfTheStack) {
  EXPECT_EQ(refusal(stack(), R"("quant_algo":"MIXED_PRECISION","quantized_layers":
                    {"model.layers.0.feed_forward.experts":{"quant_algo":"NVFP4","group_size":16}})"),
            "");
}

TEST_F(ModeloptStacked, Refusals) {
  const auto expect = [&](const std::vector<TestTensor>& tensors, const std::string& word) {
    EXPECT_THAT(refusal(tensors), AllOf(HasSubstr(word), HasSubstr("experts.gate_up_proj")));
  };
  expect(without(stack(), "_weight_scale"), "missing");
  expect(without(stack(), "_weight_scale_2"), "missing");
  expect(without(stack(), "gate_up_proj"), "missing");
  expect(stack({2}), "shape");
  auto mx = stack();  // e8m0 scales know no global
  mx[1] = {mx[1].name, "U8", {kExperts, kK / 32, kN}, std::string(kExperts * kK / 32 * kN, '\x7f')};
  EXPECT_THAT(refusal(mx, R"("quant_algo":"mxfp4")"), AllOf(HasSubstr("_weight_scale_2"), HasSubstr("has no global scale")));
  EXPECT_EQ(refusal(without(mx, "_weight_scale_2"), R"("quant_algo":"mxfp4")"), "");
  auto rows_first = stack();  // not transposed
  rows_first[1].shape = {kExperts, kN, kK / 16};
  expect(rows_first, "[E, K/16, N] = [3, 4, 10], found [3, 10, 4]");
  auto plain = without(without(stack(), "_weight_scale"), "_weight_scale_2");
  plain[0].dtype = "I8";
  EXPECT_THAT(refusal({plain[0], nvfp4()[0], nvfp4()[1], nvfp4()[2]}), "");  // another type: no FP4 stack
  const auto changed = [&](std::size_t index, const std::string& type, std::vector<std::int64_t> shape, std::size_t bytes) {
    auto tensors = stack();
    tensors[index] = {tensors[index].name, type, std::move(shape), std::string(bytes, '\x38')};
    return tensors;
  };
  expect(changed(0, "I8", {kExperts, kK / 2, kN}, kExperts * kK / 2 * kN), "expected U8, found I8");
  expect(changed(1, "BF16", {kExperts, kK / 16, kN}, 2 * kExperts * kK / 16 * kN), "found BF16");
  expect(changed(0, "U8", {kExperts, 28, kN}, kExperts * 28 * kN), "K = 56 is not");
  expect(changed(0, "U8", {0, kK / 2, kN}, 0), "[0, 32, 10]");
  auto rank = stack();
  rank[0].shape = {kExperts * kK / 2, kN};
  expect(rank, "rank");
  auto smooth = stack();
  smooth.push_back({smooth[0].name + "_pre_quant_scale", "BF16", {2}, "abcd"});
  expect(smooth, "pre_quant_scale");
}

// --- refusals --------------------------------------------------------------------------------------------------------------------

TEST_F(Modelopt, MissingLeaves) {
  for (const std::string leaf : {".weight", ".weight_scale", ".weight_scale_2"}) {
    EXPECT_THAT(refusal(without(nvfp4(), leaf)),
                AllOf(HasSubstr("missing tensor '" + std::string(kModule) + leaf + "'"), HasSubstr("found:")));
  }
}

TEST_F(Modelopt, ShapesAndTypes) {
  const auto expect = [&](std::vector<TestTensor> tensors, const std::string& suffix, const std::string& type,
                          std::vector<std::int64_t> shape, std::size_t bytes, const std::string& word) {
    TestTensor& t = find(tensors, suffix);
    t.dtype = type;
    t.shape = std::move(shape);
    t.bytes.resize(bytes, '\x38');
    EXPECT_THAT(refusal(tensors), AllOf(HasSubstr(word), HasSubstr(kModule), HasSubstr("model.safetensors"))) << suffix << type;
  };
  expect(nvfp4(), ".weight_scale", "F8_E4M3", {6, 3}, 18, "[N, K/16] = [6, 4], found [6, 3]");
  expect(nvfp4(), ".weight_scale", "F8_E4M3", {128, 4}, 512, "shape");  // rows padded to 128: a device layout, not a checkpoint
  expect(nvfp4(), ".weight_scale", "F8_E4M3", {24}, 24, "shape");
  expect(nvfp4(), ".weight_scale", "BF16", {6, 4}, 48, "found BF16");
  expect(nvfp4(), ".weight_scale", "F32", {6, 4}, 96, "found F32");
  expect(nvfp4(), ".weight_scale_2", "F32", {2}, 8, "scalar");
  expect(nvfp4(), ".weight_scale_2", "F32", {1, 1}, 4, "scalar");
  expect(nvfp4(), ".weight_scale_2", "BF16", {}, 2, "expected F32, found BF16");
  expect(nvfp4(), ".weight", "BF16", {6, 64}, 768, "expected U8 or F4, found BF16");
  expect(nvfp4(), ".weight", "U8", {6, 4, 8}, 192, "rank");
  expect(nvfp4(), ".weight", "U8", {8, 28}, 224, "K = 56 is not a positive multiple of the block size 16");  // row 36
  expect(nvfp4(), ".weight", "U8", {6, 0}, 0, "K = 0");
  auto mx = mxfp4();
  mx[1].shape = {12, 1};
  EXPECT_THAT(refusal(mx, R"("quant_algo":"mxfp4")"), HasSubstr("[N, K/32] = [6, 2]"));
  mx[1].dtype = "F8_E4M3";
  EXPECT_THAT(refusal(mx, R"("quant_algo":"mxfp4")"), HasSubstr("expected F8_E8M0 or U8, found F8_E4M3"));
}

TEST_F(Modelopt, AmbiguousByteScalesAreDecidedByConfiguration) {
  auto tensors = mxfp4();  // U8 scales [N, K/32] under NVFP4
  tensors.push_back(nvfp4()[2]);
  EXPECT_THAT(refusal(tensors), HasSubstr("[N, K/16]"));
  EXPECT_THAT(refusal(tensors, R"("quant_algo":"mxfp4")"), HasSubstr("has no global scale"));
}

TEST_F(Modelopt, Values) {
  for (const char bad : {'\x7f', '\xff', '\x81', '\xb8'}) {
    auto tensors = nvfp4();
    tensors[1].bytes[17] = bad;
    EXPECT_THAT(refusal(tensors), AllOf(HasSubstr("weight_scale'"), HasSubstr("index 17 ")));
  }
  auto zero = nvfp4();
  zero[1].bytes[3] = '\x80';
  zero[1].bytes[4] = '\x00';
  EXPECT_EQ(refusal(zero), "");
  for (const float bad : {0.0f, -1.0f, std::nanf(""), INFINITY, std::numeric_limits<float>::denorm_min()}) {
    EXPECT_THAT(refusal(nvfp4(kModule, bad)), AllOf(HasSubstr("weight_scale_2"), HasSubstr("global"), HasSubstr("multiplier")));
  }
  auto mx = mxfp4();
  mx[1].bytes[5] = '\xff';
  EXPECT_THAT(refusal(mx, R"("quant_algo":"mxfp4")"), AllOf(HasSubstr("index 5 "), HasSubstr("0xff")));
}

TEST_F(Modelopt, Configuration) {
  EXPECT_THAT(refusal(nvfp4(), R"("quant_algo":"NVFP9")"), AllOf(HasSubstr("quant_algo 'NVFP9'"), HasSubstr("supported: NVFP4")));
  for (const std::string algo : {"FP8", "MXFP8", "FP8_PB_WO", "W4A16_AWQ", "NVFP4_SVD"}) {
    EXPECT_THAT(refusal(nvfp4(), "\"quant_algo\":\"" + algo + "\""), AllOf(HasSubstr(algo), HasSubstr("config.json")));
  }
  EXPECT_THAT(refusal(nvfp4(), R"("producer":{})"), AllOf(HasSubstr("quant_algo"), HasSubstr("missing")));
  EXPECT_THAT(refusal(nvfp4(), R"("quant_algo":4)"), AllOf(HasSubstr("quant_algo"), HasSubstr("string")));
  EXPECT_THAT(refusal(nvfp4(), R"("quant_algo":"NVFP4","group_size":32)"),
              AllOf(HasSubstr("group_size 32"), HasSubstr("supported: 16")));
  EXPECT_THAT(refusal(nvfp4(), R"("quant_algo":"NVFP4","config_groups":{"group_0":{"weights":{"group_size":64}}})"),
              HasSubstr("group_size 64"));
  EXPECT_THAT(refusal(nvfp4(), R"("quant_algo":"W4A8_NVFP4_FP8","group_size":16)"), HasSubstr("supported: 32"));
  EXPECT_THAT(refusal(nvfp4(), R"("quant_algo":"NVFP4","ignore":"lm_head")"), AllOf(HasSubstr("ignore"), HasSubstr("array")));
}

TEST_F(Modelopt, TransformsAreRefusedByTensor) {
  for (const std::string leaf : {"pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b"}) {
    auto tensors = nvfp4();
    tensors.push_back({std::string(kModule) + "." + leaf, "BF16", {2}, "abcd"});
    EXPECT_THAT(refusal(tensors, R"("quant_algo":"NVFP4_AWQ","pre_quant_scale":true)"), AllOf(HasSubstr(leaf), HasSubstr(kModule)));
  }
  EXPECT_EQ(refusal(nvfp4(), R"("quant_algo":"NVFP4","pre_quant_scale":true)"), "");  // the key alone says nothing
}

TEST_F(Modelopt, ExclusionsMustAgreeWithTensors) {
  const TestTensor plain{"model.layers.1.mlp.down_proj.weight", "BF16", {2, 2}, std::string(8, 'a')};
  auto tensors = nvfp4();
  tensors.push_back(plain);
  EXPECT_THAT(refusal(tensors), AllOf(HasSubstr("model.layers.1.mlp.down_proj"), HasSubstr("plain weight")));
  for (const std::string entry : {"model.layers.1.mlp.down_proj", "model.layers.1", "model.layers.1*", "*.1.mlp*"}) {
    EXPECT_EQ(refusal(tensors, R"("quant_algo":"NVFP4","exclude_modules":[")" + entry + "\"]"), "") << entry;
  }
  EXPECT_THAT(refusal(nvfp4(), R"("quant_algo":"NVFP4","ignore":["model.layers.0*"])"),
              AllOf(HasSubstr(kModule), HasSubstr("excluded")));
  // Only the tensors decide about routers, heads and embeddings; a tower without any quantized module is left alone.
  for (const std::string name : {"lm_head", "model.embed_tokens", "model.layers.0.mlp.gate", "visual.blocks.0.attn.q_proj"}) {
    auto other = nvfp4();
    other.push_back({name + ".weight", "BF16", {2, 2}, std::string(8, 'a')});
    EXPECT_EQ(refusal(other), "") << name;
  }
  EXPECT_EQ(refusal(nvfp4("lm_head"), R"("quant_algo":"NVFP4","ignore":["lm_head"])"), "");
}

TEST_F(Modelopt, MixedPrecision) {
  const std::string other = "model.layers.0.self_attn.q_proj";
  const auto layers = [](const std::string& list) {
    return R"("quant_algo":"MIXED_PRECISION","ignore":[],"quantized_layers":{)" + list + "}";
  };
  const std::string nv = "\"" + std::string(kModule) + R"(":{"quant_algo":"NVFP4","group_size":16})";
  EXPECT_EQ(refusal(nvfp4(), layers(nv)), "");
  EXPECT_THAT(refusal(nvfp4(other), layers(nv)), AllOf(HasSubstr(other), HasSubstr("quantized_layers")));
  EXPECT_THAT(refusal(nvfp4(), layers("\"" + std::string(kModule) + R"(":{"quant_algo":"NVFP4","group_size":32})")),
              HasSubstr("group_size 32"));
  EXPECT_THAT(refusal(nvfp4(), R"("quant_algo":"MIXED_PRECISION")"), HasSubstr("without quantized_layers"));
  EXPECT_THAT(refusal(nvfp4(), layers("\"" + std::string(kModule) + R"(":{"group_size":16})")),
              AllOf(HasSubstr("quantized_layers"), HasSubstr("'quant_algo' (string) is missing")));
  EXPECT_THAT(
      refusal({{other + ".weight", "BF16", {2, 2}, std::string(8, 'a')}}, layers("\"" + other + R"(":{"quant_algo":"NVFP4"})")),
      AllOf(HasSubstr(other), HasSubstr("plain weight")));

  // FP8 modules are refused by name; the rest can still be listed.
  auto tensors = nvfp4();
  tensors.push_back({other + ".weight", "F8_E4M3", {2, 2}, "abcd"});
  tensors.push_back({other + ".weight_scale", "F32", {}, "abcd"});
  const std::string mixed = layers(nv + ",\"" + other + R"(":{"quant_algo":"FP8"})");
  EXPECT_THAT(refusal(tensors, mixed), AllOf(HasSubstr("FP8"), HasSubstr(other)));
  Status problem;
  const Checkpoint partial = Checkpoint::open_partial(folder_.root(), {}, problem);
  EXPECT_FALSE(problem.ok());
  ASSERT_EQ(partial.layers().size(), 1u);
  EXPECT_EQ(partial.layers()[0].name, kModule);
}

}  // namespace
}  // namespace swordfish
