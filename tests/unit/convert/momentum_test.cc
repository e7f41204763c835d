// SPDX-License-Identifier: Apache-2.0
#include "convert/momentum.h"

#include <cmath>
#include <cstring>

#include "convert/demo_model.h"
#include "convert/target.h"
#include "result_matchers.h"
#include "verify/verify.h"

namespace crossdock::convert {
namespace {

using formats::Kind;
using ::testing::Contains;
using ::testing::HasSubstr;

/// The demo model with Muon for one matrix.
DemoModel MakeMuonModel() {
  auto model = MakeDemoModel();
  EXPECT_THAT(model, IsOk());
  auto& tensors = model->source.hub.tensors;
  std::erase_if(tensors, [](const auto& t) { return t.name == "model.layers.0.mlp.up_proj.weight" && t.slot == Slot::kAdamNu; });
  for (auto& t : tensors) {
    if (t.name == "model.layers.0.mlp.up_proj.weight" && t.slot == Slot::kAdamMu) t.slot = Slot::kMuonMu;
  }
  model->source.hub.optimizer = "muon";
  return *std::move(model);
}

const dialects::HubTensor& MomentumOf(const DemoModel& model) {
  for (const auto& t : model.source.hub.tensors) {
    if (t.slot == Slot::kMuonMu) return t;
  }
  std::abort();
}

std::vector<float> Values(const DemoModel& model) {
  const dialects::HubTensor& t = MomentumOf(model);
  const verify::Side side{model.source.storage, model.source.reader.get(), &model.source.hub, "demo"};
  const auto bytes = verify::EvaluateBox(side, t, Box::Whole(t.shape));
  EXPECT_THAT(bytes, IsOk());
  std::vector<float> out(bytes->size() / 4);
  std::memcpy(out.data(), bytes->data(), bytes->size());
  return out;
}

ConvertOptions Saying(std::string convention, std::string beta = "", std::string consumer = "") {
  ConvertOptions options;
  options.muon_momentum = std::move(convention);
  options.consumer = std::move(consumer);
  if (!beta.empty()) options.set_args = {{"muon_momentum", std::move(beta)}};
  return options;
}

TEST(Momentum, KnowsWhatTargetsKeep) {
  EXPECT_EQ(MomentumOfTarget(Kind::kMegatron, ""), "ema");
  EXPECT_EQ(MomentumOfTarget(Kind::kMegatronLegacy, "megatron-lm@0.19"), "ema");
  EXPECT_EQ(MomentumOfTarget(Kind::kMaxText, ""), "ema");
  EXPECT_EQ(MomentumOfTarget(Kind::kMaxText, "maxtext@0.2.4"), "ema");
  EXPECT_EQ(MomentumOfTarget(Kind::kMaxText, "maxtext-linen"), "");
  EXPECT_EQ(MomentumOfTarget(Kind::kFullState, "ling3"), "");
}

TEST(Momentum, ASumBecomesAnAverage) {
  DemoModel model = MakeMuonModel();
  const std::vector<float> before = Values(model);
  ASSERT_THAT(SettleMomentum(Kind::kMegatron, Saying("sum", "0.95"), &model.source), IsOk());
  const std::vector<float> after = Values(model);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], static_cast<float>(static_cast<double>(before[i]) * (1.0 - 0.95))) << i;
  ASSERT_TRUE(model.source.momentum.has_value());
  EXPECT_FALSE(model.source.momentum->exact);
  EXPECT_EQ(model.source.momentum->scaled, 1);
  EXPECT_TRUE(model.source.momentum->said_of_source);
  EXPECT_EQ(model.source.hub.muon_momentum, "ema");
  EXPECT_THAT(model.source.hub.notices, Contains(HasSubstr("from a plain sum to an exponential average: 1 tensors times 0.05")));
  EXPECT_EQ(MomentumJson(*model.source.momentum).GetString("stated_of"), "source");
}

