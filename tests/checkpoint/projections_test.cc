// find_projections: which names and configurations say how a tensor's rows are divided, and which do not.
#include "checkpoint/projections.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace swordfish {
namespace {

std::vector<LayerInfo::Projection> find(const Container& container, const Config* config, const std::string& name, std::int64_t n) {
  std::vector<FormatLayer> layers(1);
  layers[0].info.name = name;
  layers[0].info.weight_name = name + ".weight";
  layers[0].info.n = n;
  find_projections(container, config, layers);
  return layers[0].info.projections;
}

std::vector<LayerInfo::Projection> with_config(const std::string& json, const std::string& name, std::int64_t n) {
  Config config;
  config.model = std::make_shared<const Json>(*Json::parse(json, "config.json"));
  std::string_view type;
  if (config.model->root()["model_type"].get(type) == simdjson::SUCCESS) config.model_type = type;
  return find(Container(), &config, name, n);
}

std::string text(const std::vector<LayerInfo::Projection>& projections) {
  std::string out;
  for (const auto& p : projections) out += fmt::format("{} {} {}; ", p.weight_name, p.n, p.heads);
  return out;
}

TEST(Projections, HeadsSayWhereQKVEnd) {
  const std::string phi = R"({"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 8})";
  EXPECT_EQ(text(with_config(phi, "l.0.self_attn.qkv_proj", 5120)),
            "l.0.self_attn.q_proj.weight 3072 24; l.0.self_attn.k_proj.weight 1024 8; l.0.self_attn.v_proj.weight 1024 8; ");
  EXPECT_TRUE(with_config(phi, "l.0.self_attn.qkv_proj", 5121).empty()) << "a row that no head has";
  EXPECT_TRUE(with_config(phi, "l.0.self_attn.q_proj", 3072).empty()) << "one projection";
  const std::string head_dim = R"({"text_config": {"model_type": "x", "hidden_size": 100, "head_dim": 64, "num_attention_heads": 6,
                                   "num_key_value_heads": 2}})";
  EXPECT_EQ(text(with_config(head_dim, "q.qkv_proj", 640)),
            "q.q_proj.weight 384 6; q.k_proj.weight 128 2; q.v_proj.weight 128 2; ");
  const std::string baichuan = R"({"model_type": "baichuan", "hidden_size": 512, "num_attention_heads": 4})";
  EXPECT_EQ(text(with_config(baichuan, "l.W_pack", 1536)), "l.q_proj.weight 512 4; l.k_proj.weight 512 4; l.v_proj.weight 512 4; ");
}

TEST(Projections, WhatGoesRoundByHeadIsNotCut) {
  const auto named = [](std::string_view type) {
    return fmt::format(R"({{"model_type": "{}", "hidden_size": 4096, "num_attention_heads": 32, "multi_query_group_num": 2,
                            "kv_channels": 128}})",
                       type);
  };
  EXPECT_EQ(text(with_config(named("chatglm"), "l.query_key_value", 4608)),
            "l.q_proj.weight 4096 32; l.k_proj.weight 256 2; l.v_proj.weight 256 2; ");
  for (const std::string_view type : {"gpt_neox", "bloom", "falcon"})
    EXPECT_TRUE(with_config(named(type), "l.query_key_value", 4608).empty()) << type;
}

TEST(Projections, GateAndUpAreHalves) {
  EXPECT_EQ(text(with_config("{}", "l.mlp.gate_up_proj", 1000)), "l.mlp.gate_proj.weight 500 0; l.mlp.up_proj.weight 500 0; ");
  EXPECT_TRUE(with_config("{}", "l.mlp.gate_up_proj", 1001).empty());
  EXPECT_EQ(text(with_config(R"({"model_type": "gpt_oss"})", "l.mlp.experts.gate_up_proj", 5760)),
            "l.mlp.experts.gate_up_proj.weight 5760 0; ")
      << "row by row: one projection of pairs";
  EXPECT_TRUE(with_config("{}", "l.mlp.up_proj", 1000).empty());
}

TEST(Projections, HostileNumbersAreNotKnown) {
  for (const char* const value : {"0", "-8", "9223372036854775807", "\"8\"", "[8]", "null", "1e300"}) {
    const std::string json = fmt::format(R"({{"hidden_size": 512, "num_attention_heads": {0}, "head_dim": {0}}})", value);
    EXPECT_TRUE(with_config(json, "l.qkv_proj", 1536).empty()) << value;
  }
}

TEST(Projections, GgufKeysSayTheSame) {
  Container gguf;
  gguf.kind = Container::Kind::gguf;
  EXPECT_TRUE(find(gguf, nullptr, "blk.0.attn_qkv", 5120).empty());
  gguf.gguf["general.architecture"] = std::string("phi3");
  gguf.gguf["phi3.attention.head_count"] = std::uint64_t{24};
  gguf.gguf["phi3.attention.head_count_kv"] = std::int64_t{8};
  gguf.gguf["phi3.embedding_length"] = std::uint64_t{3072};
  gguf.gguf["phi3.feed_forward_length"] = std::uint64_t{8192};
  EXPECT_EQ(text(find(gguf, nullptr, "blk.0.attn_qkv", 5120)),
            "blk.0.attn_q.weight 3072 24; blk.0.attn_k.weight 1024 8; blk.0.attn_v.weight 1024 8; ");
  EXPECT_EQ(text(find(gguf, nullptr, "blk.0.ffn_up", 16384)), "blk.0.ffn_gate.weight 8192 0; blk.0.ffn_up.weight 8192 0; ");
  EXPECT_TRUE(find(gguf, nullptr, "blk.0.ffn_up", 8192).empty()) << "up alone";
}

}  // namespace
}  // namespace swordfish
