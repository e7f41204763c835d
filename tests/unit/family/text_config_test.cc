// SPDX-License-Identifier: Apache-2.0
#include "family/text_config.h"

#include "family/model.h"
#include "result_matchers.h"

namespace crossdock::family {
namespace {

FamilyFile Part() {
  FamilyFile family;
  family.text_config = {"text_config", "llm_config"};
  return family;
}

TEST(TextConfigTest, LiesOverTheTopButForTheTie) {
  ASSERT_OK_AND_ASSIGN(const Value values, ParseJson(R"({"hidden_size": 1, "vocab_size": 5, "tie_word_embeddings": false, "text_config": {"hidden_size": 2, "tie_word_embeddings": true}})"));
  const ModelConfig text = TextConfig(Part(), {"hf", values});
  EXPECT_EQ(text.values.GetInt("hidden_size"), 2);
  EXPECT_EQ(text.values.GetInt("vocab_size"), 5);
  EXPECT_EQ(text.values.GetBool("tie_word_embeddings"), false);
  ASSERT_OK_AND_ASSIGN(const Value other, ParseJson(R"({"llm_config": {"hidden_size": 3}})"));
  EXPECT_EQ(TextConfig(Part(), {"hf", other}).values.GetInt("hidden_size"), 3);
  EXPECT_EQ(TextConfig({}, {"hf", values}).values.GetInt("hidden_size"), 1);
  EXPECT_EQ(TextConfig(Part(), {"mcore", values}).values.GetInt("hidden_size"), 1);
}

TEST(TextConfigTest, TheTieIsThePartsWhereTheTopIsSilent) {
  ASSERT_OK_AND_ASSIGN(const Value values, ParseJson(R"({"text_config": {"tie_word_embeddings": true}})"));
  EXPECT_EQ(TextConfig(Part(), {"hf", values}).values.GetBool("tie_word_embeddings"), true);
}

TEST(TextConfigTest, ListsCanBeCounted) {
  FamilyFile family;
  family.letters["deep"].paths["hf"] = {"len(vision.indexes)"};
  ASSERT_OK_AND_ASSIGN(const Value two, ParseJson(R"({"vision": {"indexes": [4, 9]}})"));
  ASSERT_OK_AND_ASSIGN(const Letters letters, EvaluateLetters(family, {"hf", two}));
  EXPECT_EQ(letters.at("deep"), 2);
  ASSERT_OK_AND_ASSIGN(const Value number, ParseJson(R"({"vision": {"indexes": 4}})"));
  EXPECT_THAT(EvaluateLetters(family, {"hf", number}), IsError(ErrorCode::kCorrupt, ::testing::HasSubstr("deep")));
}

}  // namespace
}  // namespace crossdock::family
