// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/keys.h"

#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

TEST(KeysTest, SlotsOfTheOptimizer) {
  const TensorKey model = ParseTensorKey("decoder.layers.mlp.linear_fc1.weight");
  EXPECT_EQ(model.kind, TensorKey::Kind::kModel);
  EXPECT_EQ(model.slot, Slot::kParam);
  for (const auto& [state, slot] : {std::pair{"param", Slot::kMaster}, {"fp32_param", Slot::kMaster}, {"exp_avg", Slot::kAdamMu},
                                    {"exp_avg_sq", Slot::kAdamNu}, {"momentum_buffer", Slot::kMuonMu}}) {
    for (const char* chained : {"", "chained_0.", "chained_12."}) {
      const TensorKey key = ParseTensorKey(std::string(chained) + "optimizer.state." + state + ".output_layer.weight");
      EXPECT_EQ(key.kind, TensorKey::Kind::kState);
      EXPECT_EQ(key.slot, slot) << state;
      EXPECT_EQ(key.model_key, "output_layer.weight");
    }
  }
  EXPECT_EQ(ParseTensorKey("optimizer.state.shampoo.output_layer.weight").slot, std::nullopt);
  EXPECT_EQ(ParseTensorKey("optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(a, b).bucket_idx_0.param").kind, TensorKey::Kind::kBucket);
  EXPECT_EQ(ParseTensorKey("chained_1.optimizer.distributed.x").kind, TensorKey::Kind::kBucket);
  EXPECT_EQ(ParseTensorKey("chained_.optimizer.state.exp_avg.x").kind, TensorKey::Kind::kModel);
  EXPECT_EQ(ParseTensorKey("optimizer.state.alone").kind, TensorKey::Kind::kOther);
}

TEST(KeysTest, WrittenKeysAreReadBack) {
  for (const Slot slot : {Slot::kParam, Slot::kMaster, Slot::kAdamMu, Slot::kAdamNu}) {
    const TensorKey key = ParseTensorKey(SlotKey(slot, "decoder.final_layernorm.weight"));
    EXPECT_EQ(key.slot, slot);
    EXPECT_EQ(key.model_key, "decoder.final_layernorm.weight");
  }
}

TEST(KeysTest, LayersByNumberOrAxis) {
  EXPECT_EQ(LayerNumber("decoder.layers.12.mlp.linear_fc1.weight"), 12);
  EXPECT_EQ(LayerNumber("decoder.layers.mlp.linear_fc1.weight"), std::nullopt);
  EXPECT_EQ(LayerNumber("decoder.layers.12"), std::nullopt);
  EXPECT_EQ(LayerNumber("decoder.layers.-1.x"), std::nullopt);
  EXPECT_EQ(LayerNumber("decoder.layers.99999999999999999999.x"), std::nullopt);
  EXPECT_TRUE(HasLayerAxis("decoder.layers.mlp.linear_fc1.weight"));
  EXPECT_FALSE(HasLayerAxis("decoder.final_layernorm.weight"));
  EXPECT_EQ(LayerNumber("language_model.decoder.layers.12.mlp.linear_fc1.weight"), 12);
  EXPECT_TRUE(HasLayerAxis("language_model.decoder.layers.mlp.linear_fc1.weight"));
  EXPECT_FALSE(HasLayerAxis("vision_model.decoder.layers.mlp.linear_fc1.weight"));
  EXPECT_TRUE(IsVision("vision_model.pos_embed.weight"));
  EXPECT_TRUE(IsVision("visual.patch_embed.proj.weight"));
  EXPECT_FALSE(IsVision("language_model.embedding.word_embeddings.weight"));
}

TEST(KeysTest, Objects) {
  EXPECT_EQ(ClassifyObject("decoder.layers.mlp.linear_fc1._extra_state/shard_0_3"), ObjectKind::kExtraState);
  EXPECT_EQ(ClassifyObject("rng_state/shard_0.0_2.2"), ObjectKind::kRng);
  EXPECT_EQ(ClassifyObject("rerun_state_machine_state/shard_0_1"), ObjectKind::kRerun);
  EXPECT_EQ(ClassifyObject("common_state/shard_0_1"), ObjectKind::kCommon);
  EXPECT_EQ(ClassifyObject("chained_0.optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1"), ObjectKind::kOptimizer);
  EXPECT_EQ(ClassifyObject("something/shard_0_1"), ObjectKind::kOther);
}

}  // namespace
TEST(KeysTest, NormsHaveTwoSpellings) {
  for (const char* layer : {"", "decoder.layers.", "decoder.layers.3."}) {
    const std::string at = layer;
    EXPECT_EQ(WithFusedNorms(at + "input_layernorm.weight"), at + "self_attention.linear_qkv.layer_norm_weight");
    EXPECT_EQ(WithFusedNorms(at + "pre_mlp_layernorm.bias"), at + "mlp.linear_fc1.layer_norm_bias");
    EXPECT_EQ(WithOwnNorms(at + "self_attention.linear_qkv.layer_norm_weight"), at + "input_layernorm.weight");
    EXPECT_EQ(WithOwnNorms(at + "mlp.linear_fc1.layer_norm_weight"), at + "pre_mlp_layernorm.weight");
    for (const char* other : {"post_input_layernorm.weight", "self_attention.q_layernorm.weight", "mlp.linear_fc1.weight"}) {
      EXPECT_EQ(WithFusedNorms(at + other), at + other);
      EXPECT_EQ(WithOwnNorms(at + other), at + other);
    }
  }
}

TEST(KeysTest, ALayersNumberIsTakenOut) {
  EXPECT_EQ(WithoutLayerNumber("decoder.layers.11.mlp.linear_fc1.weight"), "decoder.layers.mlp.linear_fc1.weight");
  EXPECT_EQ(WithoutLayerNumber("language_model.decoder.layers.0.mlp.linear_fc1.weight"), "language_model.decoder.layers.mlp.linear_fc1.weight");
}

}  // namespace crossdock::dialects::mcore
