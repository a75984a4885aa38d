// Module names: which fused module a module is a part of, and which expert of which layer it is (formats.md 0.3, 7.5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace swordfish {

// The place of a module among the parts that engines concatenate along N.
struct FusedPlace {
  std::string fused;  // "model.layers.0.self_attn.qkv_proj"
  int index = 0;      // 0 = q or gate
  int parts = 0;      // 3 for q | k | v, 2 for gate | up
};
// nullopt for a module that stays alone. Dense, per-expert, shared-expert and GGUF names are known.
std::optional<FusedPlace> fused_place(std::string_view module);
// The module path of part `index` of the same fused module as `module` (which must have a place).
std::string fused_sibling(std::string_view module, int index);

// " (a part of fused module '...')", or nothing: for messages about a module that is not what its likes are.
std::string fused_note(std::string_view module);

// A module that is one of several numbered experts: "<prefix>.<expert>[.<leaf>]".
struct ExpertPlace {
  std::string_view prefix;  // "model.layers.0.mlp.experts"; old GGUF "blk.0.ffn_gate"
  std::int64_t expert = 0;
  std::string_view leaf;  // "gate_proj", "w1"; empty for old GGUF
};
// nullopt when the path has no expert number; the views point into `module`.
std::optional<ExpertPlace> expert_place(std::string_view module);

// The path with every numeric component replaced by "#": modules of the same kind in all layers (and experts) share it.
std::string module_kind(std::string_view module);

// Routers, embeddings and output heads: modules of which only the tensors say whether they are quantized (formats.md 4.2, 5.5).
bool tensors_decide(std::string_view module);
// Projections that every decoder quantizes unless told otherwise: q_proj, down_proj, w1, ...
bool known_linear(std::string_view module);

}  // namespace swordfish
