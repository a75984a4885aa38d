// Tests of the quantizer: quantize, open, dequantize; every weight within half a step; refusals and the all-or-nothing output.
#include "swordfish/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "formats/build_files.h"
#include "quant/numeric.h"
#include "swordfish/checkpoint.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr char kDown[] = "model.layers.0.mlp.down_proj";

class Quantize : public testing::Test {
 protected:
  // Gaussian weights with a few loud columns, a zero group and a tiny one.
  static std::vector<float> weights(std::int64_t n, std::int64_t k, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    std::vector<float> w(static_cast<std::size_t>(n * k));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = normal(random) * (i % 37 == 5 ? 20.0f : 1.0f);
    for (std::size_t i = 0; i < 64 && i < w.size(); ++i) w[i] = 0.0f;
    for (std::size_t i = 64; i < 128 && i < w.size(); ++i) w[i] *= 0x1p-40f;
    return w;
  }
  static TestTensor tensor(const std::string& name, const std::string& type, std::int64_t n, std::int64_t k, std::vector<float> w) {
    std::string bytes;
    if (type == "F32") bytes = raw(w);
    if (type != "F32") {
      std::vector<std::uint16_t> half;
      for (const float v : w) half.push_back(type == "BF16" ? f32_to_bf16(v) : f32_to_f16(v));
      bytes = raw(half);
    }
    return {name, type, {n, k}, bytes};
  }
  // What a reader of the input sees.
  static std::vector<double> values(const TestTensor& t) {
    std::vector<double> v;
    const int size = t.dtype == "F32" ? 4 : 2;
    for (std::size_t i = 0; i < t.bytes.size(); i += static_cast<std::size_t>(size)) {
      const auto* p = reinterpret_cast<const std::byte*>(t.bytes.data()) + i;
      v.push_back(plane_value(t.dtype == "F32" ? DType::f32 : t.dtype == "F16" ? DType::f16 : DType::bf16, p));
    }
    return v;
  }
  static std::vector<TestTensor> model(const std::string& type = "BF16") {
    return {tensor("model.embed_tokens.weight", type, 16, 128, weights(16, 128, 1)),
            tensor(std::string(kDown) + ".weight", type, 20, 256, weights(20, 256, 2)),
            tensor("model.layers.0.self_attn.q_proj.weight", type, 16, 128, weights(16, 128, 3)),
            {"model.layers.0.self_attn.q_proj.bias", "BF16", {16}, random_bytes(32, 4)},
            {"model.norm.weight", "F32", {5}, random_bytes(20, 5)},
            {"model.ids", "I64", {2}, random_bytes(16, 6)},
            tensor("model.layers.0.mlp.gate.weight", type, 8, 128, weights(8, 128, 7)),
            tensor("lm_head.weight", type, 16, 128, weights(16, 128, 8))};
  }
  std::string in() const { return folder_.path("in"); }
  std::string out() const { return folder_.path("out"); }
  void write_input(const std::vector<TestTensor>& tensors,
                   const std::string& config = R"({"model_type":"llama","rms_norm_eps":1e-06})") {
    std::filesystem::create_directories(in());
    folder_.write("in/config.json", config);
    folder_.write("in/model.safetensors", safetensors(tensors));
  }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.root())) names.push_back(entry.path().filename());
    return names;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static const TensorInfo& info(const Checkpoint& checkpoint, const std::string& name) {
    return *std::find_if(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                         [&](const TensorInfo& t) { return t.name == name; });
  }

  // |w − q(w)| ≤ half of the step between neighbouring codes (and the rounding of q(w) to fp32), element by element.
  void expect_half_step(const std::vector<TestTensor>& tensors, const Checkpoint& checkpoint) {
    for (std::size_t layer = 0; layer < checkpoint.layers().size(); ++layer) {
      const LayerInfo& l = checkpoint.layers()[layer];
      const auto source =
          std::find_if(tensors.begin(), tensors.end(), [&](const TestTensor& t) { return t.name == l.weight_name; });
      ASSERT_NE(source, tensors.end()) << l.weight_name;
      const std::vector<double> want = values(*source);
      const auto t = checkpoint.load(layer);
      ASSERT_TRUE(t.ok()) << t.status().message();
      std::vector<float> got(static_cast<std::size_t>(l.n * l.k));
      dequantize(*t, 0, l.n, got.data(), l.k);
      for (std::int64_t n = 0; n < l.n; ++n) {
        for (std::int64_t k = 0; k < l.k; ++k) {
          const auto i = static_cast<std::size_t>(n * l.k + k);
          const double scale = static_cast<double>(plane_value(t->scales.type, t->scales.at(n, t->row(k)))) * t->global.value;
          double step = scale;
          if (l.code == CodeType::fp4) {  // steps of e2m1: 0.5 up to 2, 1 up to 4, 2 beyond
            const double x = std::fabs(want[i]) / scale;
            step = scale * (x <= 2 ? 0.5 : x <= 4 ? 1 : 2);
          }
          ASSERT_LE(std::fabs(want[i] - static_cast<double>(got[i])), step / 2 * (1 + 1e-9) + std::fabs(want[i]) * 0x1p-24)
              << l.name << " " << n << "," << k;
        }
      }
    }
  }
  TempFolder folder_;
};

