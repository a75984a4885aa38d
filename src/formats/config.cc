// The configuration of a checkpoint folder: which files state quantization facts, in which order, and whether they agree
// (formats.md 0.2; rows 23, 26 and 27 of its section 9).
//
// Sources, first wins: config.json "quantization_config", config.json "text_config.quantization_config", quantize_config.json
// (GPTQ), quant_config.json (AWQ), hf_quant_config.json "quantization" (ModelOpt). A key that one of them lacks is no disagreement.
#include "formats/config.h"

#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "io/file.h"

namespace swordfish {
namespace {

using simdjson::dom::element;

// One stated fact: under which key it stands and its value in a comparable form.
struct Fact {
  std::string where;
  std::string key;
  std::string value;
};
using Facts = std::map<std::string, Fact, std::less<>>;

Result<std::shared_ptr<const Json>> read_json(const std::string& path) {
  SF_ASSIGN(const std::string text, io::read_text(path, kMaxConfigBytes));
  SF_ASSIGN(Json json, parse_config(text, path));
  return std::make_shared<const Json>(std::move(json));
}

Status record(Facts& facts, std::string_view name, const Config::Source& source, std::string_view key, std::string value) {
  Fact fact{where(source), std::string(key), std::move(value)};
  const auto [found, is_new] = facts.try_emplace(std::string(name), fact);
  if (is_new || found->second.value == fact.value) return {};
  const Fact& first = found->second;
  return malformed("contradicting configuration: {}: key '{}' is {}, but {}: key '{}' is {}", first.where, first.key, first.value,
                   fact.where, fact.key, fact.value);
}

Status record_ints(Facts& facts, std::string_view name, const Config::Source& source,
                   std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    SF_ASSIGN(const std::optional<std::int64_t> value, get_int(source.object, key, where(source)));
    if (value) SF_TRY(record(facts, name, source, key, std::to_string(*value)));
  }
  return {};
}

Status record_strings(Facts& facts, std::string_view name, const Config::Source& source,
                      std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    SF_ASSIGN(const std::optional<std::string_view> value, get_string(source.object, key, where(source)));
    if (value) SF_TRY(record(facts, name, source, key, fmt::format("\"{}\"", ascii_lower(*value))));
  }
  return {};
}

// ModelOpt's flattened form states the block size inside each config group; one number when all groups agree.
Status record_modelopt_groups(Facts& facts, const Config::Source& source) {
  SF_ASSIGN(const std::optional<element> groups, get_object(source.object, "config_groups", where(source)));
  if (!groups) return {};
  std::optional<std::int64_t> size;
  for (const simdjson::dom::key_value_pair group : groups->get_object()) {
    const std::string at = fmt::format("{}: config_groups.{}", where(source), printable(group.key));
    SF_ASSIGN(const std::optional<element> weights, get_object(group.value, "weights", at));
    if (!weights) continue;
    SF_ASSIGN(const std::optional<std::int64_t> value, get_int(*weights, "group_size", at + ".weights"));
    if (!value) continue;
    if (size && *size != *value) return {};  // mixed precision: each group speaks for itself
    size = value;
  }
  if (!size) return {};
  return record(facts, "group_size", source, "config_groups.*.weights.group_size", std::to_string(*size));
}

Status compare(const Config& config) {
  Facts facts;
  for (const Config::Source& source : config.sources) {
    SF_TRY(record_ints(facts, "bits", source, {"bits", "w_bit", "wbits"}));
    SF_TRY(record_ints(facts, "group_size", source, {"group_size", "q_group_size"}));
    for (const std::string_view key : {"sym", "zero_point"}) {
      SF_ASSIGN(const std::optional<bool> value, get_bool(source.object, key, where(source)));
      if (value) SF_TRY(record(facts, key, source, key, *value ? "true" : "false"));
    }
    SF_TRY(record_strings(facts, "format", source, {"checkpoint_format", "format"}));
    SF_TRY(record_strings(facts, "packing_format", source, {"packing_format"}));
    SF_TRY(record_strings(facts, "quant_algo", source, {"quant_algo"}));
    if (config.method == "awq") SF_TRY(record_strings(facts, "format", source, {"version"}));
    if (config.method.starts_with("modelopt")) SF_TRY(record_modelopt_groups(facts, source));
    SF_ASSIGN(const std::optional<element> dynamic, get_value(source.object, "dynamic", where(source)));
    if (dynamic && dynamic->is_object()) SF_TRY(record(facts, "dynamic", source, "dynamic", simdjson::minify(*dynamic)));
  }
  return {};
}

