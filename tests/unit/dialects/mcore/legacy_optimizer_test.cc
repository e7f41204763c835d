// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_optimizer.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

const char* const kGroups = R"({"optimizer": {"param_groups": [{"wd_mult": 0.0, "step": 7}, {"wd_mult": 1.0, "step": 7}]}, "grad_scaler": {"scale": 2.0}})";

TEST(LegacyOptimizer, NumbersCountThroughTheGroupsTheDecayingOneFirst) {
  std::vector<OptimizedParameter> parameters;
  for (const auto& [name, shape] : {std::pair<const char*, Shape>{"norm.weight", {4}}, {"proj.weight", {4, 4}}, {"proj.bias", {4}}, {"fc.weight", {8, 4}}}) {
    parameters.push_back({name, shape, Value(std::string("master ") + name), Value(std::string("mu ") + name), Value(std::string("nu ") + name)});
  }
  ASSERT_OK_AND_ASSIGN(const Value made, MakePlainOptimizer(Json(kGroups), parameters));
  EXPECT_EQ(ToJson(*made.Find("fp32_from_fp16_params"), 0), R"([["master proj.weight", "master fc.weight"], ["master norm.weight", "master proj.bias"]])");
  const Value& groups = *made.FindPath("optimizer.param_groups");
  EXPECT_EQ(ToJson(*groups.as_sequence()->at(0).Find("params"), 0), "[0, 1]");
  EXPECT_EQ(groups.as_sequence()->at(0).GetFloat("wd_mult"), 1.0);
  EXPECT_EQ(ToJson(*groups.as_sequence()->at(1).Find("params"), 0), "[2, 3]");
  const ValueDict& state = made.FindPath("optimizer.state")->as_dict()->items;
  ASSERT_EQ(state.size(), 4U);
  EXPECT_EQ(*state[2].first.as_int(), 2);
  EXPECT_EQ(state[2].second.GetString("exp_avg_sq"), "nu norm.weight");
  EXPECT_EQ(made.GetFloat("grad_scaler.scale"), 2.0);
}

TEST(LegacyOptimizer, ADistributedOneHasGroupsAlone) {
  ASSERT_OK_AND_ASSIGN(const Value made, MakeDistributedOptimizer(Json(kGroups)));
  EXPECT_EQ(made.FindPath("optimizer.state"), nullptr);
  EXPECT_EQ(made.FindPath("optimizer.param_groups")->as_sequence()->at(0).GetFloat("wd_mult"), 1.0);
}

TEST(LegacyOptimizer, OtherGroupsAreRefused) {
  const Value three = Json(R"({"optimizer": {"param_groups": [{"wd_mult": 1.0}, {"wd_mult": 1.0, "is_decoupled_lr": true}, {"wd_mult": 0.0}]}})");
  EXPECT_THAT(MakePlainOptimizer(three, {}), IsError(ErrorCode::kUnsupported, HasSubstr("2 with, 1 without")));
  EXPECT_THAT(MakeDistributedOptimizer(Json("{}")), IsError(ErrorCode::kUnsupported, HasSubstr("0 with, 0 without")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
