// Llama, Mixtral, Qwen3-MoE and GLM-MoE: what their modules are called and how large they are.
#include "synth/architecture.h"

#include <fmt/format.h>

#include <algorithm>

namespace swordfish {
namespace {

using Kind = SynthModule::Kind;

void add_attention(const SynthShape& s, const std::string& layer, std::vector<SynthModule>& out) {
  const std::string attention = layer + ".self_attn";
  const std::int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  out.push_back({Kind::linear, attention + ".q_proj", q, s.hidden});
  out.push_back({Kind::linear, attention + ".k_proj", kv, s.hidden});
  out.push_back({Kind::linear, attention + ".v_proj", kv, s.hidden});
  out.push_back({Kind::linear, attention + ".o_proj", s.hidden, q});
  if (s.model == SynthModel::qwen3_moe) {
    out.push_back({Kind::vector, attention + ".q_norm.weight", s.head_dim, 1});
    out.push_back({Kind::vector, attention + ".k_norm.weight", s.head_dim, 1});
  }
  if (s.model == SynthModel::glm_moe) {
    out.push_back({Kind::vector, attention + ".q_proj.bias", q, 1});
    out.push_back({Kind::vector, attention + ".k_proj.bias", kv, 1});
    out.push_back({Kind::vector, attention + ".v_proj.bias", kv, 1});
  }
}

void add_mlp(const SynthShape& s, const std::string& mlp, std::int64_t width, std::vector<SynthModule>& out) {
  out.push_back({Kind::linear, mlp + ".gate_proj", width, s.hidden});
  out.push_back({Kind::linear, mlp + ".up_proj", width, s.hidden});
  out.push_back({Kind::linear, mlp + ".down_proj", s.hidden, width});
}

void add_experts(const SynthShape& s, const std::string& layer, std::vector<SynthModule>& out) {
  const bool mixtral = s.model == SynthModel::mixtral;
  const std::string block = layer + (mixtral ? ".block_sparse_moe" : ".mlp");
  out.push_back({Kind::plain_matrix, block + ".gate", s.experts, s.hidden});
  if (s.model == SynthModel::glm_moe) out.push_back({Kind::vector, block + ".gate.e_score_correction_bias", s.experts, 1});
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const std::string expert = fmt::format("{}.experts.{}", block, e);
    if (mixtral) {
      out.push_back({Kind::linear, expert + ".w1", s.expert_intermediate, s.hidden});
      out.push_back({Kind::linear, expert + ".w3", s.expert_intermediate, s.hidden});
      out.push_back({Kind::linear, expert + ".w2", s.hidden, s.expert_intermediate});
    } else {
      add_mlp(s, expert, s.expert_intermediate, out);
    }
  }
  if (s.shared_experts > 0) add_mlp(s, block + ".shared_experts", s.shared_experts * s.expert_intermediate, out);
}

}  // namespace

SynthShape published_shape(SynthModel model) {
  SynthShape s;
  s.model = model;
  s.head_dim = 128;
  switch (model) {
    case SynthModel::llama:
      s.hidden = 4096, s.intermediate = 14336, s.vocab = 128256, s.heads = 32, s.kv_heads = 8, s.layers = 32;
      break;
    case SynthModel::mixtral:
      s.hidden = 4096, s.vocab = 32000, s.heads = 32, s.kv_heads = 8, s.layers = 32;
      s.experts = 8, s.expert_intermediate = s.intermediate = 14336;
      break;
    case SynthModel::qwen3_moe:
      s.hidden = 2048, s.intermediate = 6144, s.vocab = 151936, s.heads = 32, s.kv_heads = 4, s.layers = 48;
      s.experts = 128, s.expert_intermediate = 768;
      break;
    case SynthModel::glm_moe:
      s.hidden = 4096, s.intermediate = 10944, s.vocab = 151552, s.heads = 96, s.kv_heads = 8, s.layers = 46;
      s.experts = 128, s.expert_intermediate = 1408, s.shared_experts = 1, s.dense_layers = 1;
      break;
  }
  return s;
}

bool halve(SynthShape& s) {
  constexpr std::int64_t kLeast = 256;  // two groups of 128
  const auto half = [](std::int64_t& value, std::int64_t least, std::int64_t multiple) {
    const std::int64_t next = value / 2 / multiple * multiple;
    if (next < least) return false;
    value = next;
    return true;
  };
  bool changed = half(s.vocab, 512, 8);
  changed |= half(s.hidden, kLeast, 128);
  changed |= half(s.intermediate, kLeast, 128);
  if (s.experts > 0) {
    changed |= half(s.expert_intermediate, kLeast, 128);
    changed |= half(s.experts, 4, 1);
  }
  if (s.kv_heads > 1 && s.heads % 2 == 0) {
    s.heads /= 2, s.kv_heads /= 2;
    changed = true;
  }
  return changed;
}

std::vector<SynthModule> layer_modules(const SynthShape& s, std::int64_t layer) {
  std::vector<SynthModule> out;
  const std::string name = fmt::format("model.layers.{}", layer);
  out.push_back({Kind::vector, name + ".input_layernorm.weight", s.hidden, 1});
  add_attention(s, name, out);
  out.push_back({Kind::vector, name + ".post_attention_layernorm.weight", s.hidden, 1});
  if (s.experts == 0 || layer < s.dense_layers) {
    add_mlp(s, name + ".mlp", s.intermediate, out);
  } else {
    add_experts(s, name, out);
  }
  return out;
}

std::vector<SynthModule> outer_modules(const SynthShape& s) {
  return {{Kind::plain_matrix, "model.embed_tokens", s.vocab, s.hidden},
          {Kind::vector, "model.norm.weight", s.hidden, 1},
          {Kind::plain_matrix, "lm_head", s.vocab, s.hidden}};
}

nlohmann::ordered_json model_config(const SynthShape& s) {
  static constexpr const char* kArchitectures[] = {"LlamaForCausalLM", "MixtralForCausalLM", "Qwen3MoeForCausalLM",
                                                   "Glm4MoeForCausalLM"};
  static constexpr const char* kTypes[] = {"llama", "mixtral", "qwen3_moe", "glm4_moe"};
  const auto model = static_cast<std::size_t>(s.model);
  nlohmann::ordered_json config{{"architectures", {kArchitectures[model]}},
                                {"model_type", kTypes[model]},
                                {"hidden_size", s.hidden},
                                {"intermediate_size", s.intermediate},
                                {"num_hidden_layers", s.layers},
                                {"num_attention_heads", s.heads},
                                {"num_key_value_heads", s.kv_heads},
                                {"head_dim", s.head_dim},
                                {"vocab_size", s.vocab},
                                {"rms_norm_eps", 1e-5},
                                {"tie_word_embeddings", false},
                                {"torch_dtype", "bfloat16"}};
  switch (s.model) {
    case SynthModel::llama: break;
    case SynthModel::mixtral:
      config["num_local_experts"] = s.experts;
      config["num_experts_per_tok"] = 2;
      break;
    case SynthModel::qwen3_moe:
      config["num_experts"] = s.experts;
      config["num_experts_per_tok"] = std::min<std::int64_t>(8, s.experts);
      config["moe_intermediate_size"] = s.expert_intermediate;
      break;
    case SynthModel::glm_moe:
      config["n_routed_experts"] = s.experts;
      config["n_shared_experts"] = s.shared_experts;
      config["num_experts_per_tok"] = std::min<std::int64_t>(8, s.experts);
      config["moe_intermediate_size"] = s.expert_intermediate;
      config["first_k_dense_replace"] = s.dense_layers;
      break;
  }
  return config;
}

}  // namespace swordfish
