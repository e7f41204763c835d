// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/infer_letters.h"

#include "family/detect.h"
#include "model.h"

namespace crossdock::dialects::hf {
namespace {

const family::FamilyFile& Builtin(std::string_view name) {
  for (const family::FamilyFile& file : family::BuiltinFamilies()) {
    if (file.name == name) return file;
  }
  std::abort();
}

TEST(InferLetters, LeavesOpenLettersToTheTemplate) {
  // Without q/k norms nothing tells heads from head size: the template's head size decides.
  const std::map<std::string, Shape, std::less<>> shapes = {{"model.embed_tokens.weight", {10, 8}},
                                               {"model.layers.0.self_attn.q_proj.weight", {16, 8}},
                                               {"model.layers.0.self_attn.k_proj.weight", {8, 8}},
                                               {"model.layers.0.mlp.gate_proj.weight", {12, 8}}};
  const auto shape_of = [&](std::string_view name) {
    const auto at = shapes.find(name);
    return at == shapes.end() ? nullptr : &at->second;
  };
  const family::Letters of_template = {{"d", 4}, {"f", 9}, {"h", 9}, {"k", 9}, {"layers", 9}, {"q", 9}, {"v", 9}};
  ASSERT_OK_AND_ASSIGN(const family::Letters letters, InferLetters(Builtin("llama"), of_template, shape_of));
  EXPECT_EQ(letters, (family::Letters{{"d", 4}, {"f", 12}, {"h", 8}, {"k", 2}, {"layers", 1}, {"q", 4}, {"v", 10}}));
}

TEST(InferLetters, NamesShapesThatContradictEachOther) {
  const std::map<std::string, Shape, std::less<>> shapes = {{"model.layers.0.self_attn.q_norm.weight", {5}},
                                                            {"model.layers.0.self_attn.q_proj.weight", {16, 8}}};
  const auto shape_of = [&](std::string_view name) {
    const auto at = shapes.find(name);
    return at == shapes.end() ? nullptr : &at->second;
  };
  EXPECT_THAT(InferLetters(Builtin("qwen3"), {}, shape_of), IsError(ErrorCode::kCorrupt, ::testing::HasSubstr("a multiple of 5")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