TEST_F(Quantize, EverySchemeTypeAndGroupIsWithinHalfAStep) {
  struct Case {
    QuantizeScheme scheme;
    std::int64_t group;
    bool symmetric;
    DType scale;
  };
  std::vector<Case> cases = {{QuantizeScheme::nvfp4, 128, true, DType::bf16}, {QuantizeScheme::mxfp4, 128, true, DType::bf16}};
  for (const auto scheme : {QuantizeScheme::int4, QuantizeScheme::int8}) {
    for (const std::int64_t group : {16, 64, 128, -1}) {
      for (const bool symmetric : {false, true}) {
        for (const DType scale : {DType::bf16, DType::f16, DType::f32}) cases.push_back({scheme, group, symmetric, scale});
      }
    }
  }
  for (const std::string type : {"BF16", "F16", "F32"}) {
    const auto tensors = model(type);
    write_input(tensors);
    for (const Case& c : cases) {
      SCOPED_TRACE(testing::Message() << type << " " << name(c.scheme) << " group " << c.group << " sym " << c.symmetric
                                      << " scale " << name(c.scale));
      QuantizeOptions options;
      options.scheme = c.scheme;
      options.group_size = c.group;
      options.symmetric = c.symmetric;
      options.scale_type = c.scale;
      options.force = true;
      options.threads = 2;
      const auto report = quantize_checkpoint(in(), out(), options);
      ASSERT_TRUE(report.ok()) << report.status().message();
      EXPECT_EQ(report->quantized, 2);
      EXPECT_EQ(report->copied, 6);
      EXPECT_EQ(report->written_bytes, std::filesystem::file_size(out() + "/model.safetensors"));
      const auto checkpoint = Checkpoint::open(out());
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
      ASSERT_EQ(checkpoint->layers().size(), 2u);
      const bool fp4 = c.scheme == QuantizeScheme::nvfp4 || c.scheme == QuantizeScheme::mxfp4;
      for (const LayerInfo& l : checkpoint->layers()) {
        EXPECT_EQ(l.code, fp4 ? CodeType::fp4 : c.scheme == QuantizeScheme::int8 ? CodeType::int8 : CodeType::int4);
        EXPECT_EQ(l.zero, fp4 || c.symmetric ? ZeroKind::constant : ZeroKind::integers);
        EXPECT_TRUE(fp4 || l.scale_type == c.scale);
      }
      expect_half_step(tensors, *checkpoint);
      if (HasFatalFailure()) return;
      // Everything else is there, byte for byte.
      for (const TestTensor& t : tensors) {
        if (t.name == std::string(kDown) + ".weight" || t.name == "model.layers.0.self_attn.q_proj.weight") continue;
        const auto bytes = checkpoint->read(info(*checkpoint, t.name));
        ASSERT_TRUE(bytes.ok());
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()), t.bytes) << t.name;
      }
    }
  }
  EXPECT_THAT(left(), UnorderedElementsAre("in", "out"));
}

