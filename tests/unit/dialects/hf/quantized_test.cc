// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/quantized.h"

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

constexpr const char* kUp = "model.layers.0.mlp.up_proj.weight";  // [12, 8]

/// The tiny model with one weight stored as FP8; the scales go by `scale` and have `shape`.
Catalog WithFp8(const std::string& scale, const Shape& shape, DType dtype = DType::kF32) {
  Catalog source = TinyModel();
  Remove(&source, kUp);
  Add(&source, kUp, {12, 8}, DType::kF8E4M3);
  if (!scale.empty()) Add(&source, "model.layers.0.mlp.up_proj" + scale, shape, dtype);
  return source;
}

void Say(Catalog* source, std::string_view quantization) {
  source->objects["config.json"].Set("quantization_config", Json(quantization));
}

TEST(ReadHub, DequantizesAWeightUnderEachNameOfItsScales) {  // user case B96
  struct Case {
    const char* suffix;
    Shape shape;
    DType dtype;
    const char* form;
  };
  for (const Case& c : {Case{".weight_scale_inv", {3, 2}, DType::kF32, "blocks of 4 x 4"}, Case{".weight_scale", {12, 1}, DType::kBF16, "one scale a row"},
                        Case{".weight_scale", {1}, DType::kF32, "one scale a tensor"}, Case{".scale", {12, 2}, DType::kF8E8M0, "blocks of 1 x 4"}}) {
    SCOPED_TRACE(c.form);
    const Catalog source = WithFp8(c.suffix, c.shape, c.dtype);
    ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
    const HubTensor* up = FindHub(hub, kUp);
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->dtype, DType::kBF16);
    EXPECT_EQ(up->shape, (Shape{12, 8}));
    EXPECT_EQ(up->expr->op, expr::Op::kDequantize);
    EXPECT_THAT(hub.notices, Contains(AllOf(HasSubstr("1 weights are stored quantized"), HasSubstr(c.form), HasSubstr("no optimizer state"))));
  }
}

TEST(ReadHub, TakesBlockAndDtypeFromTheConfiguration) {
  Catalog source = WithFp8(".weight_scale_inv", {3, 2});
  source.objects["config.json"].Set("dtype", Value("float32"));
  Say(&source, R"({"quant_method": "fp8", "weight_block_size": [5, 7]})");  // edge blocks on both axes
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  EXPECT_EQ(FindHub(hub, kUp)->dtype, DType::kF32);
  EXPECT_EQ(FindHub(hub, kUp)->expr->block(), (expr::BlockFormat{5, 7}));
  Say(&source, R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups":
                   {"group_0": {"weights": {"num_bits": 8, "type": "float", "block_structure": [4, 4]}}}})");
  ASSERT_OK_AND_ASSIGN(const HubState other, ReadHub(source, {}));
  EXPECT_EQ(FindHub(other, kUp)->expr->block(), (expr::BlockFormat{4, 4}));
}

TEST(ReadHub, RoundsOnceToTheDtypeThatIsAskedFor) {
  ReadOptions options;
  options.dequantized = DType::kF32;
  ASSERT_OK_AND_ASSIGN(const HubState wide, ReadHub(WithFp8(".weight_scale", {12, 1}), options));
  EXPECT_EQ(FindHub(wide, kUp)->expr->op, expr::Op::kDequantize);
  EXPECT_EQ(FindHub(wide, kUp)->expr->dtype, DType::kF32);
  EXPECT_EQ(FindHub(wide, "model.layers.0.mlp.gate_proj.weight")->dtype, DType::kBF16);
  EXPECT_THAT(wide.notices, Contains(HasSubstr("and read as F32")));
  options.keep_dtype = {"*.up_proj.weight"};
  ASSERT_OK_AND_ASSIGN(const HubState kept, ReadHub(WithFp8(".weight_scale", {12, 1}), options));
  EXPECT_EQ(FindHub(kept, kUp)->dtype, DType::kBF16);
}

TEST(ReadHub, SaysWhenABlockIsAssumed) {
  Catalog source = TinyModel();
  source.objects["config.json"].Set("vocab_size", Value(192));
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    Remove(&source, name);
    Add(&source, name, {192, 8}, DType::kF8E4M3);
    Add(&source, std::string(name) + "_scale_inv", {2, 1});  // 128 + 64 rows, or 2 x 96
  }
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  EXPECT_EQ(FindHub(hub, "lm_head.weight")->expr->block(), (expr::BlockFormat{128, 8}));
  EXPECT_THAT(hub.notices, Contains(HasSubstr("assumed")));
}

