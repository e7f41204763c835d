// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/config_source.h"

#include "maxtext_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::maxtext {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Result<ChosenConfig> Choose(const Catalog& source, const ReadOptions& options) {
  const Result<Inventory> inventory = TakeInventory(source, true);
  return ChooseConfig(source, options, *inventory);
}

TEST(MaxTextConfigSource, WhatTravelsAlongComesBeforeTheTemplate) {
  const Value golden = Golden("qwen3_scanned_adamw_nnx");
  Catalog source = Source(golden);
  source.objects["hf/config.json"] = HfConfig(golden);
  ReadOptions options = With(HfConfig(Golden("llama_scanned_adamw_nnx")));
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(source, options));
  EXPECT_EQ(chosen.origin, "hf/config.json");
  EXPECT_EQ(chosen.family->name, "qwen3");
}

TEST(MaxTextConfigSource, TellsTheFamilyWhereNamesDo) {
  for (const char* family : {"qwen2", "qwen3", "qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v3", "llama4"}) {
    ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(Source(Golden(std::string(family) + "_unscanned_adamw_nnx")), {}));
    EXPECT_EQ(chosen.family->name, family);
    EXPECT_EQ(chosen.config.words, "maxtext");
  }
}

/// What config.json's silence means is no word of MaxText's: nothing here tells how many key heads a delta net has.
TEST(MaxTextConfigSource, DeltaNetsAreTakenForNoFamilyAndNoSize) {
  EXPECT_THAT(Choose(Source(Golden("qwen3_next_unscanned_adamw_nnx")), {}), IsError(ErrorCode::kIncomplete, HasSubstr("qwen3_next or qwen3_5_moe")));
  const Catalog source = Source(Golden("qwen3_next_scanned_adamw_nnx"));
  ReadOptions options;
  EXPECT_THAT(Choose(source, options), IsError(ErrorCode::kIncomplete, HasSubstr("--set gdn_key_head_dim=VALUE")));
  options.set_args["gdn_key_head_dim"] = "12";
  EXPECT_THAT(Choose(source, options), IsError(ErrorCode::kIncomplete, HasSubstr("--set gdn_num_key_heads=VALUE")));
  options.set_args["gdn_num_key_heads"] = "2";
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(source, options));
  EXPECT_EQ(chosen.family->name, "qwen3_next");
}

TEST(MaxTextConfigSource, SettingsAnswerWhatShapesDoNot) {
  ReadOptions options;
  options.family = &Family("llama");
  const Catalog source = Source(Golden("llama_unscanned_adamw_nnx"));
  for (const char* type : {"default", "llama3.1"}) {
    options.set_args["rope_type"] = type;
    ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(source, options));
    const bool pairs = std::find(chosen.model.conditions.begin(), chosen.model.conditions.end(), "pairs") != chosen.model.conditions.end();
    EXPECT_EQ(pairs, std::string_view(type) == "llama3.1");
  }
}

TEST(MaxTextConfigSource, PredictionLayersThatMaxTextLacksAreSaid) {
  const Value golden = Golden("deepseek_v3_scanned_adamw_nnx");
  Value config = HfConfig(golden);
  config.Set("num_nextn_predict_layers", Value(1));
  ASSERT_OK_AND_ASSIGN(const ChosenConfig chosen, Choose(Source(golden), With(config)));
  EXPECT_EQ(chosen.model.letters.at("mtp"), 0);
  EXPECT_THAT(chosen.notices, Contains(HasSubstr("num_nextn_predict_layers")));
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
