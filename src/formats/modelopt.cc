// ModelOpt checkpoints with FP4 weights (formats.md 5.2, 6.3): NVFP4 (dense, per expert, stacked experts) and MXFP4.
//
// Tensors of one module, V = block size:
//
//   per module    <module>.weight          U8 [N, K/2] or F4 [N, K]       two codes a byte, low nibble = even k
//                 <module>.weight_scale    F8_E4M3 or U8 [N, K/V]         e4m3; for MXFP4 U8 or F8_E8M0, e8m0
//                 <module>.weight_scale_2  F32 [] or [1]                  multiplier; not for MXFP4
//   stacked       <name>                   U8 [E, K/2, N]                 transposed: nibble pairs run along dimension 1
//                 <name>_weight_scale      F8_E4M3 or U8 [E, K/V, N]
//                 <name>_weight_scale_2    F32 [], [1] or [E]
//
//   quant_algo                          V   scale  global
//   NVFP4, NVFP4_AWQ, W4A16_NVFP4       16  e4m3   yes      (AWQ: only modules without a pre_quant_scale tensor)
//   W4A8_NVFP4_FP8                      32  e4m3   yes
//   MXFP4, W4A8_MXFP4_FP8               32  e8m0   no
//   MIXED_PRECISION                     one of these for each module, from quantized_layers
//
// Which modules are quantized is decided by the tensors; the configuration must not contradict them. Input and KV-cache scales are
// ignored.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/config.h"
#include "formats/fp4.h"
#include "formats/fused.h"
#include "formats/patterns.h"
#include "formats/tensors.h"

namespace swordfish {
namespace {

struct Algo {
  std::string_view name;
  std::int64_t block;
  DType scale_type;
  bool has_global;
};
constexpr Algo kAlgos[] = {
    {"nvfp4", 16, DType::f8_e4m3, true},       {"nvfp4_awq", 16, DType::f8_e4m3, true},
    {"w4a16_nvfp4", 16, DType::f8_e4m3, true}, {"w4a8_nvfp4_fp8", 32, DType::f8_e4m3, true},
    {"mxfp4", 32, DType::f8_e8m0, false},      {"w4a8_mxfp4_fp8", 32, DType::f8_e8m0, false},
};
constexpr std::string_view kSupported =
    "NVFP4, W4A16_NVFP4, NVFP4_AWQ without pre_quant_scale, W4A8_NVFP4_FP8, MXFP4, W4A8_MXFP4_FP8, "
    "MIXED_PRECISION of these";

constexpr std::string_view kWeight[] = {".weight"};

// `at` names where the value stands; `module` is empty for the model as a whole.
Result<const Algo*> find_algo(std::string_view name, std::string_view at, std::string_view module) {
  const std::string lower = ascii_lower(name);
  for (const Algo& algo : kAlgos) {
    if (algo.name == lower) return &algo;
  }
  const std::string whose = module.empty() ? std::string() : fmt::format(" of module '{}'", printable(module));
  return unsupported("{}: quant_algo '{}'{} is not supported; supported: {}", at, printable(name), whose, kSupported);
}

Status check_block(const Algo& algo, std::int64_t group_size, std::string_view at) {
  if (group_size == algo.block) return {};
  return unsupported("{}: group_size {} for quant_algo {}; supported: {}", at, group_size, algo.name, algo.block);
}

// What the configuration says about modules.
struct Rules {
  std::string where;
  const Algo* algo = nullptr;  // null for MIXED_PRECISION
  struct Entry {
    std::string algo;
    std::optional<std::int64_t> group_size;
  };
  std::map<std::string, Entry, std::less<>> layers;  // quantized_layers
  std::vector<ModuleEntry> excluded;

