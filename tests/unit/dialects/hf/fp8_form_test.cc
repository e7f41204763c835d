// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_form.h"

#include "dialects/hf/fp8_export.h"
#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using Strategy = Fp8Options::Strategy;

/// gate_proj and up_proj, [12, 8], of layer 0 in FP8, with scales of these shapes; `said`: the quantization_config.
HubState TwoInFp8(const Shape& gate, const Shape& up, std::string_view said = "", DType scales = DType::kF32) {
  Catalog source = TinyModel();
  for (const auto& [word, shape] : {std::pair{"gate_proj", gate}, {"up_proj", up}}) {
    const std::string name = std::string("model.layers.0.mlp.") + word + ".weight";
    Remove(&source, name);
    Add(&source, name, {12, 8}, DType::kF8E4M3);
    Add(&source, name + "_scale_inv", shape, scales);
  }
  if (!said.empty()) source.objects["config.json"].Set("quantization_config", Json(said));
  return ReadHub(source, {}).value();
}

TEST(FormOfSource, IsTheOneRuleOfAllItsWeights) {
  const auto rows = FormOfSource(TwoInFp8({12, 1}, {12, 1}));
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->strategy, Strategy::kChannel);
  const auto blocks = FormOfSource(TwoInFp8({3, 2}, {3, 2}, R"({"quant_method": "fp8", "weight_block_size": [5, 7]})"));
  ASSERT_TRUE(blocks.has_value());
  EXPECT_EQ(blocks->strategy, Strategy::kBlock);
  EXPECT_EQ(blocks->block, (expr::BlockFormat{5, 7}));
  const auto unsaid = FormOfSource(TwoInFp8({3, 2}, {3, 2}));  // what divides evenly
  ASSERT_TRUE(unsaid.has_value());
  EXPECT_EQ(unsaid->block, (expr::BlockFormat{4, 4}));
}

TEST(FormOfSource, OfOneGroupAWeightIsWhatIsDeclared) {
  EXPECT_EQ(FormOfSource(TwoInFp8({1, 1}, {1, 1}, R"({"quant_method": "fp8", "weight_block_size": [128, 128]})"))->strategy, Strategy::kBlock);
  EXPECT_EQ(FormOfSource(TwoInFp8({1}, {1}, R"({"quant_method": "fp8", "activation_scheme": "static"})"))->strategy, Strategy::kTensor);
  EXPECT_EQ(FormOfSource(TwoInFp8({1}, {1}))->strategy, Strategy::kBlock);
}

TEST(FormOfSource, IsNothingForOtherSources) {
  EXPECT_FALSE(FormOfSource(ReadHub(TinyModel(), {}).value()).has_value());
  EXPECT_FALSE(FormOfSource(TwoInFp8({12, 1}, {3, 2})).has_value());                 // two rules
  EXPECT_FALSE(FormOfSource(TwoInFp8({12, 1}, {12, 1}, "", DType::kU8)).has_value());
  HubState hub = TwoInFp8({12, 1}, {12, 1});
  hub.layout.Set(kTemplateEntries, Value(std::int64_t{0}));                           // all of it is a template's
  EXPECT_FALSE(FormOfSource(hub).has_value());
}

}  // namespace
}  // namespace crossdock::dialects::hf
