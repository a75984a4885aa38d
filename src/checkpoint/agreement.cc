// Checks across the layers of one checkpoint.
#include "checkpoint/agreement.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/fused.h"

namespace swordfish {
namespace {

// What the parts of a fused module, and the experts of a layer, must have in common.
std::string describe(const LayerInfo& info) {
  const std::string group = info.group_size == info.k ? "channel" : std::to_string(info.group_size);
  const std::string_view zero = info.zero == ZeroKind::constant ? "symmetric" : "asymmetric";
  return fmt::format("{} {} group {} {}", info.scheme, name(info.code), group, zero);
}

bool like(const LayerInfo& a, const LayerInfo& b) {  // the same description
  return a.scheme == b.scheme && a.code == b.code && (a.zero == ZeroKind::constant) == (b.zero == ZeroKind::constant) &&
         (a.group_size == a.k) == (b.group_size == b.k) && (a.group_size == a.k || a.group_size == b.group_size);
}

std::string file_of(const Container& container, const LayerInfo& info) {
  const Tensor* tensor = info.tensors.empty() ? nullptr : container.find(info.tensors.front());
  return tensor ? container.path_of(*tensor) : std::string("checkpoint");
}

// "q_proj: ...; k_proj: plain BF16".
std::string describe_parts(const Container& container, const std::vector<LayerInfo*>& parts, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    const std::string part = fused_sibling(parts.front()->name, i);
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const LayerInfo* info) { return info->name == part; });
    const Tensor* plain = container.find(part + ".weight");
    const std::string what = found != parts.end() ? describe(**found)
                             : plain              ? fmt::format("plain {}", type_name(*plain))
                                                  : std::string("absent");
    out += fmt::format("{}{}: {}", i == 0 ? "" : "; ", printable(part), what);
  }
  return out;
}

// The number of routed experts that the model configuration states, or 0.
Result<std::int64_t> stated_experts(const Config& config) {
  if (!config.model) return 0;
  std::vector<simdjson::dom::element> places = {config.model->root()};
  SF_ASSIGN(const auto text, get_value(config.model->root(), "text_config", config.model->what()));
  if (text && text->is_object()) places.push_back(*text);
  for (const auto& place : places) {
    for (const std::string_view key : {"num_local_experts", "n_routed_experts", "num_experts"}) {
      SF_ASSIGN(const auto value, get_value(place, key, config.model->what()));
      if (value && value->is_int64()) return std::int64_t(*value);
    }
  }
  return 0;
}

}  // namespace

Status link_fused(const Container& container, const Config* config, std::vector<FormatLayer>& layers) {
  struct Module {
    std::vector<LayerInfo*> parts;
    int count = 0;
  };
  std::map<std::string, Module> fused;
  for (FormatLayer& layer : layers) {
    std::optional<FusedPlace> place = fused_place(layer.info.name);
    if (!place) continue;
    layer.info.fused_index = place->index;
    Module& module = fused[std::move(place->fused)];
    module.parts.push_back(&layer.info);
    module.count = place->parts;
  }
  for (const auto& [name, module] : fused) {
    const auto& [parts, count] = module;
    const LayerInfo& first = *parts.front();
    const auto like_first = [&](const LayerInfo* info) { return like(*info, first); };
    const bool alike = std::all_of(parts.begin(), parts.end(), like_first);
    bool complete = static_cast<int>(parts.size()) == count, plain = false;
    for (int i = 0; i < count && !complete; ++i) {
      const std::string part = fused_sibling(first.name, i);
      const bool quantized = std::any_of(parts.begin(), parts.end(), [&](const LayerInfo* info) { return info->name == part; });
      plain = plain || (!quantized && container.find(part + ".weight"));
    }
    // compressed-tensors may ignore one part by name; its reader has refused a plain part that is not ignored.
    if (config && (!alike || (plain && !first.scheme.starts_with("compressed-tensors")))) {
      return malformed("{}: the parts of fused module '{}' differ in quantization: {}", file_of(container, first), printable(name),
                       describe_parts(container, parts, count));
    }
    // What else packing as one weight needs. Parts that differ here are sound, each by itself.
    const auto same_shape = [&](const LayerInfo* info) {
      return std::tie(info->k, info->experts, info->scale_type, info->has_global) ==
             std::tie(first.k, first.experts, first.scale_type, first.has_global);
    };
    const bool one = complete && alike && std::all_of(parts.begin(), parts.end(), same_shape);
    for (LayerInfo* info : parts) {
      if (one) {
        info->fused_into = name;
      } else {
        info->fused_index = 0;
      }
    }
  }
  return {};
}

