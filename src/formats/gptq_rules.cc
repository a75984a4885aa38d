// GPTQ-style configuration: values of the model, overrides of single modules, and the check that the tensors agree with them.
#include "formats/gptq_rules.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/config.h"
#include "formats/fused.h"

namespace swordfish {
namespace {

using simdjson::dom::element;

// Rows 24 and 25.
Status check_params(const GptqParams& params, const std::vector<std::int64_t>& bits) {
  if (std::find(bits.begin(), bits.end(), params.bits) == bits.end()) {
    return unsupported("{}: bits {} is not supported; supported: {}", params.source, params.bits, fmt::join(bits, ", "));
  }
  if (params.group_size < -1 || params.group_size == 0) {
    return malformed("{}: group_size {} is invalid; expected a positive number, or -1 for one group", params.source,
                     params.group_size);
  }
  return {};
}

Status override_params(const element& object, const std::string& at, GptqParams& params) {
  SF_ASSIGN(const auto bits, get_int(object, "bits", at));
  SF_ASSIGN(const auto group_size, get_int(object, "group_size", at));
  SF_ASSIGN(const auto sym, get_bool(object, "sym", at));
  SF_ASSIGN(const auto act_order, get_bool(object, "desc_act", at));
  params.source = at;
  params.bits = bits.value_or(params.bits);
  params.group_size = group_size.value_or(params.group_size);
  if (sym) params.sym = *sym;
  params.act_order = act_order.value_or(params.act_order);
  return {};
}

// A list of strings, or a list of such lists.
Status flatten(const element& value, std::string_view key, const std::string& at, std::vector<std::string>& out) {
  simdjson::dom::array items;
  if (value.get(items) != simdjson::SUCCESS) return malformed("{}: key '{}': expected array, found {}", at, key, json_kind(value));
  for (const element item : items) {
    if (item.is_array()) {
      SF_ASSIGN(const auto inner, string_list(item, key, at));
      out.insert(out.end(), inner.begin(), inner.end());
      continue;
    }
    std::string_view text;
    if (item.get(text) != simdjson::SUCCESS) {
      return malformed("{}: key '{}': expected strings, found {}", at, key, json_kind(item));
    }
    out.emplace_back(text);
  }
  return {};
}

bool is_float(DType type) { return type == DType::f16 || type == DType::bf16 || type == DType::f32; }

}  // namespace

Result<GptqRules> GptqRules::read(const Config& config, const std::vector<std::int64_t>& bits) {
  GptqRules rules;
  SF_ASSIGN(const auto model_bits, config_int(config, {"bits", "w_bit", "wbits"}));
  SF_ASSIGN(const auto group_size, config_int(config, {"group_size", "q_group_size"}));
  const std::string first = where(config.sources.front());
  if (!model_bits) return malformed("{}: key 'bits' (integer) is missing", first);
  if (!group_size) return malformed("{}: key 'group_size' (integer) is missing", first);
  SF_ASSIGN(const auto sym, config_bool(config, {"sym"}));
  SF_ASSIGN(const auto act_order, config_bool(config, {"desc_act"}));
  rules.base_.bits = model_bits->value;
  rules.base_.group_size = group_size->value;
  if (sym) rules.base_.sym = sym->value;
  rules.base_.act_order = act_order && act_order->value;
  rules.base_.source = model_bits->where;
  SF_TRY(check_params(rules.base_, bits));

  SF_ASSIGN(const auto dynamic, config_value(config, {"dynamic"}));
  if (dynamic) {
    const std::string at = dynamic->where + ": dynamic";
    simdjson::dom::object object;
    if (dynamic->value.get(object) != simdjson::SUCCESS) {
      return malformed("{}: key 'dynamic': expected object, found {}", dynamic->where, json_kind(dynamic->value));
    }
    for (const simdjson::dom::key_value_pair field : object) {
      std::string_view text = field.key;
      const bool negative = text.starts_with("-:");
      if (negative || text.starts_with("+:")) text.remove_prefix(2);
      SF_ASSIGN(Pattern pattern, Pattern::compile(text, at));
      GptqParams params = rules.base_;
      const std::string rule_at = fmt::format("{} '{}'", at, printable(field.key));
      if (!negative) {
        SF_TRY(override_params(field.value, rule_at, params));
        SF_TRY(check_params(params, bits));
      }
      params.source = rule_at;
      params.excluded = negative;
      params.named = !negative;
      rules.rules_.push_back({std::move(pattern), negative, std::move(params)});
    }
  }
  SF_ASSIGN(const auto extra, config_value(config, {"extra_config"}));
  if (extra && extra->value.is_object()) {
    for (const simdjson::dom::key_value_pair field : extra->value.get_object()) {
      GptqParams params = rules.base_;
      SF_TRY(override_params(field.value, fmt::format("{}: extra_config '{}'", extra->where, printable(field.key)), params));
      params.excluded = params.bits >= 16;
      params.named = !params.excluded;
      if (!params.excluded) SF_TRY(check_params(params, bits));
      rules.exact_.emplace_back(field.key, std::move(params));
    }
    std::sort(rules.exact_.begin(), rules.exact_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  SF_ASSIGN(const auto blocks, config_value(config, {"modules_in_block_to_quantize"}));
  if (blocks) SF_TRY(flatten(blocks->value, "modules_in_block_to_quantize", blocks->where, rules.blocks_));
  return rules;
}

Result<GptqParams> GptqRules::of(std::string_view module) const {
  for (const Rule& rule : rules_) {
    SF_ASSIGN(const bool hit, rule.pattern.match(module));
    if (hit) return rule.params;
  }
  const auto exact =
      std::lower_bound(exact_.begin(), exact_.end(), module, [](const auto& a, std::string_view b) { return a.first < b; });
  if (exact != exact_.end() && exact->first == module) return exact->second;
  return base_;
}

Status GptqRules::check_plain(const Container& container, const std::vector<std::string>& modules,
                              const std::function<bool(std::string_view)>& excluded) const {
  const std::set<std::string, std::less<>> quantized(modules.begin(), modules.end());
  std::set<std::string, std::less<>> kinds;
  for (const std::string& module : modules) kinds.insert(module_kind(module));
  for (const Tensor& tensor : container.tensors) {
    if (!tensor.name.ends_with(".weight") || tensor.shape.size() != 2 || !is_float(tensor.dtype)) continue;
    const std::string_view module = std::string_view(tensor.name).substr(0, tensor.name.size() - 7);
    if (quantized.contains(module)) continue;
    if (tensors_decide(module) || excluded(module)) continue;
    SF_ASSIGN(const GptqParams params, of(module));
    if (params.excluded) continue;
    const bool in_blocks = blocks_.empty() || substring_match(blocks_, module) != SubstringMatch::none;
    if (!params.named && !(kinds.contains(module_kind(module)) && in_blocks)) continue;
    return malformed("{}: module '{}'{} should be quantized by {}, but has only a plain weight ({})", container.path_of(tensor),
                     printable(module), fused_note(module), params.source, name(tensor.dtype));
  }
  return {};
}

Status check_gptq_extras(const Config& config) {
  SF_ASSIGN(const auto pack_dtype, config_string(config, {"pack_dtype"}));
  if (pack_dtype && !ascii_iequals(pack_dtype->value, "int32")) {
    return unsupported("{}: pack_dtype '{}' is not supported; supported: int32", pack_dtype->where, printable(pack_dtype->value));
  }
  SF_ASSIGN(const auto marlin, config_bool(config, {"is_marlin_format"}));
  if (marlin && marlin->value) {
    return unsupported("{}: is_marlin_format true: weights in Marlin's own order are not supported; supported: gptq, gptq_v2",
                       marlin->where);
  }
  for (const std::string_view key : {"rotation", "adapter"}) {
    SF_ASSIGN(const auto value, config_value(config, {key}));
    if (!value || (value->value.is_bool() && !bool(value->value))) continue;
    return unsupported("{}: key '{}' is set: the model needs an online transform or side tensors; not supported", value->where,
                       key);
  }
  return {};
}

}  // namespace swordfish
