// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/infer_letters.h"

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

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
  ASSERT_OK_AND_ASSIGN(const family::Letters letters, InferLetters(Family("llama"), of_template, shape_of));
  EXPECT_EQ(letters, (family::Letters{{"d", 4}, {"f", 12}, {"h", 8}, {"k", 2}, {"layers", 1}, {"q", 4}, {"v", 10}}));
}

TEST(InferLetters, CountsExpertsAndTheLayersBehindTheDecoder) {
  // The first layer is dense; layer 3 is one of multi-token prediction, with all that a layer with experts has.
  std::map<std::string, Shape, std::less<>> shapes = {{"model.embed_tokens.weight", {10, 8}}};
  for (const char* layer : {"0", "1", "2", "3"}) {
    const std::string at = std::string("model.layers.") + layer + ".";
    shapes[at + "input_layernorm.weight"] = {8};
    shapes[at + "self_attn.kv_a_layernorm.weight"] = {6};
    if (*layer == '0') {
      shapes[at + "mlp.gate_proj.weight"] = {24, 8};
      continue;
    }
    shapes[at + "mlp.gate.weight"] = {12, 8};
    for (int e = 0; e < 12; ++e) shapes[at + "mlp.experts." + std::to_string(e) + ".gate_proj.weight"] = {4, 8};
  }
  shapes["model.layers.3.eh_proj.weight"] = {8, 16};
  const auto shape_of = [&](std::string_view name) {
    const auto at = shapes.find(name);
    return at == shapes.end() ? nullptr : &at->second;
  };
  ASSERT_OK_AND_ASSIGN(const family::Letters letters, InferLetters(Family("deepseek_v3"), {{"mtp", 9}, {"experts", 9}, {"rope", 2}}, shape_of));
  EXPECT_EQ(letters, (family::Letters{{"experts", 12}, {"f", 24}, {"h", 8}, {"kl", 6}, {"layers", 3}, {"m", 4}, {"mtp", 1}, {"rope", 2}, {"v", 10}}));
}

TEST(InferLetters, NamesShapesThatContradictEachOther) {
  const std::map<std::string, Shape, std::less<>> shapes = {{"model.layers.0.self_attn.q_norm.weight", {5}},
                                                            {"model.layers.0.self_attn.q_proj.weight", {16, 8}}};
  const auto shape_of = [&](std::string_view name) {
    const auto at = shapes.find(name);
    return at == shapes.end() ? nullptr : &at->second;
  };
  EXPECT_THAT(InferLetters(Family("qwen3"), {}, shape_of), IsError(ErrorCode::kCorrupt, ::testing::HasSubstr("a multiple of 5")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
