// SPDX-License-Identifier: Apache-2.0
#include "convert/live_names.h"

#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::HasSubstr;

TEST(LiveNames, AreThoseOfTheModules) {
  const std::string file = "mp_rank_00_001/model_optim_rng.pt#";
  EXPECT_EQ(LiveName(file + "model/decoder.layers.0.mlp.linear_fc1.weight"), "decoder.layers.0.mlp.linear_fc1.weight");
  EXPECT_EQ(LiveName(file + "model12/embedding.word_embeddings.weight"), "model12.embedding.word_embeddings.weight");
  for (const char* other : {"optimizer/optimizer/state/12/exp_avg", "modelling/x", "model", "0/(torch.bfloat16, torch.float32)/param"}) {
    EXPECT_EQ(LiveName(file + other), std::nullopt) << other;
  }
  EXPECT_EQ(LiveName("decoder.final_layernorm.weight"), std::nullopt);
}

TEST(LiveNames, OfTheOptimizerSayParameterAndPart) {
  ASSERT_OK_AND_ASSIGN(const StateName whole, ParseStateName("optimizer.exp_avg_sq.model1.decoder.layers.0.mlp.linear_fc1.weight"));
  EXPECT_EQ(whole.state, "exp_avg_sq");
  EXPECT_EQ(whole.parameter, "model1.decoder.layers.0.mlp.linear_fc1.weight");
  EXPECT_FALSE(whole.range);
  ASSERT_OK_AND_ASSIGN(const StateName part, ParseStateName("optimizer.param.x.weight3[16:48]"));
  EXPECT_EQ(part.state, "param");
  EXPECT_EQ(part.parameter, "x.weight3");
  EXPECT_EQ(part.range, std::pair(std::int64_t{16}, std::int64_t{48}));
  for (const char* wrong : {"optimizer.", "optimizer.exp_avg", "optimizer.exp_avg.", "optimizer.momentum_buffer.x", "x.weight", "optimizer.param.x[4:4]", "optimizer.param.x[4:]",
                            "optimizer.param.x[-1:4]", "optimizer.param.x4:8]", "optimizer.param.[0:4]"}) {
    EXPECT_THAT(ParseStateName(wrong), IsError(ErrorCode::kUsage, HasSubstr("no name of a tensor"))) << wrong;
  }
}

}  // namespace
}  // namespace crossdock::convert