TEST(Momentum, PowersOfTwoAreExactThereAndBack) {
  DemoModel model = MakeMuonModel();
  const std::vector<float> before = Values(model);
  model.source.hub.muon_momentum = "ema";
  model.source.hub.muon_beta = 0.75;
  ASSERT_THAT(SettleMomentum(Kind::kMaxText, Saying("sum", "", "maxtext-linen"), &model.source), IsOk());
  EXPECT_TRUE(model.source.momentum->exact);
  EXPECT_EQ(model.source.momentum->factor, 4.0);
  EXPECT_TRUE(model.source.momentum->said_of_target);
  const std::vector<float> sums = Values(model);
  for (std::size_t i = 0; i < before.size(); ++i) ASSERT_EQ(sums[i], before[i] * 4);
  EXPECT_EQ(model.source.hub.muon_momentum, "sum");
  ASSERT_THAT(SettleMomentum(Kind::kMegatron, {}, &model.source), IsOk());  // recorded: nobody says anything
  EXPECT_EQ(Values(model), before);
}

TEST(Momentum, WhatIsNotSaidIsCarriedAndTold) {
  DemoModel model = MakeMuonModel();
  const expr::Expr before = MomentumOf(model).expr;
  ASSERT_THAT(SettleMomentum(Kind::kMegatron, {}, &model.source), IsOk());
  EXPECT_EQ(MomentumOf(model).expr, before);
  EXPECT_EQ(model.source.hub.muon_momentum, "");
  EXPECT_THAT(model.source.hub.notices, Contains(HasSubstr("carried as it is: nothing says whether the source keeps an exponential average or a plain sum")));
  EXPECT_TRUE(MomentumJson(*model.source.momentum).Find("source")->is_null());
}

TEST(Momentum, SaidOfASourceWhoseTargetKeepsAnything) {
  DemoModel model = MakeMuonModel();
  const expr::Expr before = MomentumOf(model).expr;
  ASSERT_THAT(SettleMomentum(Kind::kFullState, Saying("sum"), &model.source), IsOk());
  EXPECT_EQ(MomentumOf(model).expr, before);
  EXPECT_EQ(model.source.hub.muon_momentum, "sum");  // written into the metadata
}

TEST(Momentum, RefusesWhatContradictsOrLacks) {
  DemoModel model = MakeMuonModel();
  EXPECT_THAT(SettleMomentum(Kind::kMegatron, Saying("sum"), &model.source), IsError(ErrorCode::kIncomplete, HasSubstr("--set muon_momentum=0.95")));
  EXPECT_THAT(SettleMomentum(Kind::kMegatron, Saying("sum", "1.5"), &model.source), IsError(ErrorCode::kUsage, HasSubstr("a number from 0 to below 1")));
  EXPECT_THAT(SettleMomentum(Kind::kFullState, Saying("", "0.9"), &model.source), IsError(ErrorCode::kUsage, HasSubstr("unless the momentum is converted")));
  model.source.hub.muon_momentum = "ema";
  EXPECT_THAT(SettleMomentum(Kind::kMegatron, Saying("sum"), &model.source), IsError(ErrorCode::kUsage, HasSubstr("both sides are known")));
  EXPECT_THAT(SettleMomentum(Kind::kMegatron, Saying("ema"), &model.source), IsOk());
  EXPECT_THAT(SettleMomentum(Kind::kHf, Saying("ema"), &model.source), IsError(ErrorCode::kUsage, HasSubstr("no momentum of Muon is carried")));
  ASSERT_OK_AND_ASSIGN(DemoModel adam, MakeDemoModel());
  EXPECT_THAT(SettleMomentum(Kind::kMegatron, Saying("ema"), &adam.source), IsError(ErrorCode::kUsage, HasSubstr("means nothing here")));
  EXPECT_THAT(SettleMomentum(Kind::kMegatron, {}, &adam.source), IsOk());
  EXPECT_FALSE(adam.source.momentum.has_value());
}

}  // namespace
}  // namespace crossdock::convert
