// Module names: fused parts, experts and kinds.
#include "formats/fused.h"

#include <gtest/gtest.h>

namespace swordfish {
namespace {

struct Place {
  const char *module, *fused;
  int index, parts;
};

TEST(Fused, PlacesOfDenseExpertSharedAndGgufNames) {
  constexpr Place places[] = {
      {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.qkv_proj", 0, 3},
      {"model.layers.0.self_attn.v_proj", "model.layers.0.self_attn.qkv_proj", 2, 3},
      {"model.layers.1.mlp.gate_proj", "model.layers.1.mlp.gate_up_proj", 0, 2},
      {"model.layers.1.mlp.up_proj", "model.layers.1.mlp.gate_up_proj", 1, 2},
      {"model.layers.1.mlp.shared_expert.up_proj", "model.layers.1.mlp.shared_expert.gate_up_proj", 1, 2},
      {"model.layers.1.mlp.experts.7.gate_proj", "model.layers.1.mlp.experts.7.gate_up_proj", 0, 2},
      {"model.layers.1.block_sparse_moe.experts.7.w1", "model.layers.1.block_sparse_moe.experts.7.w13", 0, 2},
      {"model.layers.1.block_sparse_moe.experts.7.w3", "model.layers.1.block_sparse_moe.experts.7.w13", 1, 2},
      {"blk.0.attn_k", "blk.0.attn_qkv", 1, 3},
      {"blk.0.ffn_up", "blk.0.ffn_gate_up", 1, 2},
      {"blk.0.ffn_gate_exps", "blk.0.ffn_gate_up_exps", 0, 2},
      {"blk.0.ffn_gate.5", "blk.0.ffn_gate_up.5", 0, 2},
  };
  for (const Place& place : places) {
    const auto found = fused_place(place.module);
    ASSERT_TRUE(found) << place.module;
    EXPECT_EQ(found->fused, place.fused);
    EXPECT_EQ(found->index, place.index) << place.module;
    EXPECT_EQ(found->parts, place.parts) << place.module;
    EXPECT_EQ(fused_sibling(place.module, place.index), place.module);
  }
  EXPECT_EQ(fused_sibling("model.layers.0.self_attn.q_proj", 1), "model.layers.0.self_attn.k_proj");
  for (const char* alone : {"model.layers.0.self_attn.o_proj", "model.layers.0.mlp.down_proj", "model.layers.0.mlp.gate",
                            "a.experts.0.w2", "model.layers.0.self_attn.qkv_proj", "lm_head", ""}) {
    EXPECT_FALSE(fused_place(alone)) << alone;
  }
}

TEST(Fused, Experts) {
  const auto place = expert_place("model.layers.3.mlp.experts.12.down_proj");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->prefix, "model.layers.3.mlp.experts");
  EXPECT_EQ(place->expert, 12);
  EXPECT_EQ(place->leaf, "down_proj");
  const auto old = expert_place("blk.3.ffn_down.4");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->prefix, "blk.3.ffn_down");
  EXPECT_EQ(old->expert, 4);
  for (const char* none : {"model.layers.3.mlp.experts.gate_up_proj", "model.layers.3.mlp.shared_experts.up_proj",
                           "model.layers.3.mlp.experts.99999999999999999999.w1", "blk.3", "experts."}) {
    EXPECT_FALSE(expert_place(none)) << none;
  }
}

TEST(Fused, Kinds) {
  EXPECT_EQ(module_kind("model.layers.17.mlp.experts.3.w1"), "model.layers.#.mlp.experts.#.w1");
  EXPECT_EQ(module_kind("lm_head"), "lm_head");
  EXPECT_TRUE(tensors_decide("lm_head"));
  EXPECT_TRUE(tensors_decide("model.layers.0.mlp.gate"));
  EXPECT_FALSE(tensors_decide("model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(known_linear("model.layers.0.mlp.gate_proj"));
}

}  // namespace
}  // namespace swordfish
