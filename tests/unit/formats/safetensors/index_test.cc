// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/index.h"

#include <gtest/gtest.h>

#include "result_matchers.h"

namespace crossdock::formats::safetensors {
namespace {

using ::testing::ElementsAre;

TEST(SafetensorsIndex, NumbersFilesByValue) {
  ASSERT_OK_AND_ASSIGN(const Index index, ParseIndex(R"({"weight_map":{"a":"s-10.st","b":"s-9.st","c":"s-10.st"}})", "i"));
  EXPECT_THAT(index.files, ElementsAre("s-9.st", "s-10.st"));
  ASSERT_EQ(index.items.size(), 3U);
  EXPECT_EQ(index.items[0].file, 1);
  EXPECT_EQ(index.items[1].file, 0);
  EXPECT_EQ(index.items[2].file, 1);
}

TEST(SafetensorsIndex, ReadsTotalSizeAsNumberOnly) {
  const auto size = [](const std::string& metadata) {
    const auto index = ParseIndex("{\"metadata\":" + metadata + R"(,"weight_map":{"a":"s"}})", "i");
    EXPECT_THAT(index, IsOk());
    return index ? index->total_size : std::nullopt;
  };
  EXPECT_EQ(size(R"({"total_size":12})"), 12);
  EXPECT_EQ(size(R"({"total_size":12.0})"), 12);
  EXPECT_EQ(size(R"({"total_size":"12"})"), std::nullopt);
  EXPECT_EQ(size(R"({"total_size":-1})"), std::nullopt);
  EXPECT_EQ(size("{}"), std::nullopt);
  EXPECT_EQ(size("null"), std::nullopt);
}

TEST(SafetensorsIndex, KeepsTheOrderOfTheDocument) {
  ASSERT_OK_AND_ASSIGN(const Index index, ParseIndex(R"({"x":[1,{}],"weight_map":{"b":"s","a":"s"},"y":null})", "i"));
  EXPECT_EQ(index.items[0].name, "b");
  EXPECT_EQ(index.items[1].name, "a");
}

TEST(NaturalLess, ComparesRunsOfDigitsByValue) {
  EXPECT_TRUE(NaturalLess("m-2", "m-10"));
  EXPECT_FALSE(NaturalLess("m-10", "m-2"));
  EXPECT_TRUE(NaturalLess("m-002", "m-10"));
  EXPECT_TRUE(NaturalLess("a", "b"));
  EXPECT_TRUE(NaturalLess("m", "m1"));
  EXPECT_FALSE(NaturalLess("m1", "m1"));
  EXPECT_NE(NaturalLess("m01", "m1"), NaturalLess("m1", "m01"));
}

TEST(IndexText, IsPythonsJson) {
  EXPECT_EQ(IndexHead(3, 6) + IndexLine("a\"\\\n\x7f\xc3\xa9\xf0\x9d\x84\x9e", "f", true) + IndexTail(),
            "{\n  \"metadata\": {\n    \"total_parameters\": 3,\n    \"total_size\": 6\n  },\n  \"weight_map\": {\n"
            "    \"a\\\"\\\\\\n\\u007f\\u00e9\\ud834\\udd1e\": \"f\"\n  }\n}\n");
}

}  // namespace
}  // namespace crossdock::formats::safetensors
