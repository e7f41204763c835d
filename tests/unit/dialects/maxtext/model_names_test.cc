// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/model_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "family/family_file.h"

namespace crossdock::dialects::maxtext {
namespace {

TEST(ModelNamesTest, EveryFamilyIsBuiltIn) {
  for (const ModelName& one : ModelNames()) {
    EXPECT_TRUE(std::ranges::any_of(family::BuiltinFamilies(), [&](const family::FamilyFile& file) { return file.name == one.family; })) << one.name;
  }
}

TEST(ModelNamesTest, ANameIsOfOneFamily) {
  EXPECT_EQ(std::ranges::adjacent_find(ModelNames(), std::ranges::equal_to(), &ModelName::name), ModelNames().end());
  EXPECT_EQ(FamilyOfModelName("llama3.1-8b"), "llama");
  EXPECT_EQ(FamilyOfModelName("qwen3-30b-a3b"), "qwen3_moe");
  EXPECT_EQ(FamilyOfModelName("qwen3-8b"), "qwen3");
  EXPECT_EQ(FamilyOfModelName("deepseek2-16b"), "deepseek_v2");
  EXPECT_EQ(FamilyOfModelName("llama9-8b"), "");
}

TEST(ModelNamesTest, RelativesHaveTheSameLetters) {
  EXPECT_THAT(RelatedModelNames("mixtral-9x9b"), ::testing::ElementsAre("mixtral-8x22b", "mixtral-8x7b"));
  EXPECT_THAT(RelatedModelNames("9b"), ::testing::IsEmpty());
  EXPECT_THAT(RelatedModelNames("falcon-7b"), ::testing::IsEmpty());
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
