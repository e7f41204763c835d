// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/dcp_keys.h"

#include <gmock/gmock.h>

namespace crossdock::dialects::hf {
namespace {

const NameIndex& Names() {
  static const NameIndex names({"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight"});
  return names;
}

TEST(DcpKeys, WrappersAreRemovedWhereverTheyStand) {
  EXPECT_EQ(WithoutWrappers("module._orig_mod.model.layers.0._checkpoint_wrapped_module.mlp.up_proj.weight"), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(WithoutWrappers("_fsdp_wrapped_module.a"), "a");
  EXPECT_EQ(WithoutWrappers("modules.a_module.b"), "modules.a_module.b");
}

TEST(DcpKeys, TheLongestEndingThatIsANameCounts) {
  const auto root = Names().Find("model.embed_tokens.weight", true);
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(root->prefix, "");
  const auto nested = Names().Find("app.model.model.embed_tokens.weight", true);
  ASSERT_TRUE(nested.has_value());
  EXPECT_EQ(nested->prefix, "app.model.");
  EXPECT_EQ(nested->hub, "model.embed_tokens.weight");
  EXPECT_FALSE(nested->shortened);
  EXPECT_FALSE(Names().Find("net.embed_tokens.weight", false).has_value());
  const auto base = Names().Find("net.embed_tokens.weight", true);
  ASSERT_TRUE(base.has_value());
  EXPECT_TRUE(base->shortened);
  EXPECT_EQ(base->prefix, "net.");
  EXPECT_FALSE(Names().Find("xlm_head.weight", true).has_value());
}

TEST(DcpKeys, StateIsToldByItsLastWord) {
  const auto mu = ParseStateKey("app.optim.state.module.lm_head.weight.exp_avg");
  ASSERT_TRUE(mu.has_value());
  EXPECT_EQ(mu->prefix, "app.optim.");
  EXPECT_EQ(mu->name, "lm_head.weight");
  EXPECT_EQ(mu->kind, StateKind::kMu);
  EXPECT_EQ(ParseStateKey("state.3.exp_avg_sq")->kind, StateKind::kNu);
  EXPECT_EQ(ParseStateKey("state.3.exp_avg_sq")->name, "3");
  EXPECT_EQ(ParseStateKey("optim.state.a.step")->kind, StateKind::kStep);
  EXPECT_FALSE(ParseStateKey("state_dict.model.a.exp_avg").has_value());
  EXPECT_EQ(ParseStateKey("optim.state.a.momentum_buffer")->kind, StateKind::kMomentum);
  EXPECT_FALSE(ParseStateKey("optim.state.step").has_value());
  EXPECT_TRUE(Names().IsStateOfParameter("optim.state.lm_head.weight.square_avg"));
  EXPECT_FALSE(Names().IsStateOfParameter("optim.state.other.square_avg"));
}

TEST(DcpKeys, GroupsAreNumbersOrNames) {
  EXPECT_EQ(ParseGroupKey("optim.param_groups.0.lr")->group, "0");
  EXPECT_EQ(ParseGroupKey("optim.param_groups.0.lr")->field, "lr");
  EXPECT_EQ(ParseGroupKey("param_groups.lm_head.weight.lr")->group, "lm_head.weight");
  EXPECT_FALSE(ParseGroupKey("optim.param_groups").has_value());
  EXPECT_FALSE(ParseGroupKey("optim.param_groups.lr").has_value());
}

}  // namespace
}  // namespace crossdock::dialects::hf
