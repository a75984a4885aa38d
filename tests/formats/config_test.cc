// Configuration sources: precedence, contradictions, types; and what is no checkpoint at all.
#include "formats/config.h"

#include <gtest/gtest.h>

#include "formats/integer_models.h"

namespace swordfish {
namespace {

const std::string kGptq = "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":true}";

TEST(Config, SourcesInOrder) {
  const TempFolder folder;
  folder.write("config.json", "{\"model_type\":\"llama\",\"quantization_config\":" + kGptq +
                                  ",\"text_config\":{\"quantization_config\":{\"bits\":4}}}");
  folder.write("quantize_config.json", "{\"bits\":4,\"desc_act\":true}");
  folder.write("hf_quant_config.json", "{\"quantization\":{\"group_size\":32}}");
  const Result<Config> config = read_config(folder.root());
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_EQ(config->sources.size(), 4u);
  EXPECT_EQ(config->sources[1].key, "text_config.quantization_config");
  EXPECT_EQ(config->method, "gptq");
  EXPECT_EQ(config->model_type, "llama");
  const auto bits = config_int(*config, {"w_bit", "bits"});
  ASSERT_TRUE(bits.ok() && bits->has_value());
  EXPECT_EQ((*bits)->where, folder.path("config.json") + ": quantization_config");
  const auto desc_act = config_bool(*config, {"desc_act"});
  EXPECT_EQ((*desc_act)->where, folder.path("quantize_config.json"));
}

TEST(Config, NumbersThatPythonWritesAndJsonHasNot) {
  const TempFolder folder;
  folder.write(
      "config.json",
      "{\"time_step_limit\":[0.0,Infinity,-Infinity,NaN],\"note\":\"\\\"NaN, -Infinity\",\"quantization_config\":" + kGptq + "}");
  const Result<Config> config = read_config(folder.root());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->method, "gptq");
  folder.write("config.json", "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":NaN}}");
  EXPECT_FALSE(read_config(folder.root()).ok());
  folder.write("config.json", "{\"x\":Infinite,\"quantization_config\":" + kGptq + "}");
  EXPECT_FALSE(read_config(folder.root()).ok());
}

TEST(Config, MethodFromTheFileName) {
  const std::pair<const char*, const char*> cases[] = {{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}};
  for (const auto& [file, method] : cases) {
    const TempFolder folder;
    folder.write(file, "{\"bits\":4,\"group_size\":128}");
    EXPECT_EQ(read_config(folder.root())->method, method);
  }
  const TempFolder folder;
  folder.write("hf_quant_config.json", "{\"quantization\":{\"quant_algo\":\"NVFP4\"}}");
  EXPECT_EQ(read_config(folder.root())->method, "modelopt");
}

// Row 26: each fact that two sources state must agree; both files, the key and both values are named.
TEST(Config, Contradictions) {
  const auto both = [](const std::string& first, const std::string& second, const char* file) {
    const TempFolder folder;
    folder.write("config.json", "{\"quantization_config\":" + first + "}");
    folder.write(file, second);
    return read_config(folder.root()).status();
  };
  const std::string gptq = "quantize_config.json";
  expect_refused(both(kGptq, "{\"group_size\":64}", "quantize_config.json"), {"config.json", gptq, "group_size", "32", "64"});
  expect_refused(both(kGptq, "{\"w_bit\":8}", "quantize_config.json"), {"bits", "w_bit", "4", "8", gptq});
  expect_refused(both(kGptq, "{\"sym\":false}", "quantize_config.json"), {"sym", "true", "false", gptq});
  expect_refused(both("{\"quant_method\":\"gptq\",\"checkpoint_format\":\"gptq\"}", "{\"checkpoint_format\":\"gptq_v2\"}",
                      "quantize_config.json"),
                 {"checkpoint_format", "gptq_v2", gptq});
  expect_refused(both(kGptq, "{\"quant_method\":\"awq\"}", "quant_config.json"),
                 {"quant_method", "gptq", "awq", "quant_config.json"});
  // A file that names no method can still say that it is of another one.
  expect_refused(both(kGptq, "{\"quantization\":{\"quant_algo\":\"NVFP4\"}}", "hf_quant_config.json"),
                 {"quant_method", "gptq", "modelopt", "hf_quant_config.json"});
  expect_refused(both(kGptq, "{\"w_bit\":4,\"q_group_size\":32}", "quant_config.json"),
                 {"quant_method", "gptq", "awq", "quant_config.json"});
  expect_refused(both("{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}", "{\"quantization\":{\"quant_algo\":\"FP8\"}}",
                      "hf_quant_config.json"),
                 {"quant_algo", "nvfp4", "fp8", "hf_quant_config.json"});
  expect_refused(
      both("{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"config_groups\":{\"g\":{\"weights\":{\"group_size\":16}}}}",
           "{\"quantization\":{\"quant_algo\":\"NVFP4\",\"group_size\":32}}", "hf_quant_config.json"),
      {"group_size", "16", "32", "hf_quant_config.json"});
  expect_refused(both("{\"quant_method\":\"gptq\",\"dynamic\":{\"a\":{}}}", "{\"dynamic\":{\"b\":{}}}", "quantize_config.json"),
                 {"dynamic", gptq});
  expect_refused(both("{\"quant_method\":\"gptq\",\"method\":\"awq\"}", "{}", "quantize_config.json"), {"quant_method", "method"});
  // Case and absent keys are no disagreement.
  EXPECT_TRUE(
      both("{\"quant_method\":\"GPTQ\",\"bits\":4}", "{\"Method\":\"gptq\",\"group_size\":64,\"BITS\":4}", "quantize_config.json")
          .ok());
}

TEST(Config, Types) {
  const auto status = [](const std::string& quantization) {
    const TempFolder folder;
    folder.write("config.json", "{\"quantization_config\":" + quantization + "}");
    return read_config(folder.root()).status();
  };
  expect_refused(status("{\"quant_method\":\"gptq\",\"bits\":\"four\"}"), {"config.json", "bits", "integer", "string"});
  expect_refused(status("{\"quant_method\":\"gptq\",\"bits\":4.0}"), {"bits", "integer", "number"});
  expect_refused(status("{\"quant_method\":\"gptq\",\"sym\":1}"), {"sym", "boolean", "integer"});
  expect_refused(status("{\"quant_method\":7}"), {"quant_method", "string", "integer"});
  expect_refused(status("{\"bits\":4}"), {"quant_method", "missing"});
  expect_refused(status("[]"), {"quantization_config", "object", "array"});
  expect_refused(status("{\"quant_method\":\"gptq\",\"bits\":4,\"bits\":8}"), {"duplicate", "bits"});
  expect_refused(status("{\"quant_method\":\"gptq\",\"bits\":4,\"Bits\":8}"), {"duplicate", "bits"});
}

TEST(Config, NothingToRead) {
  const TempFolder empty;
  expect_refused(read_config(empty.root()).status(), {empty.root(), "no configuration", "config.json"});
  const TempFolder dense;
  dense.write("config.json", "{\"model_type\":\"llama\"}");
  expect_refused(read_config(dense.root()).status(), {"config.json", "quantization_config"});
  const TempFolder list;
  list.write("config.json", "[" + kGptq + "]");
  expect_refused(read_config(list.root()).status(), {"config.json", "object", "array"});
  const TempFolder broken;
  broken.write("config.json", "bits = 4");
  expect_refused(read_config(broken.root()).status(), {"config.json", "JSON"});
}

}  // namespace
}  // namespace swordfish