TEST_F(Quantize, RowsThatDoNotFillAWord) {
  const std::vector<TestTensor> tensors = {tensor("a.q_proj.weight", "F32", 13, 36, weights(13, 36, 1))};
  write_input(tensors);
  QuantizeOptions options;
  options.group_size = -1;
  options.symmetric = false;
  const auto report = quantize_checkpoint(in(), out(), options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto checkpoint = Checkpoint::open(out());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(info(*checkpoint, "a.q_proj.weight_packed").shape, (std::vector<std::int64_t>{13, 5}));
  EXPECT_EQ(info(*checkpoint, "a.q_proj.weight_zero_point").shape, (std::vector<std::int64_t>{2, 1}));
  expect_half_step(tensors, *checkpoint);
}

TEST_F(Quantize, ExactWeightsComeBackExactly) {
  // Integers -8..7 times a power of two, with the extremes in every group: nothing is lost.
  std::vector<float> w(4 * 64);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = (static_cast<float>(i % 16) - 8.0f) * 0.25f;
  const std::vector<TestTensor> tensors = {tensor("a.o_proj.weight", "BF16", 4, 64, w)};
  write_input(tensors);
  QuantizeOptions options;
  options.group_size = 32;
  ASSERT_TRUE(quantize_checkpoint(in(), out(), options).ok());
  const auto checkpoint = Checkpoint::open(out());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<float> got(w.size());
  dequantize(*checkpoint->load(0), 0, 4, got.data(), 64);
  EXPECT_EQ(got, w);
}

TEST_F(Quantize, ConfigurationKeepsTheInputsKeysAndListsWhatIsIgnored) {
  write_input(model());
  QuantizeOptions options;
  options.layers = "down_proj$";
  const auto report = quantize_checkpoint(in(), out(), options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->quantized, 1);
  const std::string config = read(out() + "/config.json");
  for (const char* part : {"\"model_type\": \"llama\"", "\"rms_norm_eps\"", "\"quant_method\": \"compressed-tensors\"",
                           "\"format\": \"pack-quantized\"", "\"model.layers.0.self_attn.q_proj\"", "\"lm_head\"",
                           "\"model.embed_tokens\"", "\"model.layers.0.mlp.gate\""}) {
    EXPECT_THAT(config, HasSubstr(part));
  }
  const auto checkpoint = Checkpoint::open(out());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT(checkpoint->unquantized(), testing::Contains("model.layers.0.self_attn.q_proj.weight"));
}

TEST_F(Quantize, SingleFileWithoutConfiguration) {
  const std::string file = folder_.write("dense.safetensors", safetensors(model()));
  QuantizeOptions options;
  options.scheme = QuantizeScheme::mxfp4;
  ASSERT_TRUE(quantize_checkpoint(file, out(), options).ok());
  const auto checkpoint = Checkpoint::open(out());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->layers().size(), 2u);
}

TEST_F(Quantize, Nvfp4PartsOfAFusedModuleShareTheirGlobal) {
  std::vector<float> loud = weights(16, 128, 2);
  loud[500] = 100.0f;
  write_input({tensor("model.layers.0.mlp.gate_proj.weight", "F32", 16, 128, weights(16, 128, 1)),
               tensor("model.layers.0.mlp.up_proj.weight", "F32", 16, 128, loud),
               tensor("model.layers.0.mlp.down_proj.weight", "F32", 16, 128, std::vector<float>(16 * 128, 0.0f))});
  QuantizeOptions options;
  options.scheme = QuantizeScheme::nvfp4;
  ASSERT_TRUE(quantize_checkpoint(in(), out(), options).ok());
  EXPECT_THAT(read(out() + "/hf_quant_config.json"), HasSubstr("W4A16_NVFP4"));
  const auto checkpoint = Checkpoint::open(out());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ASSERT_EQ(checkpoint->layers().size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto t = checkpoint->load(i);
    ASSERT_TRUE(t.ok()) << t.status().message();
    EXPECT_EQ(t->global.value, t->name.ends_with("down_proj") ? 1.0f : 100.0f / 2688.0f);
  }
}

TEST_F(Quantize, NonFiniteWeightsAreRefusedAndNothingRemains) {
  for (const auto scheme : {QuantizeScheme::int4, QuantizeScheme::nvfp4, QuantizeScheme::mxfp4}) {
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      for (const std::string type : {"BF16", "F16", "F32"}) {
        auto w = weights(16, 128, 1);
        w[1234] = bad;
        write_input({tensor("a.k_proj.weight", type, 16, 128, weights(16, 128, 2)), tensor("a.q_proj.weight", type, 16, 128, w)});
        QuantizeOptions options;
        options.scheme = scheme;
        const Status status = quantize_checkpoint(in(), out(), options).status();
        EXPECT_EQ(status.code(), Code::malformed);
        EXPECT_THAT(status.message(),
                    AllOf(HasSubstr("a.q_proj.weight"), HasSubstr("weight at index 1234 "), HasSubstr("model.safetensors")));
        EXPECT_THAT(left(), ElementsAre("in"));
      }
    }
  }
}

