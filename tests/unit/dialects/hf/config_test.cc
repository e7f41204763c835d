// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/config.h"

#include "dialects/hf/rope.h"
#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::HasSubstr;

HubState TinyHub() {
  auto hub = ReadHub(TinyModel(), {});
  if (!hub) std::abort();
  return *std::move(hub);
}

/// Arguments of the tiny model as Megatron stores them.
Value TinyArgs() {
  return Json(R"({"vocab_size": 10, "hidden_size": 8, "ffn_hidden_size": 12, "num_attention_heads": 4, "num_query_groups": 2,
                  "group_query_attention": true, "kv_channels": 4, "num_layers": 2, "untie_embeddings_and_output_weights": true,
                  "normalization": "RMSNorm", "swiglu": true, "add_bias_linear": false, "rotary_base": 1000000,
                  "position_embedding_type": "rope", "layernorm_epsilon": 1e-06, "max_position_embeddings": 64})");
}

HubState MegatronHub(Value args) {
  HubState hub = TinyHub();
  hub.config = {"mcore", std::move(args)};
  return hub;
}

std::vector<std::string> Keys(const Value& dict) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : dict.as_dict()->items) keys.push_back(*key.as_string());
  return keys;
}

std::vector<std::string> Changed(const ConfigResult& result) {
  std::vector<std::string> keys;
  for (const ConfigChange& change : result.changes) keys.push_back(change.key);
  return keys;
}

TEST(MakeConfig, KeepsEverythingWhenNothingDiffers) {
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, MakeConfig(TinyHub(), std::nullopt, DType::kBF16));
  EXPECT_THAT(result.changes, ::testing::IsEmpty());
  Value expected = TinyConfig();
  expected.Set("torch_dtype", Value("bfloat16"));
  EXPECT_TRUE(result.config.Equals(expected));
  EXPECT_EQ(Keys(result.config)[2], "torch_dtype");  // right behind dtype, the order of the rest is kept
}

TEST(MakeConfig, FollowsTheDTypeOfTheWeights) {  // user case B40
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, MakeConfig(TinyHub(), std::nullopt, DType::kF32));
  EXPECT_EQ(result.config.GetString("dtype"), "float32");
  EXPECT_EQ(result.config.GetString("torch_dtype"), "float32");
  ASSERT_EQ(result.changes.size(), 1U);
  EXPECT_EQ(result.changes[0].before, "\"bfloat16\"");
}

TEST(MakeConfig, CheckpointOverrulesTheTemplate) {  // user cases B45, B117
  family::ModelConfig reference{"hf", TinyConfig()};
  reference.values.Set("num_hidden_layers", Value(36));
  reference.values.Set("layer_types", Value::MakeList(ValueList(36, Value("full_attention"))));
  reference.values.Set("hidden_size", Value(4096));
  reference.values.Set("rope_parameters", Json(R"({"rope_theta": 10000.0, "rope_type": "default"})"));
  reference.values.Set("rms_norm_eps", Value(1e-5));
  reference.values.Set("max_position_embeddings", Value(128));
  reference.values.Set("only_here", Value("kept"));
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, MakeConfig(TinyHub(), reference, DType::kBF16));
  EXPECT_EQ(result.config.GetInt("num_hidden_layers"), 2);
  EXPECT_EQ(result.config.Find("layer_types")->as_sequence()->size(), 2U);
  EXPECT_EQ(result.config.GetFloat("rope_parameters.rope_theta"), 1e6);
  EXPECT_EQ(result.config.Find("rope_theta"), nullptr);  // the template's spelling is kept
  EXPECT_EQ(result.config.GetString("only_here"), "kept");
  EXPECT_THAT(Changed(result), ::testing::ElementsAre("hidden_size", "num_hidden_layers", "layer_types", "rope_parameters",
                                                      "rms_norm_eps", "max_position_embeddings"));
}

TEST(MakeConfig, RebuildsFromMegatronsArguments) {
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, MakeConfig(MegatronHub(TinyArgs()), std::nullopt, DType::kBF16));
  const Value& config = result.config;
  EXPECT_EQ(config.GetString("model_type"), "qwen3");
  EXPECT_EQ((*config.Find("architectures")->as_sequence())[0].as_string()->c_str(), std::string("Qwen3ForCausalLM"));
  EXPECT_EQ(config.GetInt("num_key_value_heads"), 2);
  EXPECT_EQ(config.GetInt("head_dim"), 4);
  EXPECT_EQ(config.GetFloat("rope_theta"), 1e6);
  EXPECT_EQ(config.GetFloat("rope_parameters.rope_theta"), 1e6);
  EXPECT_EQ(config.GetString("rope_parameters.rope_type"), "default");
  EXPECT_EQ(config.GetBool("tie_word_embeddings"), false);
  EXPECT_EQ(config.GetFloat("rms_norm_eps"), 1e-6);
  EXPECT_EQ(config.GetString("torch_dtype"), "bfloat16");
  EXPECT_THAT(result.changes, ::testing::IsEmpty());
}

