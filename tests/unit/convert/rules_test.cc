// SPDX-License-Identifier: Apache-2.0
#include "convert/rules.h"

#include "convert/demo_model.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::ElementsAre;

TEST(Rules, TakeOffTheSlot) {
  EXPECT_EQ(WithoutSlot("param/model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(WithoutSlot("optim/adam_mu/model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(WithoutSlot("optimizer.state.exp_avg_sq.decoder.final_layernorm.weight"), "decoder.final_layernorm.weight");
  EXPECT_EQ(WithoutSlot("optimizer.state.param.output_layer.weight"), "output_layer.weight");
  EXPECT_EQ(WithoutSlot("output_layer.weight"), "output_layer.weight");
}

TEST(Rules, FoldNumbersIntoRanges) {
  EXPECT_THAT(FoldNames({"a.0.w", "a.1.w", "a.2.w", "a.10.w", "b", "a.0.v"}), ElementsAre("a.{0..2,10}.w", "b", "a.0.v"));
  EXPECT_THAT(FoldNames({}), ElementsAre());
  EXPECT_THAT(FoldNames({"a.99999999999999999999.w"}), ElementsAre("a.99999999999999999999.w"));  // no number of ours
}

TEST(Rules, NameTheirFileLineAndAxes) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  const RuleBook book = RuleBook::Make(model.source.hub, formats::Kind::kMegatron);
  const RuleOf* fc1 = book.Find("optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight");
  ASSERT_NE(fc1, nullptr);
  EXPECT_THAT(fc1->axes, ElementsAre("layer", "out", "in"));
  EXPECT_TRUE(fc1->rule.starts_with("dense.toml:")) << fc1->rule;
  EXPECT_EQ(fc1->hub.size(), 8U);  // gate and up of four layers
  const RuleOf* norm = book.Find("decoder.layers.2.self_attention.q_layernorm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_THAT(norm->hub, ElementsAre("model.layers.2.self_attn.q_norm.weight"));
  EXPECT_TRUE(norm->rule.starts_with("qwen3.toml:")) << norm->rule;
  EXPECT_EQ(book.Find("decoder.layers.mlp.router.weight"), nullptr);
}

}  // namespace
}  // namespace crossdock::convert
