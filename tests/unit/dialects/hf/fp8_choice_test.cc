// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_choice.h"

#include <gtest/gtest.h>

#include "unit/dialects/samples.h"

namespace crossdock::dialects::hf {
namespace {

TEST(StaysUnquantized, RoutersUnderAnyNameNormsEmbeddingsHeadsTowers) {  // user case B99
  const family::FamilyFile& family = Family("qwen3_moe");
  for (const char* name :
       {"model.layers.0.mlp.gate.weight", "model.layers.0.block_sparse_moe.gate.weight", "model.layers.0.feed_forward.router.weight", "model.layers.0.router.proj.weight",
        "model.layers.3.mlp.shared_expert_gate.weight", "model.embed_tokens.weight", "model.word_embeddings.weight", "model.tok_embeddings.weight", "lm_head.weight",
        "model.layers.61.shared_head.head.weight", "model.layers.61.eh_proj.weight", "model.layers.0.self_attn.q_norm.weight", "model.layers.0.input_layernorm.weight",
        "visual.blocks.0.mlp.up_proj.weight", "model.visual.merger.mlp.0.weight", "model.vision_tower.encoder.layer.0.mlp.fc1.weight", "vision_model.encoder.layers.0.attn.qkv.weight",
        "model.multi_modal_projector.linear_1.weight", "mlp1.1.weight", "audio_tower.layers.0.fc1.weight", "model.layers.0.linear_attn.in_proj_a.weight"}) {
    EXPECT_TRUE(StaysUnquantized(family, name)) << name;
  }
}

TEST(StaysUnquantized, NotLinearLayersThatOnlySoundAlike) {
  const family::FamilyFile& family = Family("qwen3_moe");
  for (const char* name : {"model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.experts.7.up_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                           "model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "model.layers.0.mlp.shared_experts.gate_proj.weight", "model.layers.0.attention.wo.weight",
                           "model.layers.0.attention.g_proj.weight", "output.weight"}) {
    EXPECT_FALSE(StaysUnquantized(family, name)) << name;
  }
}

TEST(StaysUnquantized, WhatOneFamilyCallsByAnotherName) {
  EXPECT_TRUE(StaysUnquantized(Family("internlm2"), "output.weight"));
  EXPECT_FALSE(StaysUnquantized(Family("internlm2"), "model.layers.0.feed_forward.w1.weight"));
  EXPECT_TRUE(StaysUnquantized(Family("ling3"), "model.layers.2.attention.g_proj.weight"));
  EXPECT_FALSE(StaysUnquantized(Family("ling3"), "model.layers.2.attention.q_proj.weight"));
}

TEST(JoinedAs, NamesWhatLoadersJoin) {
  EXPECT_EQ(JoinedAs("model.layers.3.self_attn.k_proj.weight"), "model.layers.3.self_attn.qkv");
  EXPECT_EQ(JoinedAs("model.layers.3.mlp.up_proj.weight"), JoinedAs("model.layers.3.mlp.gate_proj.weight"));
  EXPECT_NE(JoinedAs("model.layers.3.mlp.up_proj.weight"), JoinedAs("model.layers.2.mlp.gate_proj.weight"));
  EXPECT_EQ(JoinedAs("model.layers.3.mlp.experts.17.down_proj.weight"), "model.layers.3.mlp.experts");
  EXPECT_EQ(JoinedAs("model.layers.3.self_attn.o_proj.weight"), "");
  EXPECT_EQ(JoinedAs("model.layers.3.linear_attn.in_proj_z.weight"), "model.layers.3.linear_attn.in_proj_qkvz");
  EXPECT_EQ(JoinedAs("model.layers.3.linear_attn.in_proj_qkv.weight"), JoinedAs("model.layers.3.linear_attn.in_proj_z.weight"));
  EXPECT_EQ(JoinedAs("model.layers.3.linear_attn.in_proj_a.weight"), JoinedAs("model.layers.3.linear_attn.in_proj_b.weight"));
  EXPECT_NE(JoinedAs("model.layers.3.linear_attn.in_proj_a.weight"), JoinedAs("model.layers.3.linear_attn.in_proj_z.weight"));
}

TEST(IsLinearWeight, NeedsTwoAxesElementsAndAType) {
  Entry entry;
  entry.name = "a.weight";
  entry.dtype = DType::kBF16;
  entry.shape = {2, 3};
  EXPECT_TRUE(IsLinearWeight(entry));
  entry.shape = {2, 0};
  EXPECT_FALSE(IsLinearWeight(entry));
  entry.shape = {2, 3, 4};
  EXPECT_FALSE(IsLinearWeight(entry));
  entry.shape = {2, 3};
  entry.dtype = DType::kF64;
  EXPECT_FALSE(IsLinearWeight(entry));
  entry.dtype = DType::kF32;
  entry.name = "a.bias";
  EXPECT_FALSE(IsLinearWeight(entry));
}

}  // namespace
}  // namespace crossdock::dialects::hf
