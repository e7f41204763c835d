// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/args.h"

#include "dialects/mcore/load_line.h"
#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

Result<Value> Args(std::string_view family, const Value& config) {
  const Result<family::Model> model = family::EvaluateModel(Family(family), {"hf", config});
  return ArgsFromConfig(Family(family), *model, {"hf", config});
}

TEST(ArgsTest, FromAConfig) {
  ASSERT_OK_AND_ASSIGN(const Value args, Args("qwen3", TinyConfig("qwen3")));
  const Value expected = TinyArgs();
  for (const char* name : {"hidden_size", "num_attention_heads", "group_query_attention", "num_query_groups", "kv_channels", "ffn_hidden_size",
                           "num_layers", "layernorm_epsilon", "rotary_base", "rotary_percent", "max_position_embeddings", "seq_length", "swiglu",
                           "normalization", "position_embedding_type", "untie_embeddings_and_output_weights"}) {
    ASSERT_NE(args.Find(name), nullptr) << name;
    EXPECT_TRUE(args.Find(name)->Equals(*expected.Find(name))) << name << ": " << ToJson(*args.Find(name));
  }
  EXPECT_EQ(args.GetBool("qk_layernorm"), true);
  EXPECT_EQ(args.GetBool("add_qkv_bias"), false);
  EXPECT_EQ(args.GetBool("add_bias_linear"), false);
  EXPECT_EQ(args.GetFloat("hidden_dropout"), 0.0);
}

TEST(ArgsTest, FamilyFactsAndPlainAttention) {
  Value config = TinyConfig("qwen2");
  config.Set("num_key_value_heads", Value(4));
  config.Set("tie_word_embeddings", Value(true));
  config.Set("sliding_window", Value(32768));  // named and left off
  config.Set("use_sliding_window", Value(false));
  ASSERT_OK_AND_ASSIGN(const Value args, Args("qwen2", config));
  EXPECT_EQ(args.GetBool("add_qkv_bias"), true);
  EXPECT_EQ(args.GetBool("group_query_attention"), false);
  EXPECT_EQ(args.GetBool("untie_embeddings_and_output_weights"), false);
  EXPECT_TRUE(args.Find("window_size")->is_null());
}

TEST(ArgsTest, RotaryScaling) {
  Value config = TinyConfig("llama");
  config.Set("rope_scaling", Json(R"({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})"));
  ASSERT_OK_AND_ASSIGN(const Value llama3, Args("llama", config));
  EXPECT_EQ(llama3.GetBool("use_rope_scaling"), true);
  EXPECT_EQ(llama3.GetFloat("rope_scaling_factor"), 32.0);
  EXPECT_THAT(LoadFlags(llama3), HasSubstr("--use-rope-scaling --rope-scaling-factor 32"));
  config.Set("rope_scaling", Json(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})"));
  EXPECT_THAT(Args("llama", config), IsError(ErrorCode::kUnsupported, HasSubstr("low_freq_factor")));
  config.Set("rope_scaling", Json(R"({"rope_type": "yarn", "factor": 4.0})"));
  EXPECT_THAT(Args("llama", config), IsError(ErrorCode::kUnsupported, HasSubstr("yarn")));
  config.Set("rope_scaling", Json(R"({"type": "linear", "factor": 2.0})"));
  ASSERT_OK_AND_ASSIGN(const Value linear, Args("llama", config));
  EXPECT_EQ(linear.GetInt("rotary_seq_len_interpolation_factor"), 2);
}

TEST(ArgsTest, WhatMegatronCannotExpressIsRefusedByName) {
  Value config = TinyConfig("llama");
  config.Set("attention_bias", Value(true));
  EXPECT_THAT(Args("llama", config), IsError(ErrorCode::kUnsupported, HasSubstr("attention_bias")));
  config = TinyConfig("llama");
  config.Set("hidden_act", Value("gelu"));
  EXPECT_THAT(Args("llama", config), IsError(ErrorCode::kUnsupported, HasSubstr("hidden_act")));
  config = TinyConfig("qwen2");
  config.Set("use_sliding_window", Value(true));
  config.Set("sliding_window", Value(16));
  config.Set("max_window_layers", Value(2));
  EXPECT_THAT(Args("qwen2", config), IsError(ErrorCode::kUnsupported, HasSubstr("window_size")));
}

TEST(ArgsTest, SlidingWindowOfAllLayers) {
  Value config = TinyConfig("mistral");
  config.Set("sliding_window", Value(4096));
  ASSERT_OK_AND_ASSIGN(const Value args, Args("mistral", config));
  EXPECT_THAT(LoadFlags(args), HasSubstr("--window-size 4095,0"));
}

