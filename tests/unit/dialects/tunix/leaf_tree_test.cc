// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/leaf_tree.h"

#include "result_matchers.h"
#include "tunix_samples.h"

namespace crossdock::dialects::tunix {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> NamesOf(const LeafNode& tree) {
  std::vector<std::string> out;
  VisitLeaves(tree, "", [&](const std::string& name, const LeafNode&) { out.push_back(name); });
  return out;
}

TEST(TunixLeafTree, TakesTheBoxOffAndLeavesModulesOfThatName) {
  const Catalog step = Step("model_params.decoder.value.kernel.value\nmodel_params.decoder.gate.value.value\nmodel_params.decoder.bare.scale\noptimizer_state.step.value = 3\n");
  ASSERT_OK_AND_ASSIGN(const LeafNode params, LeavesOf(step, "model_params"));
  EXPECT_THAT(NamesOf(params), ElementsAre("decoder.bare.scale", "decoder.gate.value", "decoder.value.kernel"));
  EXPECT_TRUE(params.Find("decoder")->Find("value")->Find("kernel")->boxed);
  EXPECT_FALSE(params.Find("decoder")->Find("bare")->Find("scale")->boxed);
  ASSERT_OK_AND_ASSIGN(const LeafNode state, LeavesOf(step, "optimizer_state"));
  EXPECT_THAT(NamesOf(state), ElementsAre("step"));
}

TEST(TunixLeafTree, ABoxBesideSomethingElseIsNone) {
  ASSERT_OK_AND_ASSIGN(const LeafNode params, LeavesOf(Step("model_params.a.value\nmodel_params.a.other\n"), "model_params"));
  EXPECT_THAT(NamesOf(params), ElementsAre("a.other", "a.value"));
}

TEST(TunixLeafTree, RefusesQuantizedParametersByName) {
  const Catalog step = Step("model_params.decoder.wi_0.kernel.value.qvalue\nmodel_params.decoder.wi_0.kernel.value.scale\n");
  EXPECT_THAT(LeavesOf(step, "model_params"), IsError(ErrorCode::kUnsupported, HasSubstr("model_params.decoder.wi_0.kernel.value")));
}

TEST(TunixLeafTree, PlaceholdersHoldNoArrays) {
  ASSERT_OK_AND_ASSIGN(const LeafNode params, LeavesOf(Step("model_params.a.b.value None\nmodel_params.c.value\n"), "model_params"));
  EXPECT_FALSE(params.Find("a")->HoldsArrays());
  EXPECT_EQ(params.Find("a")->Find("b")->type, "None");
  EXPECT_TRUE(params.Find("c")->HoldsArrays());
}

}  // namespace
}  // namespace crossdock::dialects::tunix
