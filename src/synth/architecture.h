// The modules of the model families that `swordfish synth` writes: names, shapes and configuration as published checkpoints have
// them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "swordfish/status.h"

namespace swordfish {

enum class SynthModel : std::uint8_t { llama, mixtral, qwen3_moe, glm_moe };

// The numbers of config.json that decide shapes.
struct SynthShape {
  SynthModel model = SynthModel::llama;
  std::int64_t hidden = 0, intermediate = 0, vocab = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t experts = 0, expert_intermediate = 0;  // 0: dense
  std::int64_t shared_experts = 0, dense_layers = 0;  // GLM: leading layers without experts
  std::int64_t layers = 0;
};

// One thing with weights. `linear` modules are the ones that get quantized; the others stay bf16 (`vector`: also biases, written
// under their own name).
struct SynthModule {
  enum class Kind : std::uint8_t { linear, plain_matrix, vector };
  Kind kind = Kind::linear;
  std::string name;  // module path; for a vector the whole tensor name
  std::int64_t n = 0, k = 0;
};

// The published shape of a family (Llama-3-8B, Mixtral-8x7B, Qwen3-30B-A3B, GLM-4.5-Air).
SynthShape published_shape(SynthModel model);
// The same family with every dimension halved as long as it stays usable; false when nothing is left to halve.
bool halve(SynthShape& shape);
std::vector<SynthModule> layer_modules(const SynthShape& shape, std::int64_t layer);
std::vector<SynthModule> outer_modules(const SynthShape& shape);  // embeddings, last norm, lm_head
// config.json without its quantization.
nlohmann::ordered_json model_config(const SynthShape& shape);

}  // namespace swordfish