TEST(ArgsTest, AWindowIsWhatTheFamilysModelUses) {
  Value config = TinyConfig("mistral");
  config.Set("sliding_window", Value(16));
  config.Set("use_sliding_window", Value(false));  // MistralConfig has no such field
  ASSERT_OK_AND_ASSIGN(const Value mistral, Args("mistral", config));
  EXPECT_EQ(*(*mistral.Find("window_size")->as_sequence())[0].as_int(), 15);
  config = TinyConfig("llama");
  config.Set("sliding_window", Value(16));  // nor LlamaConfig this one
  ASSERT_OK_AND_ASSIGN(const Value llama, Args("llama", config));
  EXPECT_TRUE(llama.Find("window_size")->is_null());
}

TEST(ArgsTest, NumbersThatCannotBeMeantAreRefused) {
  const auto refused = [](std::string_view json, std::string_view name) {
    EXPECT_THAT(CheckExpressible(Json(json), Family("llama"), "common.pt"), IsError(ErrorCode::kCorrupt, HasSubstr(std::string(name))));
  };
  refused(R"({"rotary_base": "10000"})", "`rotary_base`");
  refused(R"({"rotary_base": -1})", "`rotary_base`");
  refused(R"({"norm_epsilon": -1e-6})", "`norm_epsilon`");
  refused(R"({"layernorm_epsilon": []})", "`layernorm_epsilon`");
  refused(R"({"rotary_percent": 1.5})", "`rotary_percent`");
}

TEST(ArgsTest, SettingsWithoutRulesAreRefusedByName) {
  const auto refused = [](std::string_view json, std::string_view name) {
    EXPECT_THAT(CheckExpressible(Json(json), Family("llama"), "common.pt"), IsError(ErrorCode::kUnsupported, HasSubstr(std::string(name))));
  };
  refused(R"({"layernorm_zero_centered_gamma": true})", "layernorm_zero_centered_gamma");
  refused(R"({"apply_layernorm_1p": true})", "apply_layernorm_1p");
  refused(R"({"normalization": "LayerNorm"})", "normalization");
  refused(R"({"squared_relu": true})", "squared_relu");
  refused(R"({"add_bias_linear": true})", "add_bias_linear");
  refused(R"({"swiglu": false})", "swiglu");
  refused(R"({"num_experts": 8})", "num_experts");
  refused(R"({"position_embedding_type": "learned_absolute"})", "position_embedding_type");
  EXPECT_THAT(CheckExpressible(TinyArgs(), Family("llama"), "common.pt"), IsOk());
  EXPECT_THAT(CheckExpressible(Json(R"({"num_experts": null, "swiglu": null})"), Family("llama"), "common.pt"), IsOk());
}

TEST(ArgsTest, BridgeNamesAreTranslated) {
  Catalog catalog;
  catalog.objects["run_config.yaml"] = Json(R"({"model": {"_target_": "x.Provider", "num_layers": 3, "num_attention_heads": 4, "num_query_groups": 2,
    "share_embeddings_and_output_weights": false, "gated_linear_unit": true, "rope_scaling": true, "num_moe_experts": null}})");
  const std::optional<StoredArgs> stored = ReadStoredArgs(catalog);
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->origin, "run_config.yaml");
  EXPECT_EQ(stored->args.GetBool("untie_embeddings_and_output_weights"), true);
  EXPECT_EQ(stored->args.GetBool("group_query_attention"), true);
  EXPECT_EQ(stored->args.GetBool("swiglu"), true);
  EXPECT_EQ(stored->args.GetBool("use_rope_scaling"), true);
  EXPECT_EQ(stored->args.Find("_target_"), nullptr);
}

TEST(ArgsTest, ArgumentsAsText) {
  EXPECT_TRUE(ParseArgument("True").Equals(Value(true)));
  EXPECT_TRUE(ParseArgument("None").is_null());
  EXPECT_TRUE(ParseArgument("12").Equals(Value(12)));
  EXPECT_TRUE(ParseArgument("1e-5").Equals(Value(1e-5)));
  EXPECT_TRUE(ParseArgument("cosine").Equals(Value("cosine")));
}

TEST(ArgsTest, EmbeddingsAreTiedUnlessTheArgumentsSayOtherwise) {
  Value args = Value::MakeDict();
  EXPECT_TRUE(TiesEmbeddings(args));
  args.Set("untie_embeddings_and_output_weights", Value(true));
  EXPECT_FALSE(TiesEmbeddings(args));
  args.Set("untie_embeddings_and_output_weights", Value(false));
  EXPECT_TRUE(TiesEmbeddings(args));
}

TEST(ArgsTest, AGatedMlpGoesByMoreThanOneName) {
  Value args = Value::MakeDict();
  EXPECT_TRUE(HasGatedMlp(args));
  args.Set("swiglu", Value(false));
  EXPECT_FALSE(HasGatedMlp(args));
  for (const char* word : {"quick_geglu", "gated_linear_unit"}) {
    Value other = args;
    other.Set(word, Value(true));
    EXPECT_TRUE(HasGatedMlp(other)) << word;
  }
}

}  // namespace
}  // namespace crossdock::dialects::mcore