// What a source that names no method can only be.
Result<std::string> implied_method(const Config::Source& source) {
  SF_ASSIGN(const std::optional<element> algo, get_value(source.object, "quant_algo", where(source)));
  if (algo) return std::string("modelopt");
  if (source.file.ends_with("/quantize_config.json")) return std::string("gptq");
  if (source.file.ends_with("/quant_config.json")) return std::string("awq");
  return std::string();
}

// The method as the sources state it, and what the file implies where it states none.
Result<std::string> find_method(const Config& config) {
  Facts facts;
  std::string method;
  for (const Config::Source& source : config.sources) {
    bool stated = false;
    for (const std::string_view key : {"quant_method", "method"}) {
      SF_ASSIGN(const std::optional<std::string_view> value, get_string(source.object, key, where(source)));
      if (!value) continue;
      std::string lower = ascii_lower(*value);
      if (method.empty()) method = lower;
      SF_TRY(record(facts, "method", source, key, lower.starts_with("modelopt") ? "modelopt" : std::move(lower)));
      stated = true;
    }
    if (stated) continue;
    SF_ASSIGN(std::string implied, implied_method(source));
    if (implied.empty()) continue;
    if (method.empty()) method = implied;
    if (method == "auto-round" && implied != "modelopt") continue;  // it exports in the forms of GPTQ and AWQ
    SF_TRY(record(facts, "method", source, "quant_method (implied)", std::move(implied)));
  }
  if (!method.empty()) return method;
  const Config::Source& first = config.sources.front();
  return malformed("{}: key 'quant_method' (string) is missing, and nothing else says how the model is quantized", where(first));
}

// Finds the object under `key` ("" takes the whole file) and appends it as a source.
Status add_source(Config& config, const std::shared_ptr<const Json>& json, const element& object, std::string_view key,
                  std::string shown) {
  element found = object;
  if (!key.empty()) {
    SF_ASSIGN(const std::optional<element> value, get_object(object, key, json->what()));
    if (!value) return {};
    found = *value;
  }
  config.sources.push_back({json->what(), std::move(shown), json, found});
  return {};
}

Status add_model(Config& config, const std::string& path) {
  SF_ASSIGN(config.model, read_json(path));
  const element root = config.model->root();
  SF_ASSIGN(const std::optional<std::string_view> type, get_string(root, "model_type", path));
  if (type) config.model_type = *type;
  SF_TRY(add_source(config, config.model, root, "quantization_config", "quantization_config"));
  SF_ASSIGN(const std::optional<element> text, get_value(root, "text_config", path));
  if (text && text->is_object()) {
    SF_TRY(add_source(config, config.model, *text, "quantization_config", "text_config.quantization_config"));
  }
  return {};
}

// The original gpt-oss release has a configuration of its own, without model type and without a word about quantization.
Result<bool> is_original_gptoss(const Config& config) {
  if (!config.model || !config.model_type.empty()) return false;
  SF_ASSIGN(const std::optional<element> limit, get_value(config.model->root(), "swiglu_limit", config.model->what()));
  SF_ASSIGN(const std::optional<element> experts, get_value(config.model->root(), "experts_per_token", config.model->what()));
  return limit.has_value() && experts.has_value();
}

template <class T, class Get>
Result<std::optional<ConfigValue<T>>> first_value(const Config& config, std::initializer_list<std::string_view> keys, Get get) {
  for (const Config::Source& source : config.sources) {
    for (const std::string_view key : keys) {
      std::string at = where(source);
      SF_ASSIGN(const auto value, get(source.object, key, at));
      if (value) return std::optional(ConfigValue<T>{T(*value), std::move(at)});
    }
  }
  return std::optional<ConfigValue<T>>();
}

}  // namespace

