// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "result_matchers.h"
#include "tensor/value.h"

namespace crossdock {
namespace {

using ::testing::HasSubstr;

TEST(ParseJson, KeepsTheOrderOfKeysAndPrintsThemBack) {
  ASSERT_OK_AND_ASSIGN(const Value v, ParseJson(R"({"b": [1, 2.5, "x"], "a": {"c": null, "d": true}})"));
  EXPECT_EQ(ToJson(v, 0), R"({"b": [1, 2.5, "x"], "a": {"c": null, "d": true}})");
  EXPECT_EQ(v.GetBool("a.d"), true);
  EXPECT_EQ(v.GetInt("a.c"), std::nullopt);
}

TEST(ParseJson, RefusesDuplicateKeysByName) {
  EXPECT_THAT(ParseJson(R"({"x": 1, "x": 2})"), IsError(ErrorCode::kCorrupt, HasSubstr("duplicate key `x`")));
}

TEST(ParseJson, ReadsPythonsFloatsOnlyOutsideStrings) {
  ASSERT_OK_AND_ASSIGN(const Value v, ParseJson(R"({"a": NaN, "b": -Infinity, "c": "NaN Infinity"})"));
  EXPECT_TRUE(std::isnan(*v.GetFloat("a")));
  EXPECT_EQ(v.GetFloat("b"), -HUGE_VAL);
  EXPECT_EQ(v.GetString("c"), "NaN Infinity");
  EXPECT_THAT(ParseJson("NaN", false), IsError(ErrorCode::kCorrupt, HasSubstr("invalid JSON")));
}

TEST(ParseJson, RefusesTrailingTextAndDeepNesting) {
  EXPECT_THAT(ParseJson("{} x"), IsError(ErrorCode::kCorrupt, HasSubstr("invalid JSON")));
  EXPECT_THAT(ParseJson(std::string(10000, '[')), IsError(ErrorCode::kUnsupported, HasSubstr("nested")));
}

TEST(ToJson, PrintsFloatsAsPythonDoes) {
  EXPECT_EQ(ToJson(Value(1e-6), 0), "1e-06");
  EXPECT_EQ(ToJson(Value(500000.0), 0), "500000.0");
  EXPECT_EQ(ToJson(Value(0.1), 0), "0.1");
}

}  // namespace
}  // namespace crossdock
