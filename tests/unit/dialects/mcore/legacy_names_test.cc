// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdock::dialects::mcore {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Names(const std::vector<StateItem>& items) {
  std::vector<std::string> out;
  for (const StateItem& item : items) out.push_back(item.name + (item.parameter ? "" : item.none ? " none" : " empty"));
  return out;
}

TEST(LegacyNames, DirectoriesNameStagesOnlyWhereThereAreMore) {
  EXPECT_EQ(RankDirName(3, 0, 1), "mp_rank_03");
  EXPECT_EQ(RankDirName(0, 1, 2), "mp_rank_00_001");
  EXPECT_EQ(RankDirName(100, 12, 16), "mp_rank_100_012");
  EXPECT_EQ(RankDirName(1, 0, 1, 3, 4), "mp_rank_01_003");
  EXPECT_EQ(RankDirName(1, 2, 4, 3, 4), "mp_rank_01_002_003");
}

TEST(LegacyNames, LayersCountWithinTheirChunk) {
  for (const char* key : {"decoder.layers.mlp.linear_fc2.weight", "decoder.layers.17.mlp.linear_fc2.weight"}) {
    EXPECT_EQ(ModuleName(key, 3, LayerSpec::kTransformerEngine), "decoder.layers.3.mlp.linear_fc2.weight");
  }
  EXPECT_EQ(ModuleName("embedding.word_embeddings.weight", 3, LayerSpec::kTransformerEngine), "embedding.word_embeddings.weight");
}

TEST(LegacyNames, MegatronsOwnLayersHaveNormsOfTheirOwn) {
  const LayerSpec local = LayerSpec::kLocal;
  EXPECT_EQ(ModuleName("decoder.layers.self_attention.linear_qkv.layer_norm_weight", 0, local), "decoder.layers.0.input_layernorm.weight");
  EXPECT_EQ(ModuleName("decoder.layers.5.mlp.linear_fc1.layer_norm_weight", 2, local), "decoder.layers.2.pre_mlp_layernorm.weight");
  EXPECT_EQ(ModuleName("decoder.layers.mlp.linear_fc1.weight", 2, local), "decoder.layers.2.mlp.linear_fc1.weight");
  EXPECT_EQ(ModuleName("decoder.layers.5.self_attention.linear_kv_up_proj.layer_norm_weight", 2, local), "decoder.layers.2.self_attention.kv_layernorm.weight");
  EXPECT_EQ(ModuleName("decoder.layers.5.self_attention.linear_q_up_proj.layer_norm_weight", 2, local), "decoder.layers.2.self_attention.q_layernorm.weight");
}

TEST(LegacyNames, ExpertsAreCountedWithinTheirRank) {
  const std::string fc1 = ModuleName("decoder.layers.mlp.experts.experts.linear_fc1.weight", 2, LayerSpec::kTransformerEngine);
  EXPECT_TRUE(IsOfExperts(fc1));
  EXPECT_FALSE(IsOfExperts("decoder.layers.mlp.shared_experts.linear_fc1.weight"));
  EXPECT_EQ(ExpertName(fc1, 10, true), "decoder.layers.2.mlp.experts.linear_fc1.weight10");
  EXPECT_EQ(ExpertName(fc1, 10, false), "decoder.layers.2.mlp.experts.local_experts.10.linear_fc1.weight");
  Value args = Value::MakeDict();
  EXPECT_TRUE(GroupsExperts(args));
  args.Set("moe_grouped_gemm", Value(false));
  EXPECT_FALSE(GroupsExperts(args));
  args.Set("moe_grouped_gemm", Value(true));
  args.Set("transformer_impl", Value("local"));
  EXPECT_FALSE(GroupsExperts(args));
}

TEST(LegacyNames, LayersOfPredictionAreCalledByTheirModule) {
  const std::string_view key = "mtp.layers.1.transformer_layer.mlp.linear_fc1.layer_norm_weight";
  EXPECT_EQ(MtpModuleName(key, LayerSpec::kTransformerEngine), "mtp.layers.1.mtp_model_layer.mlp.linear_fc1.layer_norm_weight");
  EXPECT_EQ(MtpModuleName(key, LayerSpec::kLocal), "mtp.layers.1.mtp_model_layer.pre_mlp_layernorm.weight");
  EXPECT_EQ(MtpModuleName("mtp.layers.0.eh_proj.weight", LayerSpec::kLocal), "mtp.layers.0.eh_proj.weight");
  const std::string experts = MtpModuleName("mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc1.weight", LayerSpec::kTransformerEngine);
  EXPECT_EQ(ExpertName(experts, 3, true), "mtp.layers.0.mtp_model_layer.mlp.experts.linear_fc1.weight3");
}

