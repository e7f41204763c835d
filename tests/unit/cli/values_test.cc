// SPDX-License-Identifier: Apache-2.0
#include "cli/values.h"

#include "result_matchers.h"

namespace crossdock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;

TEST(Values, ReadsSizes) {
  struct Case {
    std::string_view text;
    std::int64_t bytes;
  };
  for (const Case& c : {Case{"512MiB", 512 << 20}, Case{"5GB", 5'000'000'000}, Case{"1.5GiB", 3 << 29}, Case{"64M", 64 << 20},
                        Case{"60KB", 60'000}, Case{"123", 123}, Case{"2 gib", std::int64_t{2} << 30}, Case{"7b", 7}}) {
    ASSERT_OK_AND_ASSIGN(const std::int64_t bytes, ParseSize("memory", c.text));
    EXPECT_EQ(bytes, c.bytes) << c.text;
  }
}

TEST(Values, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-5GB", "5XB", "1.2.3GB", "0", "1e99GB", "99999999TB", "5GB "}) {
    EXPECT_THAT(ParseSize("memory", text), IsError(ErrorCode::kUsage, HasSubstr("`--memory` takes a size"))) << text;
  }
  EXPECT_THAT(ParseSize("memory", "5XB"), IsError(ErrorCode::kUsage, StrEq(
      "`--memory` takes a size such as 512MiB, 5GB or a number of bytes; found `5XB`")));
}

TEST(Values, ReadsWholeNumbersWithinBounds) {
  ASSERT_OK_AND_ASSIGN(const std::int64_t eight, ParseInt("tp", "8", 1));
  EXPECT_EQ(eight, 8);
  EXPECT_THAT(ParseInt("tp", "0", 1), IsError(ErrorCode::kUsage, StrEq("`--tp` takes a whole number of at least 1; found `0`")));
  for (const char* text : {"", "2x", " 2", "99999999999999999999", "1.0", "+1"}) {
    EXPECT_THAT(ParseInt("tp", text, 1), IsError(ErrorCode::kUsage, HasSubstr("--tp"))) << text;
  }
}

TEST(Values, ReadsStepsAndTheRelease) {
  ASSERT_OK_AND_ASSIGN(const StepChoice number, ParseStep("step", "20"));
  EXPECT_EQ(number, (StepChoice{20, false}));
  ASSERT_OK_AND_ASSIGN(const StepChoice release, ParseStep("step", "release"));
  EXPECT_EQ(release, (StepChoice{0, true}));
  EXPECT_EQ(StepWord(release), "release");
  for (const char* text : {"", "latest", "-1", "iter_20"}) {
    EXPECT_THAT(ParseStep("step", text), IsError(ErrorCode::kUsage, HasSubstr("`--step` takes a step's number, or `release`"))) << text;
  }
}

TEST(Values, ReadsDTypesInAnySpelling) {
  for (const char* text : {"bf16", "bfloat16", "torch.bfloat16", "BF16"}) {
    ASSERT_OK_AND_ASSIGN(const std::string dtype, ParseDType("dtype", text));
    EXPECT_EQ(dtype, "bf16");
  }
  EXPECT_THAT(ParseDType("dtype", "int8"), IsError(ErrorCode::kUsage, StrEq("`--dtype` takes bf16, fp16 or fp32; found `int8`")));
}

TEST(Values, ReadsCompressions) {
  for (const auto& [text, level] : {std::pair{"none", 0}, {"zstd", 1}, {"zstd:1", 1}, {"zstd:22", 22}}) {
    ASSERT_OK_AND_ASSIGN(const int found, ParseCompression("compression", text));
    EXPECT_EQ(found, level);
  }
  for (const char* text : {"", "gzip", "zstd:", "zstd:0", "zstd:23", "zstd:-1", "zstd:3x", "3"}) {
    EXPECT_THAT(ParseCompression("compression", text), IsError(ErrorCode::kUsage, HasSubstr("`--compression` takes none, zstd or zstd:LEVEL"))) << text;
  }
}

TEST(Values, ReadsListsPairsAndChoices) {
  ASSERT_OK_AND_ASSIGN(const auto list, ParseList("pipeline-layers", "10,11,11"));
  EXPECT_THAT(list, ElementsAre(10, 11, 11));
  EXPECT_THAT(ParseList("pipeline-layers", "10,,11"), IsError(ErrorCode::kUsage, HasSubstr("`10,,11`")));
  ASSERT_OK_AND_ASSIGN(const auto pair, ParsePair("set", "a=b=c"));
  EXPECT_EQ(pair, std::pair(std::string("a"), std::string("b=c")));
  EXPECT_THAT(ParsePair("set", "lr"), IsError(ErrorCode::kUsage, StrEq("`--set` takes ARG=VALUE, such as lr=1e-4; found `lr`")));
  EXPECT_THAT(ParseChoice("exact", "clse", "bit close"), IsError(ErrorCode::kUsage, HasSubstr("did you mean `close`?")));
  EXPECT_THAT(ParseChoice("exact", "fuzzy", "bit close"),
              IsError(ErrorCode::kUsage, StrEq("`--exact` takes one of: bit, close; found `fuzzy`")));
}

}  // namespace
}  // namespace crossdock::cli
