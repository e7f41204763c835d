// SPDX-License-Identifier: Apache-2.0
#include "family/formula.h"

#include <cmath>

#include "result_matchers.h"

namespace crossdock::family {
namespace {

using ::testing::HasSubstr;

const std::map<std::string, std::int64_t> kLetters = {{"h", 16}, {"q", 4}, {"k", 2}, {"d", 4}};

std::int64_t Int(std::string_view text) {
  const Result<std::int64_t> value = EvaluateInteger(text, kLetters);
  return value ? *value : -999;
}

TEST(FormulaTest, IntegersFollowPrecedence) {
  EXPECT_EQ(Int("q*d"), 16);
  EXPECT_EQ(Int("q + 2*k"), 8);
  EXPECT_EQ(Int("(q + 2*k) * d"), 32);
  EXPECT_EQ(Int("h/q - 1"), 3);
  EXPECT_EQ(Int("h/q/k"), 2);
  EXPECT_EQ(Int("-k + 5"), 3);
}

TEST(FormulaTest, DivisionIsExactOrRefused) {
  EXPECT_THAT(EvaluateInteger("h/3", kLetters), IsError(ErrorCode::kUsage, HasSubstr("divides 16 by 3")));
  EXPECT_THAT(EvaluateInteger("h/(q-4)", kLetters), IsError(ErrorCode::kUsage, HasSubstr("by 0")));
}

TEST(FormulaTest, OverflowIsAnError) {
  EXPECT_FALSE(EvaluateInteger("9223372036854775807*2", kLetters).has_value());
  EXPECT_FALSE(EvaluateInteger("99999999999999999999", kLetters).has_value());
}

TEST(FormulaTest, UnknownNamesAreErrors) {
  EXPECT_THAT(EvaluateInteger("z*2", kLetters), IsError(ErrorCode::kUsage, HasSubstr("names z")));
  EXPECT_THAT(ParseFormula("cos(h)"), IsError(ErrorCode::kUsage, HasSubstr("cos")));
}

TEST(FormulaTest, BrokenTextIsAnError) {
  for (const char* text : {"", "h +", "(h", "h)", "h $ 2", "'open", "!", "h h", "*2"}) {
    EXPECT_FALSE(ParseFormula(text).has_value()) << text;
  }
  EXPECT_FALSE(ParseFormula(std::string(10000, '(')).has_value());
  EXPECT_FALSE(ParseFormula(std::string(10000, '!') + "h").has_value());
}

TEST(FormulaTest, RealsHaveSquareRoots) {
  // sqrt(2304) is 48 exactly; sqrt(3840) is 61.967..., whose neighbours in bfloat16 are 61.75 and 62.
  ASSERT_OK_AND_ASSIGN(const double exact, EvaluateReal("bf16(sqrt(2304))", kLetters));
  EXPECT_EQ(exact, 48.0);
  ASSERT_OK_AND_ASSIGN(const double rounded, EvaluateReal("bf16(sqrt(3840))", kLetters));
  EXPECT_EQ(rounded, 62.0);
  ASSERT_OK_AND_ASSIGN(const double value, EvaluateReal("1/sqrt(d)", kLetters));
  EXPECT_DOUBLE_EQ(value, 0.5);
  EXPECT_FALSE(EvaluateReal("1/(d-4)", kLetters).has_value());
  EXPECT_FALSE(EvaluateReal("'d'", kLetters).has_value());
}

TEST(FormulaTest, Conditions) {
  ASSERT_OK_AND_ASSIGN(const Value config, ParseJson(R"({"tie": false, "n": 3, "none": null, "rope": {"type": "llama3"}, "s": ""})"));
  const auto holds = [&](std::string_view text) {
    const Result<bool> value = EvaluateCondition(text, config);
    EXPECT_TRUE(value.has_value()) << text;
    return value.has_value() && *value;
  };
  EXPECT_TRUE(holds("!tie"));
  EXPECT_TRUE(holds("!absent"));
  EXPECT_TRUE(holds("!none"));
  EXPECT_TRUE(holds("n"));
  EXPECT_FALSE(holds("s"));
  EXPECT_TRUE(holds("rope.type == 'llama3'"));
  EXPECT_TRUE(holds("absent == 'x' || rope.type == 'llama3' && n == 3"));
  EXPECT_FALSE(holds("absent == absent"));
  EXPECT_TRUE(holds("n > 2 && n < 4"));
  EXPECT_TRUE(holds("n != 2"));
  EXPECT_TRUE(holds("n - 3 == 0"));
  EXPECT_FALSE(holds("absent + 1"));
  EXPECT_TRUE(holds("n <= 3 && n >= 3 && !(n < 3)"));
  EXPECT_FALSE(EvaluateCondition("sqrt(n)", config).has_value());
}

TEST(FormulaTest, ConditionsLayerByLayer) {
  ASSERT_OK_AND_ASSIGN(const Value config, ParseJson(R"({"step": 2, "dense": [1, 5], "kinds": ["full", "linear"], "zero": 0})"));
  const auto layers = [&](std::string_view text) {
    std::string holding;
    for (std::int64_t l = 0; l < 6; ++l) {
      const Result<bool> value = EvaluateCondition(text, config, {{"l", l}});
      EXPECT_TRUE(value.has_value()) << text;
      if (value && *value) holding += std::to_string(l);
    }
    return holding;
  };
  EXPECT_EQ(layers("(l + 1) % step == 0"), "135");
  EXPECT_EQ(layers("!(l in dense)"), "0234");
  EXPECT_EQ(layers("kinds[l] == 'linear'"), "1");
  EXPECT_EQ(layers("kinds[l - 1] == 'linear'"), "2");
  EXPECT_EQ(layers("l >= 4 && l in dense"), "5");
  EXPECT_EQ(layers("l % zero == 0"), "");
  EXPECT_EQ(layers("index || inner"), "");   // names that begin as the operator
}

}  // namespace
}  // namespace crossdock::family