Result<Json> parse_config(std::string_view text, const std::string& path) {
  // No reader needs the floats that are not finite ("time_step_limit": [0.0, Infinity] of Mamba layers). Each becomes an empty
  // array of the same length: offsets in messages stay right, and a key that is needed is refused for its type.
  const std::string plain =
      replace_non_finite(text, [](std::string_view word) { return "[" + std::string(word.size() - 2, ' ') + "]"; });
  SF_ASSIGN(Json json, Json::parse(plain, path));
  if (!json.root().is_object()) return malformed("{}: expected a JSON object, found {}", path, json_kind(json.root()));
  SF_TRY(check_no_duplicate_keys(json.root(), path));
  return json;
}

std::string where(const Config::Source& source) {
  return source.key.empty() ? source.file : fmt::format("{}: {}", source.file, source.key);
}

Result<Config> read_config(const std::string& folder) {
  Config config;
  config.folder = folder;
  const std::string model = folder + "/config.json";
  if (io::exists(model)) SF_TRY(add_model(config, model));
  struct Extra {
    std::string_view file, key;
  };
  constexpr std::array<Extra, 3> extras = {
      {{"quantize_config.json", ""}, {"quant_config.json", ""}, {"hf_quant_config.json", "quantization"}}};
  for (const Extra& extra : extras) {
    const std::string path = fmt::format("{}/{}", folder, extra.file);
    if (!io::exists(path)) continue;
    SF_ASSIGN(const std::shared_ptr<const Json> json, read_json(path));
    SF_TRY(add_source(config, json, json->root(), extra.key, std::string(extra.key)));
  }
  if (config.sources.empty()) {
    SF_ASSIGN(const bool original, is_original_gptoss(config));
    if (original) {
      SF_TRY(add_source(config, config.model, config.model->root(), "", ""));
      config.method = "mxfp4";
      return config;
    }
    if (config.model)
      return unsupported("{}: no quantization_config: not a quantized checkpoint, or its configuration is lost", model);
    return unsupported(
        "{}: no configuration: expected config.json, quantize_config.json, quant_config.json or hf_quant_config.json in the folder",
        folder);
  }
  SF_ASSIGN(config.method, find_method(config));
  SF_TRY(compare(config));
  return config;
}

Result<std::optional<ConfigValue<std::int64_t>>> config_int(const Config& config, std::initializer_list<std::string_view> keys) {
  return first_value<std::int64_t>(config, keys,
                                   [](const element& o, std::string_view k, std::string_view w) { return get_int(o, k, w); });
}
Result<std::optional<ConfigValue<bool>>> config_bool(const Config& config, std::initializer_list<std::string_view> keys) {
  return first_value<bool>(config, keys,
                           [](const element& o, std::string_view k, std::string_view w) { return get_bool(o, k, w); });
}
Result<std::optional<ConfigValue<std::string>>> config_string(const Config& config, std::initializer_list<std::string_view> keys) {
  return first_value<std::string>(config, keys,
                                  [](const element& o, std::string_view k, std::string_view w) { return get_string(o, k, w); });
}
Result<std::optional<ConfigValue<element>>> config_value(const Config& config, std::initializer_list<std::string_view> keys) {
  return first_value<element>(config, keys,
                              [](const element& o, std::string_view k, std::string_view w) { return get_value(o, k, w); });
}

Result<std::vector<std::string>> string_list(const element& array, std::string_view key, std::string_view at) {
  simdjson::dom::array items;
  if (array.get(items) != simdjson::SUCCESS)
    return malformed("{}: key '{}': expected array of strings, found {}", at, key, json_kind(array));
  std::vector<std::string> out;
  for (const element item : items) {
    std::string_view text;
    if (item.get(text) != simdjson::SUCCESS) {
      return malformed("{}: key '{}': expected array of strings, found {} in it", at, key, json_kind(item));
    }
    out.emplace_back(text);
  }
  return out;
}

}  // namespace swordfish
