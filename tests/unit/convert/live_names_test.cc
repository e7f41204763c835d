// SPDX-License-Identifier: Apache-2.0
#include "convert/live_names.h"

#include "result_matchers.h"

namespace crossdock::convert {
namespace {

TEST(LiveNames, AreThoseOfTheModules) {
  const std::string file = "mp_rank_00_001/model_optim_rng.pt#";
  EXPECT_EQ(LiveName(file + "model/decoder.layers.0.mlp.linear_fc1.weight"), "decoder.layers.0.mlp.linear_fc1.weight");
  EXPECT_EQ(LiveName(file + "model12/embedding.word_embeddings.weight"), "model12.embedding.word_embeddings.weight");
  for (const char* other : {"optimizer/optimizer/state/12/exp_avg", "modelling/x", "model", "0/(torch.bfloat16, torch.float32)/param"}) {
    EXPECT_EQ(LiveName(file + other), std::nullopt) << other;
  }
  EXPECT_EQ(LiveName("decoder.final_layernorm.weight"), std::nullopt);
}

}  // namespace
}  // namespace crossdock::convert
