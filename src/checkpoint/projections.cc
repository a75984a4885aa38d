// Tensors that hold several projections: Phi-3's and GLM's qkv_proj and gate_up_proj, stacked experts, GGUF's attn_qkv, and what
// Phi-3 calls ffn_up there (formats.md 0.3, 7.5).
#include "checkpoint/projections.h"

#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace swordfish {
namespace {

// A fused leaf and what its rows are, from the top. Only tensors whose projections lie one below the other: query_key_value of
// GPT-NeoX, Falcon and BLOOM, and wqkv of InternLM2, go round by head.
struct Fused {
  std::string_view leaf;
  std::array<std::string_view, 3> parts;
};
constexpr Fused kAttention[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}}, {"W_pack", {"q_proj", "k_proj", "v_proj"}},
    {"Wqkv", {"q_proj", "k_proj", "v_proj"}},     {"c_attn", {"q_proj", "k_proj", "v_proj"}},
    {"attn_qkv", {"attn_q", "attn_k", "attn_v"}}, {"query_key_value", {"q_proj", "k_proj", "v_proj"}},
};
constexpr Fused kGated[] = {{"gate_up_proj", {"gate_proj", "up_proj", ""}}, {"ffn_up", {"ffn_gate", "ffn_up", ""}}};

// Numbers of the model; 0: not stated.
struct Facts {
  std::string_view model_type;
  std::int64_t heads = 0, kv_heads = 0, head_size = 0, hidden = 0, intermediate = 0;
};

std::int64_t number_of(const simdjson::dom::element& object, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    std::int64_t value = 0;
    if (object[key].get(value) == simdjson::SUCCESS && value > 0) return value;
  }
  return 0;
}

Facts facts_of(const Config& config) {
  Facts facts;
  facts.model_type = config.model_type;
  if (!config.model) return facts;
  simdjson::dom::element model = config.model->root(), text;
  if (model["text_config"].get(text) == simdjson::SUCCESS && text.is_object()) {
    model = text;
    std::string_view type;
    if (model["model_type"].get(type) == simdjson::SUCCESS) facts.model_type = type;
  }
  facts.heads = number_of(model, {"num_attention_heads", "n_heads", "n_head"});
  facts.kv_heads = number_of(model, {"num_key_value_heads", "multi_query_group_num", "kv_n_heads"});
  facts.head_size = number_of(model, {"head_dim", "kv_channels"});
  facts.hidden = number_of(model, {"hidden_size", "d_model", "n_embd"});
  return facts;
}

Facts facts_of(const Container& gguf) {
  Facts facts;
  const auto architecture = gguf.gguf.find("general.architecture");
  const auto* name = architecture == gguf.gguf.end() ? nullptr : std::get_if<std::string>(&architecture->second);
  if (name == nullptr) return facts;
  const auto number = [&](std::string_view key) -> std::int64_t {
    const auto found = gguf.gguf.find(fmt::format("{}.{}", *name, key));
    if (found == gguf.gguf.end()) return 0;
    if (const auto* i = std::get_if<std::int64_t>(&found->second)) return *i;
    const auto* u = std::get_if<std::uint64_t>(&found->second);
    return u != nullptr && *u <= static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())
               ? static_cast<std::int64_t>(*u)
               : 0;
  };
  facts.model_type = *name;
  facts.heads = number("attention.head_count");
  facts.kv_heads = number("attention.head_count_kv");
  facts.head_size = number("attention.key_length");
  facts.hidden = number("embedding_length");
  facts.intermediate = number("feed_forward_length");
  return facts;
}

// q | k | v where the heads account for every row; else nothing.
std::vector<LayerInfo::Projection> attention_rows(const Facts& facts, std::int64_t n) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // products below stay far from overflow
  if (facts.heads < 1 || facts.heads > kMost || facts.kv_heads > kMost || facts.head_size > kMost) return {};
  const std::int64_t kv_heads = facts.kv_heads > 0 ? facts.kv_heads : facts.heads;
  const std::int64_t size = facts.head_size > 0               ? facts.head_size
                            : facts.hidden % facts.heads == 0 ? facts.hidden / facts.heads
                                                              : 0;
  if (size < 1 || size > kMost || (facts.heads + 2 * kv_heads) * size != n) return {};
  return {{{}, facts.heads * size, facts.heads}, {{}, kv_heads * size, kv_heads}, {{}, kv_heads * size, kv_heads}};
}

}  // namespace

void find_projections(const Container& container, const Config* config, std::vector<FormatLayer>& layers) {
  std::optional<Facts> facts;  // of the model: asked for when a layer needs them
  for (FormatLayer& layer : layers) {
    LayerInfo& info = layer.info;
    const std::string_view leaf = std::string_view(info.name).substr(info.name.rfind('.') + 1);
    const auto in = [&](std::span<const Fused> list) {
      for (const Fused& fused : list)
        if (fused.leaf == leaf) return &fused;
      return static_cast<const Fused*>(nullptr);
    };
    const Fused *attention = in(kAttention), *gated = in(kGated);
    if (attention == nullptr && gated == nullptr) continue;
    if (!facts) facts = config != nullptr ? facts_of(*config) : facts_of(container);
    const bool gguf = container.kind == Container::Kind::gguf;
    if (attention != nullptr) {
      if (leaf == "query_key_value" && facts->model_type != "chatglm") continue;
      info.projections = attention_rows(*facts, info.n);
    } else if (leaf == "gate_up_proj" && facts->model_type == "gpt_oss") {
      info.projections = {{info.weight_name, info.n, 0}};  // gate and up row by row: pairs of one projection
      continue;
    } else if (info.n % 2 == 0 && (leaf == "gate_up_proj" || (gguf && info.n == 2 * facts->intermediate))) {
      info.projections = {{{}, info.n / 2, 0}, {{}, info.n / 2, 0}};
    }
    const Fused& fused = attention != nullptr ? *attention : *gated;
    const std::size_t at = info.weight_name.rfind(leaf);
    for (std::size_t i = 0; i < info.projections.size(); ++i) {
      info.projections[i].weight_name = info.weight_name;
      if (at == std::string::npos) continue;
      info.projections[i].weight_name.replace(at, leaf.size(), fused.parts[i]);
    }
  }
}

}  // namespace swordfish
