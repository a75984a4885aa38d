// Every fixture (../shared/fixtures where that folder is present, and the chosen few under tests/data) against the values that the
// tool which wrote it computes for itself.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/json.h"
#include "checkpoint/container.h"
#include "quant/numeric.h"
#include "swordfish/checkpoint.h"

namespace swordfish {
namespace {

namespace fs = std::filesystem;

struct Fixture {
  std::string name, folder;
};
void PrintTo(const Fixture& fixture, std::ostream* out) { *out << fixture.folder; }

std::vector<Fixture> all_fixtures() {
  std::map<std::string, Fixture> found;  // the copy under tests/data gives way to the original
  for (const char* root : {SWORDFISH_TEST_DATA "/fixtures", SWORDFISH_SHARED "/fixtures"}) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root, none)) {
      if (!fs::exists(entry.path() / "meta.json")) continue;
      const std::string name = entry.path().filename().string();
      found[name] = {name, entry.path().string()};
    }
  }
  std::vector<Fixture> fixtures;
  for (const auto& [name, fixture] : found) fixtures.push_back(fixture);
  return fixtures;
}

// The folder, or the (first) GGUF file in it.
std::string path_of(const Fixture& fixture) {
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(fixture.folder)) {
    if (entry.path().extension() == ".gguf") files.insert(entry.path().string());
  }
  return files.empty() ? fixture.folder : *files.begin();
}

struct Meta {
  std::string expect;
  std::int64_t tolerance = 0;
};
Meta read_meta(const Fixture& fixture) {
  const auto text = io::read_text(fixture.folder + "/meta.json", 1 << 20);
  const auto json = Json::parse(text.value(), "meta.json");
  Meta meta;
  meta.expect = std::string(**get_string(json->root(), "expect", "meta.json"));
  meta.tolerance = **get_int(json->root(), "tolerance_ulp", "meta.json");
  return meta;
}

// Distance in units of the last place; -0 equals 0.
std::int64_t ulps(float a, float b) {
  const auto place = [](float f) {
    const auto bits = std::bit_cast<std::int32_t>(f);
    return bits >= 0 ? std::int64_t{bits} : std::int64_t{std::numeric_limits<std::int32_t>::min()} - bits;
  };
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b) ? 0 : std::numeric_limits<std::int64_t>::max();
  return std::abs(place(a) - place(b));
}

class Comparison {
 public:
  explicit Comparison(const Fixture& fixture, std::int64_t tolerance) : tolerance_(tolerance) {
    auto opened = open_safetensors_file(fixture.folder + "/expected.safetensors");
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    expected_ = std::move(*opened);
  }

  // `rows`: the row gather of the expected tensor, empty for rows as they are.
  void compare(const std::string& name, std::int64_t n, std::int64_t k, std::int64_t expert, std::int64_t experts,
               const std::vector<float>& values, const std::vector<std::int64_t>& rows) {
    const Tensor* tensor = expected_.find(name);
    ASSERT_NE(tensor, nullptr) << name << " is not in expected.safetensors";
    const std::vector<std::int64_t> shape =
        experts > 0 ? std::vector<std::int64_t>{experts, n, k} : std::vector<std::int64_t>{n, k};
    ASSERT_EQ(tensor->shape, shape) << name;
    ASSERT_EQ(tensor->dtype, DType::f32);
    std::vector<float> want(static_cast<std::size_t>(n * k));
    ASSERT_TRUE(expected_.read(*tensor, static_cast<std::uint64_t>(expert * n * k) * 4, want.size() * 4, want.data()).ok());
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t row = rows.empty() ? i : rows[static_cast<std::size_t>(i)];
      for (std::int64_t j = 0; j < k; ++j) {
        const float a = values[static_cast<std::size_t>(row * k + j)], b = want[static_cast<std::size_t>(i * k + j)];
        ASSERT_LE(ulps(a, b), tolerance_) << name << " expert " << expert << " [" << i << ", " << j << "]: " << a << " for " << b;
      }
    }
    compared_.insert(name);
  }

  std::vector<std::string> left_over() const {
    std::vector<std::string> out;
    for (const Tensor& tensor : expected_.tensors) {
      if (!compared_.contains(tensor.name)) out.push_back(tensor.name);
    }
    return out;
  }
  bool has(const std::string& name) const { return expected_.find(name) != nullptr; }

 private:
  Container expected_;
  std::int64_t tolerance_;
  std::set<std::string> compared_;
};

