// compressed-tensors configuration: groups with their arguments, presets, and which module gets which group.
#include "formats/ct_scheme.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/config.h"

namespace swordfish {
namespace {

using simdjson::dom::element;

constexpr std::string_view kCtFormats =
    "pack-quantized, int-quantized, naive-quantized (integers), nvfp4-pack-quantized, mxfp4-pack-quantized";
// The reference refuses any other key in "weights".
constexpr std::array<std::string_view, 12> kWeightKeys = {
    "num_bits", "type",    "symmetric",   "strategy", "group_size", "block_structure",
    "actorder", "dynamic", "scale_dtype", "zp_dtype", "observer",   "observer_kwargs"};

// A group written as a bare list of targets has the name of a preset for its key.
struct Preset {
  std::string_view name, format;
  CtScheme scheme;
};
const std::array<Preset, 9>& presets() {
  static const std::array<Preset, 9> rows = {{
      {"w4a16", "pack-quantized", {CtFormat::pack, "", 4, true, CtStrategy::group, 128, false}},
      {"w8a16", "pack-quantized", {CtFormat::pack, "", 8, true, CtStrategy::group, 128, false}},
      {"w4a16_asym", "pack-quantized", {CtFormat::pack, "", 4, false, CtStrategy::group, 128, false}},
      {"w8a8", "int-quantized", {CtFormat::integer, "", 8, true, CtStrategy::channel, 0, false}},
      {"int8", "int-quantized", {CtFormat::integer, "", 8, true, CtStrategy::channel, 0, false}},
      {"nvfp4", "nvfp4-pack-quantized", {CtFormat::nvfp4, "", 4, true, CtStrategy::group, 16, false}},
      {"nvfp4a16", "nvfp4-pack-quantized", {CtFormat::nvfp4, "", 4, true, CtStrategy::group, 16, false}},
      {"mxfp4", "mxfp4-pack-quantized", {CtFormat::mxfp4, "", 4, true, CtStrategy::group, 32, false}},
      {"mxfp4a16", "mxfp4-pack-quantized", {CtFormat::mxfp4, "", 4, true, CtStrategy::group, 32, false}},
  }};
  return rows;
}

// Row 23.
Result<CtFormat> parse_format(std::string_view text, std::string_view at) {
  const std::string lower = ascii_lower(text);
  if (lower == "pack-quantized") return CtFormat::pack;
  if (lower == "int-quantized" || lower == "naive-quantized") return CtFormat::integer;
  if (lower == "nvfp4-pack-quantized") return CtFormat::nvfp4;
  if (lower == "mxfp4-pack-quantized") return CtFormat::mxfp4;
  return unsupported("{}: format '{}' is not supported; supported: {}", at, printable(text), kCtFormats);
}

Status check_keys(const element& weights, const std::string& at) {
  for (const simdjson::dom::key_value_pair field : weights.get_object()) {
    const auto known = [&](std::string_view key) { return ascii_iequals(key, field.key); };
    if (std::none_of(kWeightKeys.begin(), kWeightKeys.end(), known)) {
      return malformed("{}: unknown key '{}'; known: {}", at, printable(field.key), fmt::join(kWeightKeys, ", "));
    }
  }
  return {};
}

// true, "group" and "dynamic" bring a weight_g_idx tensor; "weight" and "static" concern calibration only.
Result<bool> parse_actorder(const element& weights, const std::string& at) {
  SF_ASSIGN(const auto value, get_value(weights, "actorder", at));
  if (!value) return false;
  bool flag = false;
  if (value->get(flag) == simdjson::SUCCESS) return flag;
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) {
    return malformed("{}: key 'actorder': expected boolean or string, found {}", at, json_kind(*value));
  }
  const std::string lower = ascii_lower(text);
  if (lower == "group" || lower == "dynamic") return true;
  if (lower == "weight" || lower == "static") return false;
  return unsupported("{}: actorder '{}' is not supported; supported: group, dynamic, weight, static", at, printable(text));
}

// Strategy and group size of an integer scheme; a missing strategy follows from the group size.
Status parse_integer_groups(const element& weights, const std::string& at, CtScheme& scheme) {
  SF_ASSIGN(const auto strategy, get_string(weights, "strategy", at));
  SF_ASSIGN(const auto group_size, get_int(weights, "group_size", at));
  if (group_size && (*group_size < -1 || *group_size == 0)) {
    return malformed("{}: group_size {} is invalid; expected a positive number, or -1 for whole rows", at, *group_size);
  }
  const std::string text = strategy ? ascii_lower(*strategy) : !group_size ? "tensor" : *group_size > 0 ? "group" : "channel";
  if (text == "tensor") {
    scheme.strategy = CtStrategy::tensor;
  } else if (text == "channel") {
    scheme.strategy = CtStrategy::channel;
  } else if (text == "group") {
    scheme.strategy = CtStrategy::group;
  } else {
    return unsupported("{}: strategy '{}' of an integer format is not supported; supported: group, channel, tensor", at,
                       printable(text));
  }
  if (scheme.strategy == CtStrategy::tensor && scheme.format == CtFormat::pack) {
    return unsupported("{}: strategy 'tensor' with format pack-quantized is not supported; supported: group, channel", at);
  }
  const bool grouped = group_size.value_or(-1) > 0;
  if (grouped != (scheme.strategy == CtStrategy::group)) {
    return malformed("{}: strategy '{}' with group_size {}", at, printable(text),
                     group_size ? std::to_string(*group_size) : std::string("null"));
  }
  if (grouped) scheme.group_size = *group_size;
  return {};
}

// nvfp4 and mxfp4 leave no choice (row 25).
Status parse_fp4_groups(const element& weights, const std::string& at, CtScheme& scheme) {
  const std::int64_t block = scheme.format == CtFormat::nvfp4 ? 16 : 32;
  SF_ASSIGN(const auto strategy, get_string(weights, "strategy", at));
  SF_ASSIGN(const auto group_size, get_int(weights, "group_size", at));
  const std::string_view expected = scheme.format == CtFormat::nvfp4 ? "tensor_group" : "group";
  if (strategy && !ascii_iequals(*strategy, expected)) {
    return unsupported("{}: strategy '{}' with format {} is not supported; supported: {}", at, printable(*strategy),
                       scheme.format_name, expected);
  }
  if (group_size.value_or(block) != block) {
    return unsupported("{}: group_size {} with format {} is not supported; supported: {}", at, *group_size, scheme.format_name,
                       block);
  }
  if (!scheme.symmetric) return unsupported("{}: symmetric false with format {}; supported: true", at, scheme.format_name);
  if (scheme.act_order) return unsupported("{}: actorder group with format {} is not supported", at, scheme.format_name);
  scheme.strategy = CtStrategy::group;
  scheme.group_size = block;
  return {};
}

Result<CtScheme> parse_weights(const element& weights, const std::string& at, std::string_view format) {
  SF_TRY(check_keys(weights, at));
  CtScheme scheme;
  SF_ASSIGN(scheme.format, parse_format(format, at));
  scheme.format_name = ascii_lower(format);
  const bool fp4 = scheme.format == CtFormat::nvfp4 || scheme.format == CtFormat::mxfp4;
  SF_ASSIGN(const auto bits, get_int(weights, "num_bits", at));
  SF_ASSIGN(const auto type, get_string(weights, "type", at));
  SF_ASSIGN(const auto symmetric, get_bool(weights, "symmetric", at));
  SF_ASSIGN(scheme.act_order, parse_actorder(weights, at));
  const std::string_view expected_type = fp4 ? "float" : "int";
  if (!bits) return malformed("{}: key 'num_bits' (integer) is missing", at);
  if (!ascii_iequals(type.value_or("int"), expected_type)) {
    return unsupported("{}: type '{}' with format {} is not supported; supported: {}", at, printable(type.value_or("int")),
                       scheme.format_name, expected_type);
  }
  if (*bits != 4 && (fp4 || *bits != 8)) {
    return unsupported("{}: num_bits {} with format {} is not supported; supported: {}", at, *bits, scheme.format_name,
                       fp4 ? "4" : "4, 8");
  }
  SF_ASSIGN(const auto dynamic, get_value(weights, "dynamic", at));
  if (dynamic && !(dynamic->is_bool() && !bool(*dynamic))) {
    return unsupported("{}: dynamic weights are not supported; expected false", at);
  }
  scheme.bits = static_cast<int>(*bits);
  scheme.symmetric = symmetric.value_or(true);
  SF_TRY(fp4 ? parse_fp4_groups(weights, at, scheme) : parse_integer_groups(weights, at, scheme));
  return scheme;
}

// Row 31: null and {} mean that nothing is needed; current writers store the latter.
Status refuse_transforms(const Config& config) {
  for (const std::string_view key : {"sparsity_config", "transform_config"}) {
    SF_ASSIGN(const auto value, config_value(config, {key}));
    if (!value) continue;
    simdjson::dom::object object;
    if (value->value.get(object) == simdjson::SUCCESS && object.size() == 0) continue;
    return unsupported("{}: key '{}' is set: the weights need a transform or are sparse; supported: null or {{}}", value->where,
                       key);
  }
  return {};
}

}  // namespace

