// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/dcp_settings.h"

#include "dcp_model.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const NameIndex& KnownNames() {
  static const NameIndex names({"model.a", "model.b"});
  return names;
}
const ParamsWithState kParams = {{"model.a", "model.b"}, {}};

std::vector<std::string> Members(const Value& group) {
  std::vector<std::string> out;
  for (const Value& name : *group.Find("params")->as_sequence()) out.push_back(*name.as_string());
  return out;
}

HubState WithGroups(ValueList groups, const char* words) {
  HubState hub;
  hub.extras.Set("param_groups", Value::MakeList(std::move(groups)));
  hub.extras_words = words;
  return hub;
}
Value Group(std::vector<std::string> params, double decay) {
  Value out = Value::MakeDict({{Value("lr"), Value(0.5)}, {Value("weight_decay"), Value(decay)}, {Value("eps"), Value(1e-6)},
                               {Value("betas"), Value::MakeList({Value(0.8), Value(0.95)})}});
  ValueList names(params.begin(), params.end());
  if (!names.empty()) out.Set("params", Value::MakeList(std::move(names)));
  return out;
}

TEST(DcpSettings, FlattenedGroupsAreJoinedByTheirSettings) {
  Catalog source;
  source.objects["items"] = Value::MakeDict({{Value("optim.param_groups.model.a.lr"), Value(0.5)}, {Value("optim.param_groups.model.b.lr"), Value(0.5)}});
  ValueList groups = ReadParamGroups(source, KnownNames());
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_THAT(Members(groups[0]), ElementsAre("model.a", "model.b"));
  source.objects["items"].Set("optim.param_groups.model.b.lr", Value(0.25));
  EXPECT_EQ(ReadParamGroups(source, KnownNames()).size(), 2U);
}

TEST(DcpSettings, TorchGroupsAreKeptAndCompleted) {
  const HubState hub = WithGroups({Group({"model.a"}, 0.1), Group({"model.b", "lm_head.weight"}, 0.0)}, "torch");
  ASSERT_OK_AND_ASSIGN(const ParamGroupsToWrite made, MakeParamGroups(hub, {}, kParams));
  ASSERT_EQ(made.groups.size(), 2U);
  EXPECT_THAT(Members(made.groups[1]), ElementsAre("model.b"));
  EXPECT_EQ(made.groups[1].GetFloat("weight_decay"), 0.0);
  EXPECT_TRUE(made.groups[0].Find("betas")->is_tuple());
  for (const char* field : {"amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}) {
    EXPECT_NE(made.groups[0].Find(field), nullptr) << field;
  }
}

TEST(DcpSettings, GroupsWithoutNamesBecomeOne) {
  const HubState hub = WithGroups({Group({}, 0.0), Group({}, 0.1)}, "mcore");
  ASSERT_OK_AND_ASSIGN(const ParamGroupsToWrite made, MakeParamGroups(hub, {}, kParams));
  ASSERT_EQ(made.groups.size(), 1U);
  EXPECT_THAT(Members(made.groups[0]), ElementsAre("model.a", "model.b"));
  EXPECT_EQ(made.groups[0].GetFloat("weight_decay"), 0.1);
  EXPECT_THAT(made.notices, Contains(HasSubstr("2 parameter groups")));
}

TEST(DcpSettings, WhatNobodySaysIsAskedFor) {
  EXPECT_THAT(MakeParamGroups(HubState(), {}, kParams), IsError(ErrorCode::kUsage, AllOf(HasSubstr("--set lr=VALUE"), HasSubstr("--set weight_decay=VALUE"))));
  TargetOptions options;
  options.set_args = {{"lr", "0.5"}, {"weight_decay", "0.25"}, {"adam_beta1", "0.7"}};
  ASSERT_OK_AND_ASSIGN(const ParamGroupsToWrite made, MakeParamGroups(HubState(), options, kParams));
  EXPECT_EQ(made.groups[0].GetFloat("lr"), 0.5);
  EXPECT_TRUE(made.groups[0].Find("betas")->Equals(Value::MakeTuple({Value(0.7), Value(0.999)})));
  EXPECT_THAT(made.notices, Contains(HasSubstr("adam_eps")));
  options.set_args["lr"] = "fast";
  EXPECT_THAT(MakeParamGroups(HubState(), options, kParams), IsError(ErrorCode::kUsage, HasSubstr("fast")));
  options.set_args = {{"seq_length", "4"}};
  EXPECT_THAT(MakeParamGroups(HubState(), options, kParams), IsError(ErrorCode::kUsage, HasSubstr("seq_length")));
}

/// The fields of a group of torch.optim.Muon, and the order of `get_state_dict(model, (muon, adamw))`.
TEST(DcpSettings, MuonHasAGroupOfItsOwnBeforeAdams) {
  Value muon = Value::MakeDict({{Value("lr"), Value(0.02)}, {Value("weight_decay"), Value(0.3)}, {Value("momentum"), Value(0.9)}});
  HubState hub = WithGroups({std::move(muon), Group({}, 0.1)}, "mcore");
  hub.extras.Set("args", Value::MakeDict({{Value("muon_nesterov"), Value(false)}, {Value("muon_num_ns_steps"), Value(6)}}));
  ASSERT_OK_AND_ASSIGN(const ParamGroupsToWrite made, MakeParamGroups(hub, {}, {{"model.a"}, {"model.b"}}));
  ASSERT_EQ(made.groups.size(), 2U);
  EXPECT_THAT(Members(made.groups[0]), ElementsAre("model.b"));
  for (const auto& [field, value] : {std::pair{"lr", 0.02}, {"weight_decay", 0.3}, {"momentum", 0.9}, {"eps", 1e-7}, {"ns_steps", 6.0}}) EXPECT_EQ(made.groups[0].GetFloat(field), value) << field;
  EXPECT_EQ(made.groups[0].GetBool("nesterov"), false);
  EXPECT_NE(made.groups[0].Find("ns_coefficients"), nullptr);
  EXPECT_NE(made.groups[0].Find("adjust_lr_fn"), nullptr);
  EXPECT_EQ(made.groups[0].Find("betas"), nullptr);
  EXPECT_EQ(made.groups[1].GetFloat("lr"), 0.5);
  EXPECT_EQ(made.groups[1].GetFloat("weight_decay"), 0.1);
  TargetOptions options;
  options.set_args = {{"lr", "0.5"}, {"weight_decay", "0.25"}};
  EXPECT_THAT(MakeParamGroups(HubState(), options, {{"model.a"}, {"model.b"}}), IsError(ErrorCode::kUsage, HasSubstr("--set muon_momentum=VALUE")));
  options.set_args["muon_momentum"] = "0.8";
  ASSERT_OK_AND_ASSIGN(const ParamGroupsToWrite said, MakeParamGroups(HubState(), options, {{"model.a"}, {"model.b"}}));
  EXPECT_EQ(said.groups[0].GetFloat("momentum"), 0.8);
  EXPECT_THAT(MakeParamGroups(HubState(), options, kParams), IsError(ErrorCode::kUsage, HasSubstr("no state of Muon")));
}

TEST(DcpSettings, OldTorchKeepsStepsAsPlainNumbers) {
  Catalog source;
  source.objects["items"] = Value::MakeDict({{Value("optim.state.model.a.step"), Value(9)}});
  ASSERT_OK_AND_ASSIGN(const auto step, ReadAdamStep(source));
  EXPECT_EQ(step, 9);
}

}  // namespace
}  // namespace crossdock::dialects::hf