TEST(ReadHub, RefusesFp8WithoutScalesOrWithWrongOnes) {  // user case B96
  EXPECT_THAT(ReadHub(WithFp8("", {}), {}), IsError(ErrorCode::kIncomplete, HasSubstr("no scales")));
  Result<HubState> bare = ReadHub(WithFp8("", {}), {});
  EXPECT_EQ(bare.error().tensor, kUp);
  EXPECT_THAT(bare.error().expected, AllOf(HasSubstr("up_proj.weight_scale_inv"), HasSubstr("up_proj.weight_scale`"), HasSubstr("up_proj.scale")));
  EXPECT_THAT(ReadHub(WithFp8(".weight_scale", {5, 3}), {}), IsError(ErrorCode::kCorrupt, HasSubstr("scales")));
  EXPECT_THAT(ReadHub(WithFp8(".weight_scale", {12, 1}, DType::kI32), {}), IsError(ErrorCode::kUnsupported, HasSubstr("dequantized")));
  Catalog strange = WithFp8(".weight_scale", {1});
  Say(&strange, R"({"quant_method": "fp8", "weight_block_size": [128]})");
  EXPECT_THAT(ReadHub(strange, {}), IsError(ErrorCode::kCorrupt, HasSubstr("weight_block_size")));
}

TEST(ReadHub, TakesCodesAsValuesOnlyWhereTheUserSaysSo) {
  ReadOptions options;
  options.allow_unscaled_fp8 = true;
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(WithFp8("", {}), options));
  EXPECT_EQ(FindHub(hub, kUp)->expr->op, expr::Op::kCast);
  EXPECT_EQ(FindHub(hub, kUp)->dtype, DType::kBF16);
  EXPECT_THAT(hub.notices, Contains(HasSubstr("unscaled-fp8")));
}

TEST(ReadHub, LeavesScalesOfActivationsBehind) {
  Catalog source = WithFp8(".weight_scale", {1});
  Add(&source, "model.layers.0.mlp.up_proj.input_scale", {}, DType::kF32);
  Add(&source, "model.layers.0.self_attn.k_scale", {1}, DType::kF32);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  ASSERT_EQ(hub.left_out.size(), 1U);
  EXPECT_EQ(hub.left_out[0].count, 2);
  // Where nothing is quantized they are unknown.
  Catalog plain = TinyModel();
  Add(&plain, "model.layers.0.mlp.up_proj.input_scale", {}, DType::kF32);
  EXPECT_THAT(ReadHub(plain, {}), IsError(ErrorCode::kUnsupported, HasSubstr("input_scale")));
}

TEST(ReadQuantization, RefusesOtherMethodsByName) {
  const auto read = [](std::string_view text) { return ReadQuantization(Json(text)); };
  EXPECT_THAT(read(R"({})"), IsOk());
  EXPECT_THAT(read(R"({"quantization_config": null})"), IsOk());
  EXPECT_THAT(read(R"({"quantization_config": {"quant_method": "mxfp4"}})"), IsOk());
  EXPECT_THAT(read(R"({"quantization_config": {"quant_method": "gptq"}})"), IsError(ErrorCode::kUnsupported, HasSubstr("gptq")));
  EXPECT_THAT(read(R"({"quantization_config": {"bits": 4}})"), IsError(ErrorCode::kUnsupported, HasSubstr("without a method")));
  EXPECT_THAT(read(R"({"compression_config": {"quant_method": "compressed-tensors", "format": "marlin-24"}})"),
              IsError(ErrorCode::kUnsupported, HasSubstr("marlin-24")));
  EXPECT_THAT(read(R"({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}}})"),
              IsError(ErrorCode::kUnsupported, HasSubstr("type int")));
}

TEST(ReadMxfp4, TurnsTheLastTwoAxesRound) {
  Catalog source;
  Add(&source, "x.experts.down_proj_blocks", {2, 6, 3, 16}, DType::kU8);
  Add(&source, "x.experts.down_proj_scales", {2, 6, 3}, DType::kU8);
  ASSERT_OK_AND_ASSIGN(const std::optional<Dequantized> made, ReadMxfp4(source, "x.experts.down_proj", {}));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->expr->shape, (Shape{2, 96, 6}));
  EXPECT_EQ(made->entries, (std::vector<std::int32_t>{0, 1}));
  ASSERT_OK_AND_ASSIGN(const std::optional<Dequantized> none, ReadMxfp4(source, "x.experts.up_proj", {}));
  EXPECT_FALSE(none);
  Remove(&source, "x.experts.down_proj_scales");
  EXPECT_THAT(ReadMxfp4(source, "x.experts.down_proj", {}), IsError(ErrorCode::kIncomplete, HasSubstr("no scales")));
}

TEST(WriteHub, DropsTheQuantizationFromTheConfiguration) {
  Catalog source = WithFp8(".weight_scale", {1});
  Say(&source, R"({"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]})");
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  EXPECT_EQ(target.catalog.objects.at("config.json").Find("quantization_config"), nullptr);
  EXPECT_THAT(target.notices, Contains(HasSubstr("quantization_config")));
  TargetOptions with_template;
  with_template.template_config = family::ModelConfig{"hf", source.objects["config.json"]};
  ASSERT_OK_AND_ASSIGN(const TargetState other, WriteHub(hub, with_template));
  EXPECT_EQ(other.catalog.objects.at("config.json").Find("quantization_config"), nullptr);
}

}  // namespace
}  // namespace crossdock::dialects::hf