Result<CtConfig::Targets> CtConfig::Targets::read(const element& list, std::string_view key, const std::string& where) {
  SF_ASSIGN(const std::vector<std::string> entries, string_list(list, key, where));
  Targets targets;
  for (const std::string& entry : entries) {
    if (entry.starts_with("re:")) {
      SF_ASSIGN(Pattern pattern, Pattern::compile(std::string_view(entry).substr(3), fmt::format("{}: {} 're:'", where, key)));
      targets.patterns.push_back(std::move(pattern));
    } else if (ascii_iequals(entry, "Linear")) {
      targets.linear = true;
    } else {
      targets.exact.insert(entry);
    }
  }
  return targets;
}

Status CtConfig::read_group(const simdjson::dom::key_value_pair& field, const std::string& where, std::string_view format) {
  Group group;
  group.where = fmt::format("{}: config_groups.{}", where, printable(field.key));
  if (field.value.is_array()) {
    const std::string lower = ascii_lower(field.key);
    const auto preset = std::find_if(presets().begin(), presets().end(), [&](const Preset& row) { return row.name == lower; });
    if (preset == presets().end()) {
      return unsupported(
          "{}: preset '{}' is not supported; supported: W4A16, W8A16, W4A16_ASYM, W8A8, INT8, NVFP4, NVFP4A16, MXFP4, "
          "MXFP4A16",
          group.where, printable(field.key));
    }
    group.scheme = preset->scheme;
    group.scheme.format_name = preset->format;
    SF_ASSIGN(group.targets, Targets::read(field.value, field.key, group.where));
    groups_.push_back(std::move(group));
    return {};
  }
  SF_ASSIGN(const auto weights, get_object(field.value, "weights", group.where));
  if (!weights) return {};  // a group for activations only
  SF_ASSIGN(const auto own, get_string(field.value, "format", group.where));
  const std::string_view used = own ? *own : format;
  if (used.empty() || ascii_iequals(used, "mixed-precision")) {
    return malformed("{}: key 'format' (string) is missing, and the format of the model is {}", group.where,
                     format.empty() ? "missing too" : "mixed-precision");
  }
  SF_ASSIGN(group.scheme, parse_weights(*weights, group.where + ".weights", used));
  SF_ASSIGN(const auto targets, get_array(field.value, "targets", group.where));
  if (!targets) return malformed("{}: key 'targets' (array) is missing", group.where);
  SF_ASSIGN(group.targets, Targets::read(*targets, "targets", group.where));
  groups_.push_back(std::move(group));
  return {};
}