TEST_F(Quantize, Refusals) {
  const auto refuse = [&](const QuantizeOptions& options, Code code, const std::string& word) {
    const Status status = quantize_checkpoint(in(), out(), options).status();
    EXPECT_EQ(status.code(), code) << word;
    EXPECT_THAT(status.message(), HasSubstr(word));
    EXPECT_THAT(left(), ElementsAre("in"));
  };
  write_input(model());
  QuantizeOptions options;
  options.group_size = 96;  // K = 256 and 128
  refuse(options, Code::invalid_argument, "K = 256 is not a positive multiple of the group size 96");
  for (const std::int64_t group : {0, -2, 8, 24}) {
    options.group_size = group;
    refuse(options, Code::invalid_argument, "group size " + std::to_string(group));
  }
  options = {};
  options.scale_type = DType::f8_e4m3;
  refuse(options, Code::invalid_argument, "F8_E4M3");
  options = {};
  options.layers = "nothing";
  refuse(options, Code::invalid_argument, "nothing to quantize");
  options.layers = "(";
  refuse(options, Code::malformed, "layers");
  write_input({tensor("a.q_proj.weight", "F32", 1, 40, std::vector<float>(40, 1.0f))});
  options = {};
  options.scheme = QuantizeScheme::nvfp4;
  refuse(options, Code::invalid_argument, "K = 40");
  options = {};
  options.scale_type = DType::f16;
  options.group_size = -1;
  write_input({tensor("a.q_proj.weight", "F32", 1, 40, std::vector<float>(40, 1e6f))});
  refuse(options, Code::unsupported, "beyond the range of F16");
  write_input({tensor("a.q_proj.weight", "F32", 1, 40, std::vector<float>(40, 1.0f)),
               {"a.q_proj.weight_scale", "I64", {1}, std::string(8, 'a')}});
  refuse(options, Code::malformed, "a.q_proj.weight_scale");
  write_input(model(), R"({"quantization_config":{"quant_method":"gptq"}})");
  refuse({}, Code::unsupported, "quantized already");
  EXPECT_EQ(quantize_checkpoint(folder_.path("none"), out(), {}).status().code(), Code::io);
}

TEST_F(Quantize, AnExistingOutputIsReplacedOnlyByForceAndOnlyIfItIsAnEarlierResult) {
  write_input(model());
  QuantizeOptions options;
  ASSERT_TRUE(quantize_checkpoint(in(), out(), options).ok());
  const std::string first = read(out() + "/model.safetensors");
  options.scheme = QuantizeScheme::int8;
  EXPECT_THAT(quantize_checkpoint(in(), out(), options).status().message(), HasSubstr("exists already"));
  EXPECT_EQ(read(out() + "/model.safetensors"), first);
  options.force = true;
  ASSERT_TRUE(quantize_checkpoint(in(), out(), options).ok());
  EXPECT_NE(read(out() + "/model.safetensors"), first);
  folder_.write("out/notes.txt", "mine");
  EXPECT_THAT(quantize_checkpoint(in(), out(), options).status().message(), HasSubstr("notes.txt"));
  EXPECT_EQ(read(out() + "/notes.txt"), "mine");
  EXPECT_THAT(quantize_checkpoint(in(), in(), options).status().message(), HasSubstr("cannot replace the input"));
  EXPECT_THAT(left(), UnorderedElementsAre("in", "out"));
}

TEST_F(Quantize, ProgressRunsToTheEndAndCanCancel) {
  write_input(model());
  struct Seen {
    std::uint64_t last = 0, total = 0, stop_at = std::numeric_limits<std::uint64_t>::max();
    bool rising = true;
  } seen;
  const auto progress = [](std::uint64_t done, std::uint64_t total, void* user) {
    auto& s = *static_cast<Seen*>(user);
    s.rising = s.rising && done >= s.last && done <= total;
    s.last = done;
    s.total = total;
    return done < s.stop_at;
  };
  for (const auto scheme : {QuantizeScheme::int4, QuantizeScheme::nvfp4}) {
    seen = {};
    QuantizeOptions options;
    options.scheme = scheme;
    options.force = true;
    ASSERT_TRUE(quantize_checkpoint(in(), out(), options, progress, &seen).ok());
    EXPECT_TRUE(seen.rising);
    EXPECT_EQ(seen.last, seen.total);
  }
  std::filesystem::remove_all(out());
  seen = {};
  seen.stop_at = 9000;
  EXPECT_EQ(quantize_checkpoint(in(), out(), {}, progress, &seen).status().code(), Code::cancelled);
  EXPECT_THAT(left(), ElementsAre("in"));
}

TEST(QuantizeScheme, Names) {
  for (const auto scheme : {QuantizeScheme::int4, QuantizeScheme::int8, QuantizeScheme::nvfp4, QuantizeScheme::mxfp4}) {
    EXPECT_EQ(parse_quantize_scheme(name(scheme)), scheme);
  }
  EXPECT_EQ(parse_quantize_scheme("int3"), std::nullopt);
}

}  // namespace
}  // namespace swordfish