// The first problem of opening and loading everything; what loads is compared.
Status load_all(const Fixture& fixture, Comparison& comparison, bool& partly_listed) {
  Result<Checkpoint> opened = Checkpoint::open(path_of(fixture));
  if (!opened.ok()) return opened.status();
  const Checkpoint& checkpoint = *opened;
  EXPECT_FALSE(checkpoint.layers().empty());
  for (std::size_t i = 0; i < checkpoint.layers().size(); ++i) {
    const LayerInfo& info = checkpoint.layers()[i];
    std::uint64_t bytes = 0;
    for (const std::string& name : info.tensors) {
      for (const TensorInfo& tensor : checkpoint.tensors()) bytes += tensor.name == name ? tensor.bytes : 0;
    }
    EXPECT_EQ(info.bytes, bytes) << info.name;
    const Checkpoint::HfName hf = checkpoint.hf_name(i);
    for (std::int64_t expert = 0; expert < std::max<std::int64_t>(1, info.experts); ++expert) {
      const Result<QuantTensor> tensor = checkpoint.load(i, expert);
      if (!tensor.ok()) return tensor.status();
      EXPECT_EQ(tensor->n, info.n) << info.name;
      EXPECT_EQ(tensor->k, info.k) << info.name;
      EXPECT_EQ(tensor->code, info.code) << info.name;
      EXPECT_EQ(tensor->scales.type, info.scale_type) << info.name;
      std::vector<float> values(static_cast<std::size_t>(info.n * info.k));
      dequantize(*tensor, 0, info.n, values.data(), info.k);
      comparison.compare(info.weight_name, info.n, info.k, expert, info.experts, values, {});
      if (!hf.gather.empty()) comparison.compare(hf.name, info.n, info.k, expert, info.experts, values, hf.gather);
      const auto bias = checkpoint.load_bias(i, expert);
      EXPECT_TRUE(bias.ok()) << bias.status().message();
    }
  }
  // Plain tensors may be in expected.safetensors, and GGUF tensors of types that are only listed.
  std::set<std::string> plain(checkpoint.unquantized().begin(), checkpoint.unquantized().end());
  for (const std::string& entry : checkpoint.not_packed()) {
    plain.insert(entry.substr(0, entry.rfind(": ")));
    partly_listed = true;
  }
  for (const std::string& name : comparison.left_over()) {
    // GGUF: Hugging Face names of attn_q and attn_k, compared through hf_name unless their tensor is only listed.
    const bool second_name = checkpoint.scheme() == "gguf" && name.starts_with("model.layers.") && partly_listed;
    EXPECT_TRUE(plain.contains(name) || second_name) << name << " was not compared";
  }
  return {};
}

class FixtureTest : public ::testing::TestWithParam<Fixture> {};

TEST_P(FixtureTest, LoadsOrRefusesAsItsMetaSays) {
  const Fixture& fixture = GetParam();
  const Meta meta = read_meta(fixture);
  Comparison comparison(fixture, meta.tolerance);
  bool partly_listed = false;
  const Status status = load_all(fixture, comparison, partly_listed);
  RecordProperty("outcome", status.ok() ? "loaded" : status.message());
  if (meta.expect == "load") {
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(partly_listed, fixture.name == "gguf_types_llama");
  } else if (meta.expect == "refuse") {
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(status.code() == Code::unsupported || status.code() == Code::malformed);
    EXPECT_NE(status.message().find("ambiguous v1 zero point"), std::string::npos) << status.message();
  } else {
    ASSERT_EQ(meta.expect, "either");
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::unsupported) << status.message();
      EXPECT_NE(status.message().find(fixture.folder), std::string::npos) << status.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FixtureTest, ::testing::ValuesIn(all_fixtures()),
                         [](const ::testing::TestParamInfo<Fixture>& fixture) { return fixture.param.name; });

TEST(Fixtures, AreThere) { EXPECT_GE(all_fixtures().size(), 8u); }

// The original writer's file with true zero points of 0: each of the three readings loads, and differs only where a lane is all
// ones.
TEST(Fixtures, AmbiguousZerosLoadOnRequest) {
  const std::string folder = SWORDFISH_SHARED "/fixtures/gptq_autogptq_b4_g128_asym_zero0";
  if (!fs::exists(folder)) GTEST_SKIP() << "not there: " << folder;
  for (const GptqV1Zeros zeros : {GptqV1Zeros::lane, GptqV1Zeros::unmasked, GptqV1Zeros::word}) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder, {zeros});
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    for (std::size_t i = 0; i < checkpoint->layers().size(); ++i) {
      EXPECT_TRUE(checkpoint->load(i).ok());
    }
  }
}

}  // namespace
}  // namespace swordfish
