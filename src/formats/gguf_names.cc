// Hugging Face names of GGUF tensors, for architecture "llama" (Llama, Mistral, Mixtral).
//
// The converter stores the rows of attn_q and attn_k per head in interleaved rotary order; with D rows a head, head h, pair i, j in
// {0,1}:
//   gguf_row[h*D + 2*i + j] = hf_row[h*D + j*(D/2) + i]          D = 8: 0,4,1,5,2,6,3,7
#include "formats/gguf_names.h"

#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>

namespace swordfish {
namespace {

struct Stem {
  std::string_view gguf, hf;
};
constexpr Stem kStems[] = {
    {"attn_norm", "input_layernorm"}, {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},   {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.o_proj"},
    {"ffn_gate", "mlp.gate_proj"},    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},    {"ffn_gate_inp", "block_sparse_moe.gate"},
};
constexpr Stem kExpertStems[] = {{"ffn_gate", "w1"}, {"ffn_up", "w3"}, {"ffn_down", "w2"}};
constexpr Stem kGlobals[] = {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "a.rest" -> "a", leaving "rest"; the whole text when there is no dot.
std::string_view take(std::string_view& text) {
  const std::size_t dot = text.find('.');
  const std::string_view first = text.substr(0, dot);
  text = dot == std::string_view::npos ? std::string_view() : text.substr(dot + 1);
  return first;
}

// A key's integer; of an array (heads a layer), the element of `layer`.
std::optional<std::int64_t> integer(const Container& container, const std::string& key, std::int64_t layer) {
  const auto found = container.gguf.find(key);
  if (found == container.gguf.end()) return std::nullopt;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&found->second)) return static_cast<std::int64_t>(*value);
  if (const auto* value = std::get_if<GgufArray>(&found->second);
      value && layer < static_cast<std::int64_t>(value->numbers.size())) {
    const double number = value->numbers[static_cast<std::size_t>(layer)];
    if (number >= 0 && number <= std::numeric_limits<std::int32_t>::max()) return static_cast<std::int64_t>(number);
  }
  return std::nullopt;
}

std::string_view find_stem(std::span<const Stem> stems, std::string_view gguf) {
  for (const Stem& stem : stems) {
    if (stem.gguf == gguf) return stem.hf;
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> rotary_gather(std::int64_t n, std::int64_t heads) {
  const std::int64_t d = n / heads, half = d / 2;
  std::vector<std::int64_t> gather(static_cast<std::size_t>(n));
  for (std::int64_t row = 0; row < n; ++row) {
    const std::int64_t in_head = row % d;
    gather[static_cast<std::size_t>(row)] = row / d * d + 2 * (in_head % half) + in_head / half;
  }
  return gather;
}

Checkpoint::HfName gguf_hf_name(const Container& container, std::string_view name, std::int64_t n) {
  Checkpoint::HfName as_is{std::string(name), {}};
  const auto architecture = container.gguf.find("general.architecture");
  if (architecture == container.gguf.end()) return as_is;
  if (const auto* text = std::get_if<std::string>(&architecture->second); text == nullptr || *text != "llama") return as_is;

  std::string_view rest = name;
  const std::string_view head = take(rest);
  if (head != "blk") {
    const std::string_view hf = find_stem(kGlobals, head);
    return hf.empty() || rest != "weight" ? as_is : Checkpoint::HfName{std::string(hf) + ".weight", {}};
  }
  const std::optional<std::int64_t> layer = number(take(rest));
  const std::string_view stem = take(rest);
  if (!layer) return as_is;
  const std::string prefix = "model.layers." + std::to_string(*layer) + ".";
  if (rest != "weight") {  // "<expert>.weight" of very old MoE files
    const std::optional<std::int64_t> expert = number(take(rest));
    const std::string_view hf = find_stem(kExpertStems, stem);
    if (!expert || hf.empty() || rest != "weight") return as_is;
    return {prefix + "block_sparse_moe.experts." + std::to_string(*expert) + "." + std::string(hf) + ".weight", {}};
  }
  const std::string_view hf = find_stem(kStems, stem);
  if (hf.empty()) return as_is;
  Checkpoint::HfName result{prefix + std::string(hf) + ".weight", {}};
  if (stem == "attn_q" || stem == "attn_k") {
    std::optional<std::int64_t> heads = integer(container, "llama.attention.head_count", *layer);
    if (stem == "attn_k") {
      if (const auto kv = integer(container, "llama.attention.head_count_kv", *layer)) heads = kv;
    }
    if (!heads || *heads < 1 || n % *heads != 0 || n / *heads % 2 != 0 || n < 2) return as_is;
    result.gather = rotary_gather(n, *heads);
  }
  return result;
}

}  // namespace swordfish
