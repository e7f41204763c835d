// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_loaders.h"

#include <gmock/gmock.h>

#include "unit/dialects/samples.h"

namespace crossdock::dialects::hf {
namespace {

using testing::HasSubstr;
using Strategy = Fp8Options::Strategy;

Fp8Options Declared(Strategy strategy, bool compressed_tensors) {
  Fp8Options fp8;
  fp8.strategy = strategy;
  fp8.compressed_tensors = compressed_tensors;
  return fp8;
}

TEST(WhyNotTransformers, ExpertsThatItsClassesKeepTogether) {  // which these are: tests/oracle/test_fp8.py
  for (const Strategy strategy : {Strategy::kBlock, Strategy::kChannel, Strategy::kTensor}) {
    const Fp8Options fp8 = Declared(strategy, strategy != Strategy::kBlock);
    const auto vision = WhyNotTransformers(Family("qwen3_vl_moe"), fp8);
    ASSERT_TRUE(vision.has_value());
    EXPECT_THAT(vision->notice, HasSubstr("vLLM and SGLang"));
    EXPECT_THAT(vision->load_line, HasSubstr("vllm serve"));
    const auto oss = WhyNotTransformers(Family("gpt_oss"), fp8);
    ASSERT_TRUE(oss.has_value());
    EXPECT_THAT(oss->load_line, testing::Not(HasSubstr("vllm")));
    EXPECT_EQ(WhyNotTransformers(Family("llama4"), fp8).has_value(), strategy == Strategy::kBlock);
    EXPECT_FALSE(WhyNotTransformers(Family("qwen3_moe"), fp8).has_value());
  }
}

TEST(WhyNotTransformers, OneScaleATensorAsItsOwnMethod) {
  EXPECT_THAT(WhyNotTransformers(Family("qwen3"), Declared(Strategy::kTensor, false))->notice, HasSubstr("takes the codes for values"));
  EXPECT_FALSE(WhyNotTransformers(Family("qwen3"), Declared(Strategy::kTensor, true)).has_value());
}

}  // namespace
}  // namespace crossdock::dialects::hf