TEST(MakeConfig, ArgumentsAgreeWithTheirTemplate) {
  ASSERT_OK_AND_ASSIGN(const ConfigResult result,
                       MakeConfig(MegatronHub(TinyArgs()), family::ModelConfig{"hf", TinyConfig()}, DType::kBF16));
  EXPECT_THAT(Changed(result), ::testing::ElementsAre("hidden_act"));  // the tiny template does not say it
}

TEST(MakeConfig, CarriesLlama3Scaling) {
  Value args = TinyArgs();
  args.Set("use_rope_scaling", Value(true));
  args.Set("rope_scaling_factor", Value(32.0));
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, MakeConfig(MegatronHub(std::move(args)), std::nullopt, DType::kBF16));
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    EXPECT_EQ(result.config.GetString(std::string(key) + ".rope_type"), "llama3");
    EXPECT_EQ(result.config.GetFloat(std::string(key) + ".factor"), 32.0);
    EXPECT_EQ(result.config.GetInt(std::string(key) + ".original_max_position_embeddings"), 8192);
  }
}

TEST(MakeConfig, AWindowOfMegatronCountsTheTokenItselfToo) {
  Value args = TinyArgs();
  args.Set("window_size", Value::MakeTuple({Value(15), Value(0)}));
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, MakeConfig(MegatronHub(args), std::nullopt, DType::kBF16));
  EXPECT_EQ(result.config.GetInt("sliding_window"), 16);
  EXPECT_EQ(result.config.GetBool("use_sliding_window"), true);
  EXPECT_EQ(result.config.GetInt("max_window_layers"), 0);
  // The checkpoint's window wins over a template that says none, on every layer.
  ASSERT_OK_AND_ASSIGN(const ConfigResult patched, MakeConfig(MegatronHub(args), family::ModelConfig{"hf", TinyConfig()}, DType::kBF16));
  EXPECT_EQ(patched.config.GetInt("sliding_window"), 16);
  EXPECT_EQ(patched.config.GetBool("use_sliding_window"), true);
  EXPECT_EQ(ToJson(*patched.config.Find("layer_types"), 0), R"(["sliding_attention", "sliding_attention"])");
  EXPECT_THAT(Changed(patched), ::testing::IsSupersetOf({"sliding_window", "layer_types"}));
  args.Set("window_attn_skip_freq", Value(6));
  EXPECT_THAT(MakeConfig(MegatronHub(args), std::nullopt, DType::kBF16), IsError(ErrorCode::kUnsupported, HasSubstr("window_attn_skip_freq")));
}

struct RefusedArg {
  const char* name;
  Value value;
};
void PrintTo(const RefusedArg& c, std::ostream* out) { *out << c.name; }
class RefusedArgument : public ::testing::TestWithParam<RefusedArg> {};
TEST_P(RefusedArgument, IsNamed) {
  Value args = TinyArgs();
  args.Set(GetParam().name, GetParam().value);
  EXPECT_THAT(MakeConfig(MegatronHub(std::move(args)), std::nullopt, DType::kBF16),
              IsError(ErrorCode::kUnsupported, HasSubstr(GetParam().name)));
}
INSTANTIATE_TEST_SUITE_P(All, RefusedArgument,
                         ::testing::Values(RefusedArg{"rotary_interleaved", Value(true)}, RefusedArg{"normalization", Value("LayerNorm")},
                                           RefusedArg{"position_embedding_type", Value("yarn")}, RefusedArg{"swiglu", Value(false)},
                                           RefusedArg{"window_size", Value::MakeTuple({Value(15), Value(1)})},
                                           RefusedArg{"rotary_percent", Value(0.5)}, RefusedArg{"apply_layernorm_1p", Value(true)}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(MakeConfig, UnknownScalingThatDiffersIsRefused) {  // user case B117
  family::ModelConfig reference{"hf", TinyConfig()};
  reference.values.Set("rope_parameters", Json(R"({"rope_theta": 1000000.0, "rope_type": "spiral", "factor": 2})"));
  EXPECT_THAT(MakeConfig(TinyHub(), reference, DType::kBF16), IsError(ErrorCode::kUnsupported, HasSubstr("spiral")));
  HubState own = TinyHub();
  own.config.values.Set("rope_parameters", Json(R"({"rope_theta": 1000000.0, "rope_type": "spiral", "factor": 2.0})"));
  EXPECT_THAT(MakeConfig(own, reference, DType::kBF16), IsOk());  // equal: copied, whatever it means
}

TEST(Rope, BothSpellingsSayTheSame) {
  const Rope old_words = ReadRope(Json(R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4}})"));
  const Rope new_words = ReadRope(Json(R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}})"));
  EXPECT_EQ(old_words.theta, new_words.theta);
  EXPECT_TRUE(old_words.SameScaling(new_words));
  EXPECT_FALSE(old_words.SameScaling(ReadRope(Json("{}"))));
}

}  // namespace
}  // namespace crossdock::dialects::hf
