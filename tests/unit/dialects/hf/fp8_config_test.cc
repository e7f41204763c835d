// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_config.h"

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Fp8Options How(Fp8Options::Strategy strategy, bool compressed_tensors) {
  Fp8Options out;
  out.strategy = strategy;
  out.compressed_tensors = compressed_tensors;
  return out;
}

TEST(QuantizationConfig, SaysBlocksToAllLoaders) {
  Fp8Options fp8 = How(Fp8Options::Strategy::kBlock, false);
  fp8.block = {64, 32};
  EXPECT_EQ(ToJson(QuantizationConfig(fp8, true, {"lm_head"}), 0),
            R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [64, 32], "modules_to_not_convert": ["lm_head"], "scale_fmt": "ue8m0"})");
}

TEST(QuantizationConfig, SaysRowsAndTensorsAsCompressedTensors) {
  const Value rows = QuantizationConfig(How(Fp8Options::Strategy::kChannel, true), false, {"a", "b"});
  EXPECT_EQ(rows.GetString("config_groups.group_0.weights.strategy"), "channel");
  EXPECT_EQ(rows.GetString("config_groups.group_0.input_activations.strategy"), "token");
  EXPECT_EQ(rows.Find("scale_fmt"), nullptr);
  EXPECT_EQ(ToJson(*rows.Find("ignore"), 0), R"(["a", "b"])");
  const Value blocks = QuantizationConfig(How(Fp8Options::Strategy::kBlock, true), false, {});
  EXPECT_EQ(ToJson(*blocks.FindPath("config_groups.group_0.weights.block_structure"), 0), "[128, 128]");
  EXPECT_EQ(blocks.GetInt("config_groups.group_0.input_activations.group_size"), 128);
}

Entry Matrix(std::string name, DType dtype) {
  Entry entry;
  entry.name = std::move(name);
  entry.dtype = dtype;
  entry.shape = {4, 4};
  return entry;
}

TEST(UnquantizedModules, AreThoseWithAPlainMatrix) {  // user case B97
  HubState hub;
  hub.family = &Family("qwen3");
  Entry norm = Matrix("model.norm.weight", DType::kBF16);
  norm.shape = {4};
  const std::vector<Entry> entries = {Matrix("model.layers.1.b.weight", DType::kBF16), Matrix("model.layers.0.a.weight", DType::kF8E4M3),
                                      Matrix("model.layers.0.a.weight_scale_inv", DType::kF32), norm, Matrix("model.embed_tokens.weight", DType::kF32)};
  EXPECT_THAT(UnquantizedModules(hub, entries), ElementsAre("lm_head", "model.embed_tokens", "model.layers.1.b"));  // the tied head is implied
  hub.family = &Family("qwen3_vl");
  EXPECT_THAT(UnquantizedModules(hub, {Matrix("model.visual.merger.fc.weight", DType::kBF16)}),
              ElementsAre("language_model.lm_head", "lm_head", "model.visual.merger.fc", "visual.merger.fc"));
}

TEST(CheckFp8List, FindsALayerOnTheWrongSide) {
  Catalog written;
  written.entries = {Matrix("a.weight", DType::kF8E4M3), Matrix("b.weight", DType::kBF16)};
  EXPECT_THAT(CheckFp8List(written), IsOk());
  written.objects["config.json"] = Json(R"({"quantization_config": {"modules_to_not_convert": ["b"]}})");
  EXPECT_THAT(CheckFp8List(written), IsOk());
  written.objects["config.json"] = Json(R"({"quantization_config": {"ignore": ["a", "b"]}})");
  EXPECT_THAT(CheckFp8List(written), IsError(ErrorCode::kCorrupt, HasSubstr("a.weight")));
  written.objects["config.json"] = Json(R"({"quantization_config": {"ignore": []}})");
  EXPECT_THAT(CheckFp8List(written), IsError(ErrorCode::kCorrupt, HasSubstr("b.weight")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
