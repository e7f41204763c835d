// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/config_source.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<ChosenConfig> Choose(const Catalog& catalog, const ReadOptions& options = {}) {
  const Result<Inventory> inventory = TakeInventory(catalog, false);
  if (!inventory) return inventory.error();
  return ChooseConfig(catalog, options, *inventory);
}

TEST(ConfigSourceTest, ArgumentsAloneAreEnough) {
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(McoreSource("qwen3", TinyArgs())));
  EXPECT_EQ(chosen.family->name, "qwen3");
  EXPECT_EQ(chosen.origin, "common.pt");
  EXPECT_EQ(chosen.model.letters.at("v"), 50);
  ASSERT_FALSE(chosen.notices.empty());
  EXPECT_THAT(chosen.notices.front(), HasSubstr("qwen3 is assumed"));
}

TEST(ConfigSourceTest, ACarriedConfigWinsWhereItAgrees) {
  Catalog catalog = McoreSource("mistral", TinyArgs());
  catalog.objects["hf/config.json"] = TinyConfig("mistral");
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(catalog));
  EXPECT_EQ(chosen.family->name, "mistral");
  EXPECT_EQ(chosen.config.words, "hf");
  EXPECT_TRUE(chosen.notices.empty());
}

TEST(ConfigSourceTest, DisagreementNamesBothValuesAndTheDecidingTensor) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  Value config = TinyConfig("llama");
  config.Set("intermediate_size", Value(32));
  catalog.objects["hf/config.json"] = config;
  EXPECT_THAT(Choose(catalog), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("intermediate_size = 32 in hf/config.json"), HasSubstr("ffn_hidden_size = 24 in common.pt"),
                                                                  HasSubstr("[3, 48, 16]"), HasSubstr("fits common.pt"))));
  config = TinyConfig("llama");
  config.Set("tie_word_embeddings", Value(true));
  catalog.objects["hf/config.json"] = config;
  EXPECT_THAT(Choose(catalog), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("untied"), HasSubstr("output_layer.weight is stored, which fits common.pt"))));
  config = TinyConfig("llama");
  config.Set("rope_theta", Value(500000.0));
  catalog.objects["hf/config.json"] = config;
  EXPECT_THAT(Choose(catalog), IsError(ErrorCode::kCorrupt, HasSubstr("rotary_base")));
}

TEST(ConfigSourceTest, ARunConfigBesideTheArgumentsMustSayTheSame) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  const auto run_config = [&](const char* key, Value value) {
    Value model = Value::MakeDict();
    model.Set("kv_channels", Value());  // null leaves it to a default
    model.Set(key, std::move(value));
    Value whole = Value::MakeDict();
    whole.Set("model", std::move(model));
    catalog.objects["run_config.yaml"] = std::move(whole);
  };
  run_config("num_layers", Value(3));
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(catalog));
  EXPECT_EQ(chosen.origin, "common.pt");
  run_config("num_layers", Value(6));
  EXPECT_THAT(Choose(catalog), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("num_layers = 6 in run_config.yaml"), HasSubstr("num_layers = 3 in common.pt"),
                                                                  HasSubstr("fits common.pt"))));
  run_config("rotary_base", Value(5));
  EXPECT_THAT(Choose(catalog), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("rotary_base"), HasSubstr("5 in run_config.yaml"))));
}

TEST(ConfigSourceTest, ArgumentsAgainstTheTensorsAreRefused) {
  for (const auto& [family, argument, tensor] : {std::tuple{"qwen2", "add_qkv_bias", "linear_qkv.bias"}, {"qwen3", "qk_layernorm", "q_layernorm.weight"}}) {
    Value args = TinyArgs();
    args.Set(argument, Value(true));
    EXPECT_THAT(Choose(McoreSource(family, args)), IsOk()) << family;
    EXPECT_THAT(Choose(McoreSource("llama", args)), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr(std::string(argument) + " = True, but no layer has"), HasSubstr(tensor))));
    args.Set(argument, Value(false));
    EXPECT_THAT(Choose(McoreSource("llama", args)), IsOk());
    EXPECT_THAT(Choose(McoreSource(family, args)), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr(std::string(argument) + " = False, but layers have"), HasSubstr(tensor))));
  }
}

TEST(ConfigSourceTest, SettingsBehindAShapeAreNamed) {
  const Catalog catalog = McoreSource("llama", TinyArgs());
  ASSERT_OK_AND_ASSIGN(const Inventory inventory, TakeInventory(catalog, false));
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, ChooseConfig(catalog, {}, inventory));
  const auto behind = [&](std::vector<std::int64_t> stored) {
    return SettingsBehind(chosen, inventory, "decoder.layers.mlp.linear_fc1.weight", Shape{3, 48, 16}, *Shape::FromSpan(stored));
  };
  EXPECT_EQ(behind({3, 64, 16}), "ffn_hidden_size = 24");
  EXPECT_EQ(behind({6, 48, 16}), "num_layers = 3");
  EXPECT_EQ(behind({3, 48}), "");
}

TEST(ConfigSourceTest, TheTrueVocabulary) {
  Value args = TinyArgs();
  args.Set("vocab_size", Value());
  ASSERT_OK_AND_ASSIGN(const ChosenConfig unknown, Choose(McoreSource("llama", [&] { Value a = args; a.Set("vocab_size", Value(56)); return a; }())));
  EXPECT_EQ(unknown.model.letters.at("v"), 56);
  Catalog catalog = McoreSource("llama", TinyArgs());
  catalog.objects["common"].Set("args", Namespace(args));
  ASSERT_OK_AND_ASSIGN(const ChosenConfig padded, Choose(catalog));
  EXPECT_EQ(padded.model.letters.at("v"), 56);
  EXPECT_THAT(padded.notices.back(), HasSubstr("padding included"));
  ReadOptions options;
  options.template_config = family::ModelConfig{"hf", TinyConfig("llama")};
  ASSERT_OK_AND_ASSIGN(const ChosenConfig told, Choose(catalog, options));
  EXPECT_EQ(told.model.letters.at("v"), 50);
}

TEST(ConfigSourceTest, WithoutArgumentsTheTemplateCounts) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  catalog.objects["common"].Erase("args");
  EXPECT_THAT(Choose(catalog), IsError(ErrorCode::kIncomplete, HasSubstr("--hf-template")));
  ReadOptions options;
  options.template_config = family::ModelConfig{"hf", TinyConfig("llama")};
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(catalog, options));
  EXPECT_EQ(chosen.model.letters.at("layers"), 3);
}

TEST(ConfigSourceTest, AnItemOfTheDataFilesIsAListOfOne) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  catalog.objects["common"] = Value::MakeList({catalog.objects["common"]});
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(catalog));
  EXPECT_EQ(chosen.model.letters.at("h"), 16);
}

}  // namespace
}  // namespace crossdock::dialects::mcore
