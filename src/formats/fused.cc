// Module names: the tables of fused parts and the parsing of expert numbers.
#include "formats/fused.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "base/text.h"

namespace swordfish {
namespace {

struct Family {
  std::string_view fused;
  std::array<std::string_view, 3> parts;
};
// In the order of concatenation. w1 is gate and w3 is up; w2 (down) stays alone.
constexpr Family kFamilies[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj", ""}},
    {"w13", {"w1", "w3", ""}},
    {"attn_qkv", {"attn_q", "attn_k", "attn_v"}},
    {"ffn_gate_up", {"ffn_gate", "ffn_up", ""}},
    {"ffn_gate_up_exps", {"ffn_gate_exps", "ffn_up_exps", ""}},
    {"ffn_gate_up_shexp", {"ffn_gate_shexp", "ffn_up_shexp", ""}},
};

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view last_component(std::string_view module) { return module.substr(module.rfind('.') + 1); }

// The component that names the projection, and what is around it: "a.b.w1" -> {"a.b.", "w1", ""}; old GGUF experts put the
// number last: "blk.0.ffn_gate.3" -> {"blk.0.", "ffn_gate", ".3"}.
struct Split {
  std::string_view head, name, tail;
};
Split split_projection(std::string_view module) {
  std::size_t end = module.size();
  if (module.starts_with("blk.") && is_number(last_component(module))) end = module.rfind('.');
  const std::size_t dot = module.substr(0, end).rfind('.');
  const std::size_t begin = dot == std::string_view::npos ? 0 : dot + 1;
  return {module.substr(0, begin), module.substr(begin, end - begin), module.substr(end)};
}

const Family* family_of(std::string_view name, int& index) {
  for (const Family& family : kFamilies) {
    for (std::size_t i = 0; i < family.parts.size(); ++i) {
      if (!family.parts[i].empty() && family.parts[i] == name) {
        index = static_cast<int>(i);
        return &family;
      }
    }
  }
  return nullptr;
}

std::string join(const Split& split, std::string_view name) {
  std::string out(split.head);
  out += name;
  out += split.tail;
  return out;
}

}  // namespace

std::optional<FusedPlace> fused_place(std::string_view module) {
  const Split split = split_projection(module);
  int index = 0;
  const Family* family = family_of(split.name, index);
  if (!family) return std::nullopt;
  return FusedPlace{join(split, family->fused), index, family->parts[2].empty() ? 2 : 3};
}

std::string fused_sibling(std::string_view module, int index) {
  const Split split = split_projection(module);
  int own = 0;
  const Family* family = family_of(split.name, own);
  return family ? join(split, family->parts[static_cast<std::size_t>(index)]) : std::string(module);
}

std::string fused_note(std::string_view module) {
  const std::optional<FusedPlace> place = fused_place(module);
  return place ? fmt::format(" (a part of fused module '{}')", printable(place->fused)) : std::string();
}

std::optional<ExpertPlace> expert_place(std::string_view module) {
  std::size_t begin = std::string_view::npos;  // of the number
  if (const std::size_t at = module.rfind("experts."); at != std::string_view::npos && (at == 0 || module[at - 1] == '.')) {
    begin = at + 8;
  } else if (module.starts_with("blk.") && is_number(last_component(module)) && module.find(".ffn_") != std::string_view::npos) {
    begin = module.rfind('.') + 1;
  }
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t end = std::min(module.find('.', begin), module.size());
  const std::string_view digits = module.substr(begin, end - begin);
  std::int64_t expert = 0;
  if (!is_number(digits) || std::from_chars(digits.data(), digits.data() + digits.size(), expert).ec != std::errc())
    return std::nullopt;
  return ExpertPlace{module.substr(0, begin - 1), expert, end < module.size() ? module.substr(end + 1) : std::string_view()};
}

std::string module_kind(std::string_view module) {
  std::string out;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view component = module.substr(begin, end - begin);
    out += is_number(component) ? std::string_view("#") : component;
    if (end == module.size()) return out;
    out += '.';
    begin = end + 1;
  }
}

bool tensors_decide(std::string_view module) {
  constexpr std::string_view names[] = {
      "lm_head",      "output", "score",      "classifier",   "gate",     "router",    "shared_expert_gate",
      "embed_tokens", "wte",    "token_embd", "ffn_gate_inp", "embed_in", "embed_out", "word_embeddings",
      "wpe"};
  const std::string_view last = last_component(module);
  return std::find(std::begin(names), std::end(names), last) != std::end(names) || last.find("embed") != std::string_view::npos;
}

bool known_linear(std::string_view module) {
  constexpr std::string_view names[] = {"q_proj",  "k_proj",    "v_proj",       "o_proj", "qkv_proj", "gate_proj",
                                        "up_proj", "down_proj", "gate_up_proj", "w1",     "w2",       "w3"};
  return std::find(std::begin(names), std::end(names), last_component(module)) != std::end(names);
}

}  // namespace swordfish
