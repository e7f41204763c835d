// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/config_kinds.h"

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

family::Model Kinds(std::vector<bool> moe) {
  family::Model model;
  model.letters["layers"] = static_cast<std::int64_t>(moe.size());
  model.kinds["moe"] = std::move(moe);
  return model;
}

TEST(PatchKinds, LeavesAConfigurationThatSaysSoAlone) {
  Value config = Json(R"({"first_k_dense_replace": 1, "moe_layer_freq": 1})");
  const Value before = config;
  ASSERT_THAT(PatchKinds(Family("deepseek_v3"), Kinds({false, true, true}), &config), IsOk());
  EXPECT_TRUE(config.Equals(before));
}

TEST(PatchKinds, SaysDenseLayersInTheFamilysOwnFields) {
  Value config = Json(R"({"first_k_dense_replace": 0})");
  ASSERT_THAT(PatchKinds(Family("deepseek_v3"), Kinds({false, false, true}), &config), IsOk());
  EXPECT_EQ(config.GetInt("first_k_dense_replace"), 2);
  Value qwen = Value::MakeDict();
  ASSERT_THAT(PatchKinds(Family("qwen3_moe"), Kinds({true, false, true, false}), &qwen), IsOk());
  EXPECT_EQ(ToJson(*qwen.Find("mlp_only_layers"), 0), "[1, 3]");
  EXPECT_EQ(qwen.GetInt("decoder_sparse_step"), 1);
}

TEST(PatchKinds, NamesLayersWithExpertsWhereTheFamilyListsThose) {
  Value llama = Json(R"({"interleave_moe_layer_step": 1})");
  ASSERT_THAT(PatchKinds(Family("llama4"), Kinds({false, true, true}), &llama), IsOk());
  EXPECT_EQ(ToJson(*llama.Find("moe_layers"), 0), "[1, 2]");
}

TEST(PatchKinds, RefusesLayersThatNoFieldNames) {
  Value config = Value::MakeDict();
  EXPECT_THAT(PatchKinds(Family("deepseek_v3"), Kinds({true, false, true}), &config), IsError(ErrorCode::kUnsupported, ::testing::HasSubstr("which layers have experts")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