  bool excludes(std::string_view module) const {
    return std::any_of(excluded.begin(), excluded.end(), [&](const ModuleEntry& entry) { return entry.matches(module); });
  }
  // quantized_layers lists modules; the stacked "experts.gate_up_proj" is a parameter of the module "experts".
  Result<const Algo*> algo_of(std::string_view module, bool stacked) const {
    if (algo) return algo;
    auto entry = layers.find(module);
    if (entry == layers.end() && stacked) entry = layers.find(module.substr(0, module.rfind('.')));
    if (entry == layers.end()) {
      return malformed("{}: module '{}' has quantized tensors, but quantized_layers does not list it", where, printable(module));
    }
    SF_ASSIGN(const Algo* found, find_algo(entry->second.algo, where + ": quantized_layers", module));
    if (entry->second.group_size) SF_TRY(check_block(*found, *entry->second.group_size, where + ": " + printable(module)));
    return found;
  }
};

Status read_lists(const Config::Source& source, Rules& rules) {
  const std::string at = where(source);
  for (const std::string_view key : {"exclude_modules", "ignore"}) {
    SF_ASSIGN(const auto list, get_array(source.object, key, at));
    if (!list) continue;
    SF_ASSIGN(std::vector<std::string> entries, string_list(*list, key, at));
    for (std::string& entry : entries) rules.excluded.emplace_back(std::move(entry));
  }
  SF_ASSIGN(const auto layers, get_object(source.object, "quantized_layers", at));
  if (!layers) return {};
  for (const simdjson::dom::key_value_pair layer : layers->get_object()) {
    const std::string key = fmt::format("{}: quantized_layers.{}", at, printable(layer.key));
    SF_ASSIGN(const auto algo, get_string(layer.value, "quant_algo", key));
    if (!algo) return malformed("{}: key 'quant_algo' (string) is missing", key);
    SF_ASSIGN(const auto group_size, get_int(layer.value, "group_size", key));
    const auto [entry, is_new] = rules.layers.try_emplace(std::string(layer.key), Rules::Entry{std::string(*algo), group_size});
    if (!is_new && !ascii_iequals(entry->second.algo, *algo)) {
      return malformed("contradicting configuration: {}: quant_algo '{}', but '{}' in {}", key, *algo, entry->second.algo,
                       rules.where);
    }
  }
  return {};
}

// config_groups.*.weights.group_size of the flattened form.
Status check_groups(const Config::Source& source, const Algo& algo) {
  SF_ASSIGN(const auto groups, get_object(source.object, "config_groups", where(source)));
  if (!groups) return {};
  for (const simdjson::dom::key_value_pair group : groups->get_object()) {
    const std::string at = fmt::format("{}: config_groups.{}.weights", where(source), printable(group.key));
    SF_ASSIGN(const auto weights, get_object(group.value, "weights", at));
    if (!weights) continue;
    SF_ASSIGN(const auto size, get_int(*weights, "group_size", at));
    if (size) SF_TRY(check_block(algo, *size, at));
  }
  return {};
}

Result<Rules> read_rules(const Config& config) {
  Rules rules;
  SF_ASSIGN(const auto name, config_string(config, {"quant_algo"}));
  if (!name) return malformed("{}: key 'quant_algo' (string) is missing", where(config.sources.front()));
  rules.where = name->where;
  if (!ascii_iequals(name->value, "MIXED_PRECISION")) {
    SF_ASSIGN(rules.algo, find_algo(name->value, name->where, ""));
  }
  for (const Config::Source& source : config.sources) {
    SF_TRY(read_lists(source, rules));
    if (!rules.algo) continue;
    SF_ASSIGN(const auto size, get_int(source.object, "group_size", where(source)));
    if (size) SF_TRY(check_block(*rules.algo, *size, where(source)));
    SF_TRY(check_groups(source, *rules.algo));
  }
  if (!rules.algo && rules.layers.empty()) {
    return malformed("{}: quant_algo MIXED_PRECISION without quantized_layers", rules.where);
  }
  return rules;
}

// Row 31: tensors that say the module needs more than its own weight.
Status check_transforms(const Container& container, std::string_view module, std::string_view prefix) {
  for (const std::string_view leaf : {"pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b"}) {
    const Tensor* tensor = container.find(fmt::format("{}{}", prefix, leaf));
    if (!tensor) continue;
    return unsupported("{}: module '{}' needs tensor '{}' applied while it runs (an online transform); not supported",
                       container.path_of(*tensor), printable(module), printable(tensor->name));
  }
  return {};
}

Status check_scale_type(const Container& container, const Tensor& scales, const Algo& algo) {
  return require_type(container, scales, {algo.scale_type, DType::u8});
}

std::string shape_formula(std::string_view before, std::int64_t block, std::string_view after) {
  return fmt::format("[{}K/{}{}]", before, block, after);
}

// Row 36.
Status check_k(const Container& container, const Tensor& codes, std::string_view module, std::int64_t k, const Algo& algo) {
  if (k > 0 && k % algo.block == 0) return {};
  return malformed("{}: module '{}': K = {} is not a positive multiple of the block size {}", container.path_of(codes),
                   printable(module), k, algo.block);
}

Status check_global_shape(const Container& container, const Tensor& global, std::int64_t experts) {
  SF_TRY(require_type(container, global, {DType::f32}));
  const std::vector<std::int64_t>& shape = global.shape;
  if (shape.empty() || (shape.size() == 1 && (shape[0] == 1 || (experts > 0 && shape[0] == experts)))) return {};
  return malformed("{}: tensor '{}': wrong shape: expected a scalar (one element{}), found {}", container.path_of(global),
                   printable(global.name), experts > 0 ? fmt::format(", or one for each of {} experts", experts) : "",
                   shape_text(shape));
}

// The tensor of the global scale, the last of `leaves`; null where the scheme has none.
Result<const Tensor*> find_global(const Container& container, const Algo& algo, const std::string& module,
                                  std::initializer_list<std::string_view> leaves, std::int64_t experts) {
  const std::string_view scale_2 = *(leaves.end() - 1);
  if (!algo.has_global) {
    const Tensor* global = container.find(scale_2);
    if (!global) return global;
    return malformed("{}: tensor '{}': quant_algo {} has no global scale", container.path_of(*global), printable(scale_2),
                     algo.name);
  }
  SF_ASSIGN(const Tensor* global, require_tensor(container, module, scale_2, leaves));
  SF_TRY(check_global_shape(container, *global, experts));
  return global;
}

Result<FormatLayer> dense_layer(const FormatContext& context, const Rules& rules, const std::string& module) {
  const Container& container = *context.container;
  const std::string weight = module + ".weight", scale = module + ".weight_scale", scale_2 = module + ".weight_scale_2";
  SF_ASSIGN(const Algo* algo, rules.algo_of(module, false));
  SF_TRY(check_transforms(container, module, module + "."));
  if (rules.excludes(module) && !tensors_decide(module)) {
    return malformed("{}: module '{}' is excluded from quantization, but has quantized tensors", rules.where, printable(module));
  }
  Fp4Matrix m;
  SF_ASSIGN(m.codes, require_tensor(container, module, weight, {weight, scale, scale_2}));
  SF_ASSIGN(m.scales, require_tensor(container, module, scale, {weight, scale, scale_2}));
  SF_ASSIGN(m.global, find_global(container, *algo, module, {weight, scale, scale_2}, 0));
  SF_TRY(require_type(container, *m.codes, {DType::u8, DType::f4}));
  SF_TRY(check_scale_type(container, *m.scales, *algo));
  if (m.codes->shape.size() != 2) {
    return malformed("{}: tensor '{}': wrong rank: expected [N, K/2], found {}", container.path_of(*m.codes), printable(weight),
                     shape_text(m.codes->shape));
  }
  m.info.n = m.codes->shape[0];
  m.info.k = m.codes->dtype == DType::f4 ? m.codes->shape[1] : 2 * m.codes->shape[1];
  SF_TRY(check_k(container, *m.codes, module, m.info.k, *algo));
  SF_TRY(require_shape(container, *m.scales, {m.info.n, m.info.k / algo->block}, shape_formula("N, ", algo->block, "")));
  m.info.name = module;
  m.info.weight_name = weight;
  m.info.scheme = fmt::format("modelopt {}", algo->name);
  m.info.group_size = algo->block;
  m.scale_type = algo->scale_type;
  if (container.find(module + ".bias")) m.info.bias = module + ".bias";
  return fp4_layer(context.container, std::move(m));
}

Result<FormatLayer> stacked_layer(const FormatContext& context, const Rules& rules, const std::string& name) {
  const Container& container = *context.container;
  const std::string scale = name + "_weight_scale", scale_2 = name + "_weight_scale_2";
  SF_ASSIGN(const Algo* algo, rules.algo_of(name, true));
  SF_TRY(check_transforms(container, name, name + "_"));
  if (rules.excludes(name)) {
    return malformed("{}: module '{}' is excluded from quantization, but has quantized tensors", rules.where, printable(name));
  }
  Fp4Matrix m;
  SF_ASSIGN(m.codes, require_tensor(container, name, name, {name, scale, scale_2}));
  SF_ASSIGN(m.scales, require_tensor(container, name, scale, {name, scale, scale_2}));
  SF_TRY(require_type(container, *m.codes, {DType::u8}));
  SF_TRY(check_scale_type(container, *m.scales, *algo));
  if (m.codes->shape.size() != 3 || m.codes->shape[0] < 1) {
    return malformed("{}: tensor '{}': wrong rank: expected [E, K/2, N], found {}", container.path_of(*m.codes), printable(name),
                     shape_text(m.codes->shape));
  }
  m.info.experts = m.codes->shape[0];
  m.info.k = 2 * m.codes->shape[1];
  m.info.n = m.codes->shape[2];
  SF_ASSIGN(m.global, find_global(container, *algo, name, {name, scale, scale_2}, m.info.experts));
  SF_TRY(check_k(container, *m.codes, name, m.info.k, *algo));
  SF_TRY(require_shape(container, *m.scales, {m.info.experts, m.info.k / algo->block, m.info.n},
                       shape_formula("E, ", algo->block, ", N")));
  m.info.name = name;
  m.info.weight_name = name;
  m.info.scheme = fmt::format("modelopt {}", algo->name);
  m.info.group_size = algo->block;
  m.scale_type = algo->scale_type;
  m.transposed = true;
  if (container.find(name + "_bias")) m.info.bias = name + "_bias";
  return fp4_layer(context.container, std::move(m));
}

// The quantized module that a tensor belongs to, if it is one of its defining tensors. Names are parts of the tensor's.
struct Owner {
  std::string_view name;
  bool stacked = false;
};
std::optional<Owner> owner_of(const Container& container, const Tensor& tensor) {
  constexpr std::string_view kDense[] = {".weight_scale", ".weight_scale_2"}, kStacked[] = {"_weight_scale", "_weight_scale_2"};
  if (const std::string_view module = before_suffix(tensor.name, kDense); !module.empty()) return Owner{module, false};
  if (const std::string_view module = before_suffix(tensor.name, kStacked); !module.empty()) return Owner{module, true};
  if (tensor.dtype != DType::u8 && tensor.dtype != DType::f4) return std::nullopt;
  if (const std::string_view module = before_suffix(tensor.name, kWeight); !module.empty()) return Owner{module, false};
  // A stack whose scales are lost: its name has no leaf.
  if (tensor.shape.size() == 3 && known_linear(tensor.name) && !container.find(tensor.name + ".weight"))
    return Owner{tensor.name, true};
  return std::nullopt;
}

// "model.layers" of "model.layers.3.mlp.down_proj": what stands before the first number.
std::string_view tower_of(std::string_view module) {
  for (std::size_t at = 0; at < module.size();) {
    const std::size_t end = std::min(module.find('.', at), module.size());
    if (end > at && std::all_of(module.begin() + at, module.begin() + end, [](char c) { return c >= '0' && c <= '9'; })) {
      return module.substr(0, at);
    }
    at = end + 1;
  }
  return module;
}

// Row 33: a projection that is plain although the configuration does not exclude it, in a tower that has quantized ones (another
// tower, such as a vision model, may be listed under another prefix than the tensors have).
Status check_plain(const FormatContext& context, const Rules& rules, const std::unordered_set<std::string_view>& quantized) {
  std::set<std::string_view> towers;
  for (const std::string_view module : quantized) towers.insert(tower_of(module));
  for (const Tensor& tensor : context.container->tensors) {
    if (tensor.shape.size() != 2) continue;
    const std::string_view module = before_suffix(tensor.name, kWeight);
    if (module.empty() || quantized.contains(module)) continue;
    const bool listed = rules.algo ? known_linear(module) && !rules.excludes(module) && towers.contains(tower_of(module))
                                   : rules.layers.contains(module);
    if (!listed || tensors_decide(module)) continue;
    return malformed("{}: module '{}' should be quantized by {}, but has only a plain weight ({})",
                     context.container->path_of(tensor), printable(module), rules.where, name(tensor.dtype));
  }
  return {};
}

}  // namespace

Status open_modelopt(FormatContext& context) {
  SF_ASSIGN(const Rules rules, read_rules(*context.config));
  std::vector<Owner> modules;
  std::unordered_set<std::string_view> seen;
  for (const Tensor& tensor : context.container->tensors) {
    const std::optional<Owner> owner = owner_of(*context.container, tensor);
    if (owner && seen.insert(owner->name).second) modules.push_back(*owner);
  }
  SF_TRY(add_layers(context, modules.size(), [&](std::size_t i) {
    const std::string module(modules[i].name);
    return modules[i].stacked ? stacked_layer(context, rules, module) : dense_layer(context, rules, module);
  }));
  return check_plain(context, rules, seen);
}

}  // namespace swordfish
