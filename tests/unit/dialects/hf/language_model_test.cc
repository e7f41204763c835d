// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/language_model.h"

#include <algorithm>

#include "dialects/hf/hf_dialect.h"
#include "model.h"

namespace crossdock::dialects::hf {
namespace {

Value Config() {
  return Json(R"({"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": true, "image_token_id": 7,
    "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 12,
                    "vocab_size": 10, "tie_word_embeddings": false, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [1, 1, 0]}},
    "vision_config": {"depth": 1, "hidden_size": 4, "num_heads": 2, "intermediate_size": 6, "out_hidden_size": 8, "num_position_embeddings": 4, "patch_size": 2}})");
}

HubState Whole() {
  Catalog source;
  source.root = "/source";
  source.objects["config.json"] = Config();
  for (const char* path : {"tokenizer.json", "video_preprocessor_config.json"}) {
    SideFile file;
    file.path = path;
    source.side_files.push_back(std::move(file));
  }
  const auto model = family::EvaluateModel(Family("qwen3_vl"), {"hf", Config()});
  family::BindOptions options;
  options.dialect = "hf";
  const auto binding = family::Bind(Family("qwen3_vl"), *model, options);
  for (const family::HubTensor& tensor : binding->hub) Add(&source, tensor.name, tensor.shape);
  return *ReadHub(source, {});
}

TEST(LanguageModelTest, TakesThePartByItsOwnNames) {
  HubState hub = Whole();
  const std::size_t whole = hub.tensors.size();
  ASSERT_THAT(TakeLanguageModel(Family("qwen3"), &hub), IsOk());
  EXPECT_EQ(hub.family->name, "qwen3");
  EXPECT_EQ(hub.tensors.size(), 2U + 2U * 11U);
  EXPECT_TRUE(std::ranges::all_of(hub.tensors, [](const HubTensor& tensor) { return tensor.name.starts_with("model.") && !tensor.name.starts_with("model.language_model."); }));
  EXPECT_TRUE(std::ranges::is_sorted(hub.tensors, {}, &HubTensor::name));
  EXPECT_EQ(hub.order.size(), hub.tensors.size());
  ASSERT_EQ(hub.left_out.size(), 2U);
  EXPECT_EQ(hub.left_out[0].count, static_cast<std::int64_t>(whole - hub.tensors.size()));
  EXPECT_GT(hub.left_out[0].bytes, 0);
  EXPECT_EQ(hub.left_out[1].name, "video_preprocessor_config.json");
  ASSERT_EQ(hub.side_files.size(), 1U);
  EXPECT_EQ(hub.side_files[0].path, "tokenizer.json");
}

TEST(LanguageModelTest, LiftsTheConfiguration) {
  const family::ModelConfig config = LanguageModelConfig(Family("qwen3"), Family("qwen3_vl"), {"hf", Config()});
  EXPECT_EQ(config.values.GetString("model_type"), "qwen3");
  EXPECT_EQ(config.values.Find("architectures")->as_sequence()->front().as_string() != nullptr, true);
  EXPECT_EQ(*config.values.Find("architectures")->as_sequence()->front().as_string(), "Qwen3ForCausalLM");
  EXPECT_EQ(config.values.GetInt("hidden_size"), 8);
  EXPECT_EQ(config.values.GetBool("tie_word_embeddings"), true);   // the top's counts
  EXPECT_EQ(config.values.FindPath("rope_parameters.mrope_section"), nullptr);
  EXPECT_EQ(config.values.GetFloat("rope_parameters.rope_theta"), 5000.0);
  for (const char* gone : {"vision_config", "text_config", "image_token_id"}) EXPECT_EQ(config.values.Find(gone), nullptr) << gone;
}

TEST(LanguageModelTest, AnotherFamilyIsNoPart) {
  EXPECT_TRUE(IsLanguageModelOf(Family("qwen3"), Family("qwen3_vl")));
  EXPECT_FALSE(IsLanguageModelOf(Family("qwen2"), Family("qwen3_vl")));
  EXPECT_FALSE(IsLanguageModelOf(Family("qwen3"), Family("qwen3")));
  HubState hub = Whole();
  EXPECT_THAT(TakeLanguageModel(Family("llama"), &hub), IsError(ErrorCode::kUnsupported, ::testing::HasSubstr("no language model of the family llama")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
