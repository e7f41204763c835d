// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/optimizer_levels.h"

#include "result_matchers.h"
#include "tunix_samples.h"

namespace crossdock::dialects::tunix {
namespace {

using maxtext::OptimizerKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The levels of an item, whose tree they point into.
struct Found {
  LeafNode tree;
  OptimizerLevels levels;
};
std::unique_ptr<Found> Find(const std::string& lines) {
  const Catalog step = Step(lines);
  auto out = std::make_unique<Found>();
  out->tree = *LeavesOf(step, "optimizer_state");
  out->levels = FindOptimizerLevels(out->tree, step);
  return out;
}

TEST(TunixOptimizerLevels, PlainAdamwStandsAsItIs) {
  const auto found = Find(Adam(kOptState + "0.", "") + kOptState + "2.count.value = 5\n");
  EXPECT_EQ(found->levels.kind, OptimizerKind::kAdamW);
  EXPECT_THAT(found->levels.shells, IsEmpty());
  EXPECT_EQ(found->levels.adam, "0");
  EXPECT_EQ(found->levels.schedule, "2");
}

TEST(TunixOptimizerLevels, AChainGoesWhereOneMemberAloneCarriesState) {
  EXPECT_THAT(Find(Adam(kOptState + "1.0.", ""))->levels.shells, ElementsAre("1"));
  EXPECT_THAT(Find(Adam(kOptState + "1.0.0.", "") + kOptState + "1.0.2.count.value = 5\n")->levels.shells, ElementsAre("1", "0"));
  EXPECT_THAT(Find(Adam(kOptState + "0.0.", ""))->levels.shells, ElementsAre("0")) << "a chain without clipping";
  const auto none = Find(Adam(kOptState + "1.0.", "") + kOptState + "0.x.value None\n");
  EXPECT_THAT(none->levels.shells, ElementsAre("1")) << "placeholders are no state";
}

TEST(TunixOptimizerLevels, TwoMembersWithStateAreToldByWhatTheyAre) {
  const auto flat = Find(Adam(kOptState + "1.", "") + kOptState + "3.count.value = 5\n");
  EXPECT_THAT(flat->levels.shells, IsEmpty());
  EXPECT_EQ(flat->levels.adam, "1");
  EXPECT_EQ(flat->levels.schedule, "3");
  const auto nested = Find(Adam(kOptState + "0.0.", "") + kOptState + "1.count.value = 5\n");
  EXPECT_EQ(nested->levels.adam, "0.0");
  EXPECT_EQ(nested->levels.schedule, "1");
}

TEST(TunixOptimizerLevels, NumbersOfAnotherMemberAreDroppedAndItsShellsToo) {
  // zero_nans keeps a flag for each parameter.
  const auto found = Find(Lines({kOptState + "1.0.found_nan.decoder.scale.value = 0"}) + Adam(kOptState + "1.1.0.0.", "") + kOptState + "1.1.0.2.count.value = 5\n");
  EXPECT_EQ(found->levels.adam, "1.0.0");
  EXPECT_EQ(found->levels.schedule, "1.0.2");
  EXPECT_THAT(found->levels.shells, ElementsAre("1"));
  ASSERT_EQ(found->levels.dropped.size(), 1U);
  EXPECT_EQ(found->levels.refusal, "");
  const auto wrapped = Find(kOptState + "0.found_nan.decoder.scale.value = 0\n" + Adam(kOptState + "1.inner_state.0.", "") + kOptState + "1.count.value = 3\n" + kOptState + "1.hyperparams.learning_rate.value = 0.5\n");
  EXPECT_EQ(wrapped->levels.adam, "1.inner_state.0");
  EXPECT_EQ(wrapped->levels.shell_count, "opt_state.1.count");
}

TEST(TunixOptimizerLevels, TheShellIsToldByItsFields) {
  const auto found = Find(Injected({"learning_rate", "weight_decay"}) + Adam(kOptState + "inner_state.1.0.", "base."));
  EXPECT_EQ(found->levels.kind, OptimizerKind::kAdamW);
  EXPECT_THAT(found->levels.shells, ElementsAre("inner_state", "1"));
  EXPECT_EQ(found->levels.shell_count, "opt_state.count");
  std::vector<std::string> dropped;
  for (const auto& [name, leaf] : found->levels.dropped) dropped.push_back(name);
  EXPECT_THAT(dropped, ElementsAre("opt_state.count", "opt_state.hyperparams.learning_rate", "opt_state.hyperparams.weight_decay", "opt_state.hyperparams_states.learning_rate.count"));
  EXPECT_EQ(found->levels.refusal, "");
  // A model may have a module called inner_state: below mu nobody looks for shells.
  const auto model = Find(Adam(kOptState + "0.", "inner_state."));
  EXPECT_THAT(model->levels.shells, IsEmpty());
}

TEST(TunixOptimizerLevels, GatheredGradientsAreNoMoments) {
  const auto found = Find(Lines({kOptState + "mini_step.value = 0", kOptState + "gradient_step.value = 4", kOptState + "acc_grads.base." + kKernel + ".value"}) +
                          Adam(kOptState + "inner_opt_state.0.", "base."));
  EXPECT_THAT(found->levels.shells, ElementsAre("inner_opt_state"));
  ASSERT_EQ(found->levels.accumulated.size(), 1U);
  EXPECT_EQ(found->levels.accumulated[0].first, "opt_state.acc_grads");
  EXPECT_EQ(found->levels.refusal, "");
}

TEST(TunixOptimizerLevels, AdamPaxBehindAClipIsNoChain) {
  EXPECT_EQ(Find(Adam(kOptState, ""))->levels.kind, OptimizerKind::kAdamPax);
  const auto clipped = Find(Adam(kOptState + "1.", ""));
  EXPECT_EQ(clipped->levels.kind, OptimizerKind::kAdamPax);
  EXPECT_THAT(clipped->levels.shells, ElementsAre("1"));
  const auto adamw = Find(Adam(kOptState + "0.", ""));
  EXPECT_EQ(adamw->levels.kind, OptimizerKind::kAdamW) << "the other members have no state where the rate is a number";
}

TEST(TunixOptimizerLevels, StateThatHasNoOtherPlaceIsRefusedByName) {
  EXPECT_THAT(Find(kOptState + "0.trace." + kKernel + ".value\n")->levels.refusal, HasSubstr("opt_state.0.trace"));
  EXPECT_THAT(Find(Lines({kOptState + "0.count.value = 1", kOptState + "0.mu." + kKernel + ".value"}))->levels.refusal, HasSubstr("opt_state.0.mu"));
  EXPECT_THAT(Find(Adam(kOptState + "0.", "") + Adam(kOptState + "1.", ""))->levels.refusal, HasSubstr("two optimizers"));
  EXPECT_THAT(Find(Adam(kOptState + "inner_states.x.inner_state.0.", ""))->levels.refusal, HasSubstr("called x"));
  EXPECT_EQ(Find(kStep)->levels.kind, OptimizerKind::kNone);
}

TEST(TunixOptimizerLevels, MuonsPartitionEndsTheLevels) {
  const auto found = Find(Lines({kOptState + "1.inner_states.muon.inner_state.0.mu." + kKernel + ".value"}) + Adam(kOptState + "1.inner_states.adam.inner_state.0.", ""));
  EXPECT_EQ(found->levels.kind, OptimizerKind::kMuon);
  EXPECT_THAT(found->levels.shells, ElementsAre("1"));
}

}  // namespace
}  // namespace crossdock::dialects::tunix
