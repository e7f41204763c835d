// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/step_words.h"

#include <gtest/gtest.h>

#include "unit/dialects/samples.h"

namespace crossdock::dialects::maxtext {
namespace {

TEST(StepWords, TheRecordOfLevelsAloneIsTakenOut) {
  const auto without = [](const char* metadata) { return ToJson(WithoutLevels(Json(metadata)), 0); };
  const auto same = [](const char* metadata) { return ToJson(Json(metadata), 0); };
  EXPECT_EQ(without(R"({"a": 1, "crossdock": {"tunix_levels": {"adapter": "base"}}})"), same(R"({"a": 1})"));
  EXPECT_EQ(without(R"({"crossdock": {"tunix_levels": {}, "family": "llama"}})"), same(R"({"crossdock": {"family": "llama"}})"));
  for (const char* odd : {R"({"crossdock": 3})", R"({"crossdock": [1]})", R"({"crossdock": null})", R"({"a": 1})", "3"}) EXPECT_EQ(without(odd), same(odd));
}

TEST(StepWords, OurWordsAreADictionaryOrNone) {
  EXPECT_EQ(OwnWords(Json(R"({"crossdock": {"family": "llama"}})")).GetString("family"), "llama");
  for (const char* odd : {R"({"crossdock": 3})", R"({"crossdock": "x"})", "{}", "3"}) {
    ASSERT_NE(OwnWords(Json(odd)).as_dict(), nullptr) << odd;
    EXPECT_TRUE(OwnWords(Json(odd)).as_dict()->items.empty()) << odd;
  }
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
