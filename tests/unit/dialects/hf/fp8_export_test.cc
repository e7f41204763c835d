// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_export.h"

#include <fmt/format.h>

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const Entry* FindEntry(const TargetState& target, std::string_view name) {
  const std::int32_t at = target.catalog.Find(name);
  return at < 0 ? nullptr : &target.catalog.entries[static_cast<std::size_t>(at)];
}

std::string ExprOf(const TargetState& target, std::string_view name) {
  const std::int32_t at = target.catalog.Find(name);
  return at < 0 ? "" : expr::Describe(target.exprs[static_cast<std::size_t>(at)]);
}

Result<TargetState> Write(const Catalog& source, const Fp8Options& fp8, std::optional<DType> dtype = std::nullopt) {
  CROSSDOCK_ASSIGN_OR_RETURN(const HubState hub, ReadHub(source, {}));
  TargetOptions options;
  options.fp8 = fp8;
  options.dtype = dtype;
  return WriteHub(hub, options);
}

TEST(WriteHub, QuantizesLinearWeightsAndPutsScalesBesideThem) {
  Fp8Options fp8;
  fp8.block = {8, 8};
  ASSERT_OK_AND_ASSIGN(const TargetState target, Write(TinyModel(), fp8));
  const Entry* q = FindEntry(target, "model.layers.0.self_attn.q_proj.weight");
  const Entry* s = FindEntry(target, "model.layers.0.self_attn.q_proj.weight_scale_inv");
  ASSERT_TRUE(q != nullptr && s != nullptr);
  EXPECT_EQ(q->dtype, DType::kF8E4M3);
  EXPECT_EQ(s->dtype, DType::kF32);
  EXPECT_EQ(s->shape, (Shape{2, 1}));
  EXPECT_EQ(FindEntry(target, "lm_head.weight")->dtype, DType::kBF16);
  EXPECT_EQ(target.scale_of.size(), 14U);
  EXPECT_EQ(target.scale_of.at(s->name), q->name);
  const Value& config = target.catalog.objects.at("config.json");
  EXPECT_EQ(config.GetString("dtype"), "bfloat16");
  EXPECT_EQ(config.Find("torch_dtype"), nullptr);  // the source has the one, and nothing else is added
  EXPECT_EQ(ToJson(*config.FindPath("quantization_config.modules_to_not_convert"), 0), R"(["lm_head", "model.embed_tokens"])");
  EXPECT_THAT(target.notices, Contains(HasSubstr("14 weights are quantized to FP8 (blocks of 8 x 8), 2 of two axes stay")));
}

TEST(WriteHub, CastsBeforeItQuantizes) {
  Fp8Options fp8;
  fp8.strategy = Fp8Options::Strategy::kTensor;
  fp8.compressed_tensors = fp8.relax = true;
  ASSERT_OK_AND_ASSIGN(const TargetState target, Write(TinyModel("", 2, DType::kF32), fp8, DType::kBF16));
  EXPECT_THAT(ExprOf(target, "model.layers.0.mlp.up_proj.weight"), testing::StartsWith("quantize[tensor, relax](cast[BF16]("));
  EXPECT_EQ(FindEntry(target, "model.layers.0.mlp.up_proj.weight_scale")->shape, (Shape{1}));
}

TEST(WriteHub, KeepsWhatLoadersJoinTogether) {
  Fp8Options fp8;
  fp8.skip = {"model.layers.0.self_attn.q_proj"};
  ASSERT_OK_AND_ASSIGN(const TargetState target, Write(TinyModel(), fp8));
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) EXPECT_EQ(FindEntry(target, std::string("model.layers.0.self_attn.") + part + ".weight")->dtype, DType::kBF16);
  EXPECT_EQ(FindEntry(target, "model.layers.1.self_attn.k_proj.weight")->dtype, DType::kF8E4M3);
  EXPECT_THAT(target.notices, Contains(HasSubstr("2 weights stay as they are because loaders join them")));
}

TEST(WriteHub, RefusesPatternsThatMatchOrLeaveNothing) {
  Fp8Options fp8;
  fp8.only = {"*.no_such"};
  EXPECT_THAT(Write(TinyModel(), fp8), IsError(ErrorCode::kUsage, AllOf(HasSubstr("--fp8-only"), HasSubstr("*.no_such"))));
  fp8.only = {"lm_head"};
  EXPECT_THAT(Write(TinyModel(), fp8), IsError(ErrorCode::kUsage, HasSubstr("no weight is left")));
}

/// Every weight but the first layer's q_proj in FP8 with a scale a row.
Catalog RowsInFp8() {
  Catalog source = TinyModel();
  std::vector<Entry> scales;
  for (Entry& entry : source.entries) {
    const bool weight = entry.name.find("_proj.weight") != std::string::npos && entry.name != "model.layers.0.self_attn.q_proj.weight";
    if (!weight) continue;
    entry.dtype = DType::kF8E4M3;
    scales.push_back(entry);
  }
  for (const Entry& entry : scales) Add(&source, entry.name + "_scale", {entry.shape[0], 1}, DType::kF32);
  return source;
}

