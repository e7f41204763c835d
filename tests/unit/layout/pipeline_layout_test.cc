// SPDX-License-Identifier: Apache-2.0
#include "layout/pipeline_layout.h"

#include <gtest/gtest.h>

#include <array>

#include "result_matchers.h"

namespace crossdock::layout {
namespace {

using ::testing::HasSubstr;

TEST(PipelineLayoutTest, UnrollsRepetitions) {
  ASSERT_OK_AND_ASSIGN(const auto cells, ParsePipelineLayout("Et*3|(tt|)*2,m|L"));
  EXPECT_EQ(cells, (std::vector<std::string>{"Ettt", "tt", "tt", "m", "L"}));
}

TEST(PipelineLayoutTest, CellsMayBeEmpty) {
  ASSERT_OK_AND_ASSIGN(const auto cells, ParsePipelineLayout("E||t*0|L"));
  EXPECT_EQ(cells, (std::vector<std::string>{"E", "", "", "L"}));
}

TEST(PipelineLayoutTest, RefusesOtherLettersByTheirCell) {
  EXPECT_THAT(ParsePipelineLayout("Ett|tXtL"), IsError(ErrorCode::kUsage, HasSubstr("`X` in cell 1")));
  EXPECT_THAT(ParsePipelineLayout("E((t|)*2)*2L"), IsError(ErrorCode::kUsage, HasSubstr("`(` in cell 0")));
}

TEST(PipelineLayoutTest, RefusesRepetitionsBeyondAnyModel) {
  for (const char* text : {"Et*99999999999999999999L", "E(t*1000|)*1000000L", "E(((t*1000)*1000)*1000)*1000L", "(|)*1048577"}) {
    EXPECT_THAT(ParsePipelineLayout(text), IsError(ErrorCode::kUsage, HasSubstr("cannot be read"))) << text;
  }
}

TEST(PipelineLayoutTest, WritesWhatItReads) {
  const std::array<std::int64_t, 4> layers = {3, 0, 1, 2};
  const std::string text = PipelineLayoutString(layers);
  EXPECT_EQ(text, "Et*3||t|t*2L");
  ASSERT_OK_AND_ASSIGN(const auto cells, ParsePipelineLayout(text));
  EXPECT_EQ(cells, (std::vector<std::string>{"Ettt", "", "t", "ttL"}));
}

}  // namespace
}  // namespace crossdock::layout
