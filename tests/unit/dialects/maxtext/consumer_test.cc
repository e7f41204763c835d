// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/consumer.h"

#include "result_matchers.h"

namespace crossdock::dialects::maxtext {
namespace {

using ::testing::HasSubstr;

TEST(Consumer, TakesReleasesItHasRulesFor) {
  EXPECT_EQ(ChooseConsumer("", "")->release, Release::k025);
  EXPECT_EQ(ChooseConsumer("maxtext", "0.2.5")->release, Release::k025);
  EXPECT_EQ(ChooseConsumer("maxtext", "0.2.4")->release, Release::k024);
  EXPECT_EQ(ChooseConsumer("maxtext-linen", "")->release, Release::kLinen);
  EXPECT_THAT(ChooseConsumer("maxtext", "0.1"), IsError(ErrorCode::kUnsupported, HasSubstr("maxtext@0.2.4")));
  EXPECT_THAT(ChooseConsumer("maxtext-linen", "0.2.4"), IsError(ErrorCode::kUsage, HasSubstr("no versions")));
  EXPECT_THAT(ChooseConsumer("megatron-lm", ""), IsError(ErrorCode::kUnsupported, HasSubstr("megatron-lm")));
}

TEST(Consumer, DividesParametersAsItsReleaseDoes) {
  struct Case {
    const char* name;
    std::size_t axes;
    bool newest, older, linen;
  };
  for (const Case& one : {Case{"decoder.layers.mlp.wi_0.kernel", 3, true, true, true}, Case{"decoder.layers.query_norm.scale", 2, false, false, false},
                          Case{"token_embedder.embedding", 2, false, false, false}, Case{"decoder.logits_dense.kernel", 2, false, false, false},
                          Case{"decoder.layers.self_attention.query.bias", 3, false, false, false}, Case{"decoder.layers.GptOssMlp.wi_0_bias", 3, false, true, true},
                          Case{"decoder.layers.attention.A_log", 2, false, true, false}, Case{"decoder.layers.attention.q_conv.kernel", 3, true, true, false}}) {
    EXPECT_EQ(GoesToMuon({Release::k025}, one.name, one.axes), one.newest) << one.name;
    EXPECT_EQ(GoesToMuon({Release::k024}, one.name, one.axes), one.older) << one.name;
    EXPECT_EQ(GoesToMuon({Release::kLinen}, one.name, one.axes), one.linen) << one.name;
  }
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