TEST(LegacyNames, LargerModelsKeepTheirPrefixesAndTowersCountTheirBlocks) {
  EXPECT_EQ(ModuleName("language_model.decoder.layers.mlp.linear_fc2.weight", 3, LayerSpec::kTransformerEngine), "language_model.decoder.layers.3.mlp.linear_fc2.weight");
  EXPECT_EQ(ModuleName("foundation_model.decoder.layers.7.mlp.linear_fc2.weight", 1, LayerSpec::kTransformerEngine), "foundation_model.decoder.layers.1.mlp.linear_fc2.weight");
  EXPECT_EQ(TowerModuleName("vision_model.decoder.layers.mlp.linear_fc1.bias", 2), "vision_model.decoder.layers.2.mlp.linear_fc1.bias");
  EXPECT_EQ(TowerModuleName("vision_model.decoder.deepstack_merger_list.linear_fc1.bias", 0), "vision_model.decoder.deepstack_merger_list.0.linear_fc1.bias");
}

TEST(LegacyNames, AGroupedModuleHasOneExtraState) {
  const std::string layer = "decoder.layers.0.mlp.";
  EXPECT_THAT(Names(WithExtraStates({layer + "router.weight", layer + "router.expert_bias", layer + "experts.linear_fc1.weight0", layer + "experts.linear_fc1.weight1",
                                     layer + "shared_experts.gate_weight"}, LayerSpec::kTransformerEngine, "", false)),
              ElementsAre(layer + "router.weight", layer + "router.expert_bias", layer + "experts.linear_fc1.weight0", layer + "experts.linear_fc1.weight1",
                          layer + "experts.linear_fc1._extra_state empty", layer + "shared_experts.gate_weight"));
}

TEST(LegacyNames, ExtraStatesFollowTheirModules) {
  const std::vector<std::string> parameters = {
      "embedding.word_embeddings.weight", "decoder.layers.0.self_attention.linear_proj.weight", "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
      "decoder.layers.0.self_attention.linear_qkv.weight", "decoder.final_layernorm.weight"};
  EXPECT_THAT(Names(WithExtraStates(parameters, LayerSpec::kTransformerEngine, "", true)),
              ElementsAre("embedding.word_embeddings.weight", "decoder.layers.0.self_attention.core_attention._extra_state empty",
                          "decoder.layers.0.self_attention.linear_proj.weight", "decoder.layers.0.self_attention.linear_proj._extra_state empty",
                          "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", "decoder.layers.0.self_attention.linear_qkv.weight",
                          "decoder.layers.0.self_attention.linear_qkv._extra_state empty", "decoder.final_layernorm.weight",
                          "decoder.final_layernorm._extra_state empty", "output_layer._extra_state none"));
  EXPECT_THAT(Names(WithExtraStates({"decoder.layers.0.input_layernorm.weight", "decoder.layers.0.self_attention.linear_proj.weight"}, LayerSpec::kLocal, "", false)),
              ElementsAre("decoder.layers.0.input_layernorm.weight", "decoder.layers.0.self_attention.linear_proj.weight",
                          "decoder.layers.0.self_attention.linear_proj._extra_state none"));
}

TEST(LegacyNames, ExtraStatesOfALargerModel) {
  EXPECT_THAT(Names(WithExtraStates({"vision_model.decoder.layers.0.self_attention.linear_qkv.bias", "vision_model.merger.linear_fc1.bias", "vision_model.pos_embed.weight", "visual.blocks.0.norm1.weight",
                                     "language_model.decoder.layers.0.mlp.linear_fc2.weight"}, LayerSpec::kTransformerEngine, "language_model.", true)),
              ElementsAre("vision_model.decoder.layers.0.self_attention.core_attention._extra_state empty", "vision_model.decoder.layers.0.self_attention.linear_qkv.bias",
                          "vision_model.decoder.layers.0.self_attention.linear_qkv._extra_state empty", "vision_model.merger.linear_fc1.bias", "vision_model.merger.linear_fc1._extra_state empty",
                          "vision_model.pos_embed.weight", "visual.blocks.0.norm1.weight", "language_model.decoder.layers.0.mlp.linear_fc2.weight",
                          "language_model.decoder.layers.0.mlp.linear_fc2._extra_state empty", "language_model.output_layer._extra_state none"));
}

TEST(LegacyNames, SlotsAreToldByPlace) {
  EXPECT_EQ(LegacySlot("mp_rank_00/model_optim_rng.pt#model1/decoder.layers.0.mlp.linear_fc1.weight"), Slot::kParam);
  EXPECT_EQ(LegacySlot("mp_rank_00/model_optim_rng.pt#optimizer/fp32_from_fp16_params/0/1"), Slot::kMaster);
  EXPECT_EQ(LegacySlot("mp_rank_00/model_optim_rng.pt#optimizer/optimizer/state/3/exp_avg"), Slot::kAdamMu);
  EXPECT_EQ(LegacySlot("mp_rank_00_001/distrib_optim.pt#0/(torch.bfloat16, torch.float32)/exp_avg_sq"), Slot::kAdamNu);
  EXPECT_EQ(LegacySlot("mp_rank_00_001/distrib_optim.pt#0/(torch.bfloat16, torch.float32)/param"), Slot::kMaster);
  EXPECT_EQ(LegacySlot("optimizer.state.exp_avg.decoder.final_layernorm.weight"), std::nullopt);
}

}  // namespace
}  // namespace crossdock::dialects::mcore