Status check_experts(const Container& container, const Config* config, const std::vector<FormatLayer>& layers) {
  if (!config) return {};
  using Experts = std::map<std::int64_t, const LayerInfo*>;
  std::map<std::string, std::map<std::string, Experts, std::less<>>, std::less<>> groups;  // prefix, leaf
  std::map<std::string_view, std::int64_t> counts;
  for (const FormatLayer& layer : layers) {
    const std::optional<ExpertPlace> place = expert_place(layer.info.name);
    if (!place) continue;
    auto group = groups.find(place->prefix);
    if (group == groups.end()) group = groups.try_emplace(std::string(place->prefix)).first;
    auto leaf = group->second.find(place->leaf);
    if (leaf == group->second.end()) leaf = group->second.try_emplace(std::string(place->leaf)).first;
    leaf->second[place->expert] = &layer.info;
    std::int64_t& count = counts[group->first];
    count = std::max(count, place->expert + 1);
  }
  SF_ASSIGN(const std::int64_t stated, stated_experts(*config));
  for (const FormatLayer& layer : layers) {
    const LayerInfo& info = layer.info;
    if (info.experts == 0 || stated == 0 || info.experts == stated) continue;
    return malformed("{}: module '{}' holds {} experts, but the model configuration states {}", file_of(container, info),
                     printable(info.name), info.experts, stated);
  }
  for (const auto& [prefix, leaves] : groups) {
    const std::int64_t count = std::max(counts[prefix], stated);
    for (const auto& [leaf, experts] : leaves) {
      const LayerInfo& first = *experts.begin()->second;
      std::int64_t next = 0;
      for (const auto& [expert, info] : experts) {
        if (expert != next) break;
        ++next;
        if (info->n == first.n && info->k == first.k && like(*info, first)) continue;
        return malformed("{}: experts of '{}' differ: expert {} ({}) is [{}, {}] {}, but expert {} is [{}, {}] {}",
                         file_of(container, *info), printable(prefix), expert, printable(info->name), info->n, info->k,
                         describe(*info), experts.begin()->first, first.n, first.k, describe(first));
      }
      if (next == count) continue;
      const std::string missing = fmt::format("{}.{}{}{}", prefix, next, leaf.empty() ? "" : ".", leaf);
      return malformed("{}: layer '{}': expert {} is missing: expected {} experts (0..{}), but module '{}' {}",
                       file_of(container, first), printable(prefix), next, count, count - 1, printable(missing),
                       container.find(missing + ".weight") ? "is not quantized like the others" : "has no tensors");
    }
  }
  return {};
}

Status check_doubles(const Container& container, const std::vector<FormatLayer>& layers) {
  for (const FormatLayer& layer : layers) {
    const LayerInfo& info = layer.info;
    const Tensor* plain = container.find(info.name + ".weight");
    if (!plain || std::find(info.tensors.begin(), info.tensors.end(), plain->name) != info.tensors.end()) continue;
    return malformed("{}: module '{}' has both a quantized and a plain weight: '{}' ({}) beside {}", container.path_of(*plain),
                     printable(info.name), printable(plain->name), type_name(*plain), fmt::join(info.tensors, ", "));
  }
  return {};
}

}  // namespace swordfish
