// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/yaml_value.h"

#include "result_matchers.h"

namespace crossdock::formats::dcp {
namespace {

using ::testing::HasSubstr;

TEST(ParseYaml, ReadsARunConfigurationAsPlainData) {
  ASSERT_OK_AND_ASSIGN(const Value value, ParseYaml(R"(
model:
  _target_: megatron.bridge.models.Qwen3ModelProvider
  num_layers: 4
  rotary_base: 1000000.0
  layernorm_epsilon: 1e-06
  qk_layernorm: true
  window: null
  text: "12"
  params_dtype: !!python/object/apply:torch.dtype [bfloat16]
  activation: !python/name:torch.nn.functional.silu ''
  sizes: [1, -2, .5]
)"));
  EXPECT_EQ(ToJson(value, 0),
            R"({"model": {"_target_": "megatron.bridge.models.Qwen3ModelProvider", "num_layers": 4, "rotary_base": 1000000.0, )"
            R"("layernorm_epsilon": 1e-06, "qk_layernorm": true, "window": null, "text": "12", "params_dtype": ["bfloat16"], )"
            R"("activation": null, "sizes": [1, -2, 0.5]}})");
}

TEST(ParseYaml, RefusesWhatIsNoYaml) {
  EXPECT_THAT(ParseYaml("a: [1, 2"), IsError(ErrorCode::kCorrupt, HasSubstr("line")));
  EXPECT_THAT(ParseYaml(std::string(100'000, '[')), IsError(ErrorCode::kCorrupt, HasSubstr("YAML")));
}

TEST(ParseYaml, RefusesAliasesThatUnfoldWithoutBound) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += (k == 0 ? "" : ", ") + last;
    bomb += "]\n";
  }
  EXPECT_THAT(ParseYaml(bomb), IsError(ErrorCode::kUnsafe, HasSubstr("unfolds")));
}

}  // namespace
}  // namespace crossdock::formats::dcp
