// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_optimizer.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kGroups = R"({"optimizer": {"param_groups": [{"wd_mult": 0.0, "step": 7}, {"wd_mult": 1.0, "step": 7}]}, "grad_scaler": {"scale": 2.0}})";
const char* const kMuon = R"({"optimizer": {"param_groups": [{"wd_mult": 1.0, "momentum": 0.9}, {"wd_mult": 1.0, "betas": [0.9, 0.95]}, {"wd_mult": 0.0, "betas": [0.9, 0.95]}]}})";

const std::vector<GroupedParameter> kParameters = {{"embedding.word_embeddings.weight", {8, 4}, false}, {"norm.weight", {4}, false},    {"proj.weight", {4, 4}, false},
                                                   {"proj.bias", {4}, false},                            {"expert.weight0", {8, 4}, true}, {"expert.weight1", {8, 4}, true}};

Result<Value> Plain(const char* common, bool experts) {
  Result<LegacyChain> chain = ChainOf(Json(common), experts);
  if (!chain) return chain.error();
  Result<std::vector<OptimizerPlace>> places = OptimizerPlaces(*chain, kParameters);
  if (!places) return places.error();
  std::vector<OptimizedParameter> made;
  for (const GroupedParameter& one : kParameters) {
    const auto named = [&](const char* what) { return Value(what + one.name); };
    const bool muon = chain->muon && IsOfMuon(one.name, one.shape);
    made.push_back({named("master "), muon ? Value() : named("mu "), muon ? Value() : named("nu "), muon ? named("momentum ") : Value()});
  }
  return MakePlainOptimizer(*chain, *places, made);
}

TEST(LegacyOptimizer, NumbersCountThroughTheGroupsTheDecayingOneFirst) {
  ASSERT_OK_AND_ASSIGN(const Value made, Plain(kGroups, false));
  EXPECT_EQ(ToJson(*made.Find("fp32_from_fp16_params"), 0),
            R"([["master embedding.word_embeddings.weight", "master proj.weight", "master expert.weight0", "master expert.weight1"], ["master norm.weight", "master proj.bias"]])");
  const Value& groups = *made.FindPath("optimizer.param_groups");
  EXPECT_EQ(ToJson(*groups.as_sequence()->at(0).Find("params"), 0), "[0, 1, 2, 3]");
  EXPECT_EQ(groups.as_sequence()->at(0).GetFloat("wd_mult"), 1.0);
  EXPECT_EQ(ToJson(*groups.as_sequence()->at(1).Find("params"), 0), "[4, 5]");
  const ValueDict& state = made.FindPath("optimizer.state")->as_dict()->items;
  ASSERT_EQ(state.size(), 6U);
  EXPECT_EQ(*state[4].first.as_int(), 4);
  EXPECT_EQ(state[4].second.GetString("exp_avg_sq"), "nu norm.weight");
  EXPECT_EQ(made.GetFloat("grad_scaler.scale"), 2.0);
}

/// Each optimizer of a chain counts from 0. Groups that the source lacks for experts are those of the rest.
TEST(LegacyOptimizer, AChainIsAListOfOptimizers) {
  ASSERT_OK_AND_ASSIGN(const Value adam, Plain(kGroups, true));
  ASSERT_EQ(adam.as_sequence()->size(), 2U);
  const Value& experts = adam.as_sequence()->at(1);
  EXPECT_EQ(ToJson(*experts.Find("fp32_from_fp16_params"), 0), R"([["master expert.weight0", "master expert.weight1"]])");
  EXPECT_EQ(experts.FindPath("optimizer.param_groups")->as_sequence()->at(0).GetBool("is_expert_parallel"), true);
  EXPECT_EQ(experts.GetFloat("grad_scaler.scale"), 2.0);
  ASSERT_OK_AND_ASSIGN(const Value muon, Plain(kMuon, true));
  std::vector<std::string> masters;
  for (const Value& one : *muon.as_sequence()) masters.push_back(ToJson(*one.Find("fp32_from_fp16_params"), 0));
  EXPECT_THAT(masters, ElementsAre(R"([["master proj.weight"]])", R"([["master expert.weight0", "master expert.weight1"]])",
                                   R"([["master embedding.word_embeddings.weight"], ["master norm.weight", "master proj.bias"]])"));
  EXPECT_EQ(ToJson(muon.as_sequence()->at(0).FindPath("optimizer.state")->as_dict()->items[0].second, 0), R"({"momentum_buffer": "momentum proj.weight"})");
}

TEST(LegacyOptimizer, ADistributedOneHasGroupsAlone) {
  ASSERT_OK_AND_ASSIGN(const LegacyChain chain, ChainOf(Json(kGroups), false));
  const Value made = MakeDistributedOptimizer(chain);
  EXPECT_EQ(made.FindPath("optimizer.state"), nullptr);
  EXPECT_EQ(made.FindPath("optimizer.param_groups")->as_sequence()->at(0).GetFloat("wd_mult"), 1.0);
}

TEST(LegacyOptimizer, OtherGroupsAreRefused) {
  const Value three = Json(R"({"optimizer": {"param_groups": [{"wd_mult": 1.0}, {"wd_mult": 1.0, "is_decoupled_lr": true}, {"wd_mult": 0.0}]}})");
  EXPECT_THAT(ChainOf(three, false), IsError(ErrorCode::kUnsupported, HasSubstr("2 with, 1 without")));
  EXPECT_THAT(ChainOf(Json("{}"), false), IsError(ErrorCode::kUnsupported, HasSubstr("0 with, 0 without")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