TEST(WriteHub, PassesThroughWhatIsFp8ByTheSameRule) {
  Fp8Options fp8;
  fp8.strategy = Fp8Options::Strategy::kChannel;
  fp8.compressed_tensors = true;
  const Catalog source = RowsInFp8();
  ASSERT_OK_AND_ASSIGN(const TargetState target, Write(source, fp8));
  EXPECT_EQ(ExprOf(target, "model.layers.1.mlp.up_proj.weight"), std::to_string(source.Find("model.layers.1.mlp.up_proj.weight")));
  EXPECT_EQ(ExprOf(target, "model.layers.1.mlp.up_proj.weight_scale"), std::to_string(source.Find("model.layers.1.mlp.up_proj.weight_scale")));
  EXPECT_EQ(FindEntry(target, "model.layers.0.self_attn.q_proj.weight")->dtype, DType::kBF16);  // as the source has it
  EXPECT_THAT(target.notices, Contains(HasSubstr("13 weights are FP8 already")));
  EXPECT_THAT(target.notices, Not(Contains(HasSubstr("second time"))));
  // Powers of two are asked for, and nothing says that these are.
  fp8.ue8m0 = true;
  ASSERT_OK_AND_ASSIGN(const TargetState rounded, Write(source, fp8));
  EXPECT_THAT(rounded.notices, Contains(HasSubstr("13 weights are stored in FP8 by another rule")));
}

TEST(WriteHub, KeepsWhatLoadersJoinTogetherOfAnFp8SourceToo) {
  Fp8Options fp8;
  fp8.strategy = Fp8Options::Strategy::kChannel;
  fp8.compressed_tensors = true;
  fp8.skip = {"model.layers.1.self_attn.q_proj", "*.0.mlp.gate_proj"};
  ASSERT_OK_AND_ASSIGN(const TargetState target, Write(RowsInFp8(), fp8));
  for (const char* part : {"1.self_attn.q_proj", "1.self_attn.k_proj", "1.self_attn.v_proj", "0.mlp.gate_proj", "0.mlp.up_proj"}) {
    EXPECT_EQ(FindEntry(target, fmt::format("model.layers.{}.weight", part))->dtype, DType::kBF16) << part;
    EXPECT_EQ(FindEntry(target, fmt::format("model.layers.{}.weight_scale", part)), nullptr) << part;
  }
  // The source has this group in parts, and nobody asked for another.
  EXPECT_EQ(FindEntry(target, "model.layers.0.self_attn.k_proj.weight")->dtype, DType::kF8E4M3);
  EXPECT_THAT(target.notices, Contains(HasSubstr("3 weights stay as they are because loaders join them")));
}

TEST(WriteHub, LayersOfAnFp8TemplateDoNotSpeakForTheSource) {
  Catalog source = TinyModel();
  for (const char* word : {"q_proj", "k_proj", "v_proj"}) {  // of layer 1
    const std::string name = fmt::format("model.layers.1.self_attn.{}.weight", word);
    const Shape shape = source.entries[static_cast<std::size_t>(source.Find(name))].shape;
    Remove(&source, name);
    Add(&source, name, shape, DType::kF8E4M3);
    Add(&source, name + "_scale_inv", {1, 1}, DType::kF32);
  }
  ASSERT_OK_AND_ASSIGN(HubState hub, ReadHub(source, {}));
  hub.layout.Set(kTemplateEntries, Value(std::int64_t{source.Find("model.layers.1.input_layernorm.weight")}));  // this layer, and the last norm
  TargetOptions options;
  options.fp8.emplace();
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
  EXPECT_EQ(FindEntry(target, "model.layers.0.self_attn.q_proj.weight")->dtype, DType::kF8E4M3);
  EXPECT_EQ(FindEntry(target, "model.layers.0.mlp.down_proj.weight")->dtype, DType::kF8E4M3);
  EXPECT_EQ(ExprOf(target, "model.layers.1.self_attn.q_proj.weight"), std::to_string(source.Find("model.layers.1.self_attn.q_proj.weight")));
  EXPECT_EQ(FindEntry(target, "model.layers.1.mlp.down_proj.weight")->dtype, DType::kBF16);  // the template's own choice
  EXPECT_THAT(target.notices, Contains(HasSubstr("7 weights are quantized to FP8")));
  EXPECT_THAT(target.notices, Contains(HasSubstr("3 weights are FP8 already")));
}

TEST(ServingNotices, TellPartialBlocksAndCutsByName) {
  Fp8Options fp8;
  fp8.block = {8, 8};
  fp8.check_tp = 2;
  ASSERT_OK_AND_ASSIGN(const TargetState target, Write(TinyModel(), fp8));
  EXPECT_THAT(target.notices, Contains(HasSubstr("partial block: model.layers.*.mlp.gate_proj.weight [12, 8]: 12 rows end 4 into a block of 8 (2 of them)")));
  EXPECT_THAT(target.notices, Contains(HasSubstr("tensor parallel 2: model.layers.*.mlp.down_proj.weight [8, 12]: a rank holds 6 of 12 columns, no multiple of 8 (2 of them)")));
  EXPECT_THAT(target.notices, Contains(HasSubstr("tensor parallel 2: model.layers.*.self_attn.k_proj.weight [8, 8]: a rank holds 4 of 8 rows")));
  EXPECT_THAT(target.notices, Not(Contains(HasSubstr("q_proj"))));
  fp8.strategy = Fp8Options::Strategy::kChannel;
  ASSERT_OK_AND_ASSIGN(const TargetState rows, Write(TinyModel(), fp8));
  EXPECT_THAT(rows.notices, Contains(HasSubstr("tensor parallel 2: every quantized weight can be divided")));
  fp8.check_tp = 3;
  ASSERT_OK_AND_ASSIGN(const TargetState thirds, Write(TinyModel(), fp8));
  EXPECT_THAT(thirds.notices, Contains(HasSubstr("16 rows do not divide by 3 ranks")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