Result<CtConfig> CtConfig::read(const Config& config) {
  SF_TRY(refuse_transforms(config));
  SF_ASSIGN(const auto status, config_string(config, {"quantization_status"}));
  if (status && !ascii_iequals(status->value, "compressed")) {
    return unsupported("{}: quantization_status '{}': the weights are not compressed; supported: compressed", status->where,
                       printable(status->value));
  }
  SF_ASSIGN(const auto format, config_string(config, {"format"}));
  const std::string model_format = format ? ascii_lower(format->value) : std::string();
  if (format && model_format != "mixed-precision") SF_TRY(parse_format(format->value, format->where).status());
  SF_ASSIGN(const auto groups, config_value(config, {"config_groups"}));
  if (!groups) return malformed("{}: key 'config_groups' (object) is missing", where(config.sources.front()));
  simdjson::dom::object fields;
  if (groups->value.get(fields) != simdjson::SUCCESS) {
    return malformed("{}: key 'config_groups': expected object, found {}", groups->where, json_kind(groups->value));
  }
  CtConfig out;
  for (const simdjson::dom::key_value_pair field : fields) SF_TRY(out.read_group(field, groups->where, model_format));
  SF_ASSIGN(const auto ignore, config_value(config, {"ignore"}));
  if (ignore) {
    SF_ASSIGN(out.ignore_, Targets::read(ignore->value, "ignore", ignore->where));
  }
  return out;
}

Result<CtConfig::Match> CtConfig::find(std::string_view module) const {
  Match best;
  int best_priority = 0;
  std::string best_target;
  for (const Group& group : groups_) {
    int priority = group.targets.linear ? 1 : 0;
    std::string target = "Linear";
    if (group.targets.exact.contains(module)) {
      priority = 3;
      target = module;
    } else {
      for (const Pattern& pattern : group.targets.patterns) {
        SF_ASSIGN(const bool hit, pattern.match(module));
        if (!hit) continue;
        priority = 2;
        target = "re:" + pattern.text();
        break;
      }
    }
    if (priority == 0 || priority < best_priority) continue;
    if (priority == best_priority && !(*best.scheme == group.scheme)) {
      return malformed("module '{}' matches two groups with different arguments: {} ('{}') and {} ('{}')", printable(module),
                       best.where, printable(best_target), group.where, printable(target));
    }
    if (priority == best_priority) continue;
    best = {&group.scheme, priority > 1, group.where};
    best_priority = priority;
    best_target = std::move(target);
  }
  return best;
}

Result<bool> CtConfig::ignores(std::string_view module) const {
  if (ignore_.linear || ignore_.exact.contains(module)) return true;
  for (const Pattern& pattern : ignore_.patterns) {
    SF_ASSIGN(const bool hit, pattern.match(module));
    if (hit) return true;
  }
  return false;
}

}  // namespace swordfish
