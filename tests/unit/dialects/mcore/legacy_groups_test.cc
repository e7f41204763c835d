// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_groups.h"

#include "mcore_samples.h"

namespace crossdock::dialects::mcore {
namespace {

const GroupedParameter kMatrix{"decoder.layers.0.mlp.linear_fc2.weight", {4, 8}, false};
const GroupedParameter kEmbedding{"embedding.word_embeddings.weight", {8, 4}, false};
const GroupedParameter kNorm{"decoder.final_layernorm.weight", {4}, false};
const GroupedParameter kExpert{"decoder.layers.0.mlp.experts.linear_fc1.weight3", {8, 4}, true};
const GroupedParameter kCorrection{"decoder.layers.0.mlp.router.expert_bias", {6}, false};

TEST(LegacyGroups, DivideByDecayExpertsAndMuon) {
  const Value muon = Json(R"({"wd_mult": 1.0, "momentum": 0.9})");
  const Value of_experts = Json(R"({"wd_mult": 1.0, "momentum": 0.9, "is_expert_parallel": true})");
  const Value decaying = Json(R"({"wd_mult": 1.0, "betas": [0.9, 0.95]})");
  const Value plain = Json(R"({"weight_decay": 0.0, "betas": [0.9, 0.95]})");
  const GroupRules all(std::vector<const Value*>{&muon, &of_experts, &decaying, &plain});
  for (const auto& [parameter, holder] : {std::pair{&kMatrix, &muon}, {&kEmbedding, &decaying}, {&kNorm, &plain}, {&kExpert, &of_experts}}) {
    for (const Value* group : {&muon, &of_experts, &decaying, &plain}) EXPECT_EQ(all.Holds(*group, *parameter), group == holder) << parameter->name;
  }
  const GroupRules adam(std::vector<const Value*>{&decaying, &plain});   // one expert rank: experts are as any other
  EXPECT_TRUE(adam.Holds(decaying, kExpert));
  EXPECT_TRUE(adam.Holds(decaying, kMatrix));
  EXPECT_FALSE(adam.Holds(plain, kCorrection)) << "a buffer is nobody's";
  EXPECT_FALSE(adam.Holds(Json("{}"), kNorm));
}

/// What has a bucket of its own in a run of several stages: megatron-core's `shared_embedding`.
TEST(LegacyGroups, TheSharedEmbedding) {
  EXPECT_FALSE(IsSharedEmbedding("embedding.word_embeddings.weight", false, false, true));
  EXPECT_TRUE(IsSharedEmbedding("embedding.word_embeddings.weight", true, false, true));
  EXPECT_TRUE(IsSharedEmbedding("embedding.word_embeddings.weight", false, true, true));
  EXPECT_TRUE(IsSharedEmbedding("output_layer.weight", true, false, false));
  EXPECT_FALSE(IsSharedEmbedding("output_layer.weight", true, true, true));
  EXPECT_FALSE(IsSharedEmbedding("output_layer.weight", false, true, true));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
