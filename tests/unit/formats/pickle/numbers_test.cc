// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/numbers.h"

#include "result_matchers.h"

namespace crossdock::formats::pickle {
namespace {

using ::testing::HasSubstr;

TEST(PickleNumbers, Int64BytesRoundTripAtTheEdgesOfEachWidth) {
  for (int bit = 0; bit < 63; ++bit) {
    for (std::int64_t delta : {-1, 0, 1}) {
      for (std::int64_t sign : {-1, 1}) {
        const std::int64_t value = sign * ((std::int64_t{1} << bit) + delta);
        std::int64_t back = 0;
        ASSERT_TRUE(BytesToInt64(Int64ToBytes(value), back));
        EXPECT_EQ(back, value);
      }
    }
  }
  EXPECT_EQ(Int64ToBytes(0), "");
  EXPECT_EQ(Int64ToBytes(128), std::string("\x80\x00", 2));
  EXPECT_EQ(Int64ToBytes(-128), "\x80");
}

TEST(PickleNumbers, DecimalsBecomeTheFewestBytes) {
  for (std::int64_t value : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{127}, std::int64_t{128},
                             std::int64_t{-128}, std::int64_t{-129}, std::int64_t{255}, std::int64_t{-256}, INT64_MAX, INT64_MIN}) {
    ASSERT_OK_AND_ASSIGN(const std::string bytes, DecimalToBytes(std::to_string(value)));
    EXPECT_EQ(bytes, Int64ToBytes(value)) << value;
  }
  ASSERT_OK_AND_ASSIGN(const std::string large, DecimalToBytes("9223372036854775808L"));
  EXPECT_EQ(large, std::string("\0\0\0\0\0\0\0\x80\0", 9));
  std::int64_t value = 0;
  EXPECT_FALSE(BytesToInt64(large, value));
  EXPECT_THAT(DecimalToBytes("12x"), IsError(ErrorCode::kCorrupt, HasSubstr("12x")));
  EXPECT_THAT(DecimalToBytes(std::string(5000, '1')), IsError(ErrorCode::kCorrupt, HasSubstr("integer")));
}

struct Utf8Case {
  std::string_view name;
  std::string_view text;
  bool valid;
};
class Utf8 : public ::testing::TestWithParam<Utf8Case> {};
TEST_P(Utf8, IsJudged) { EXPECT_EQ(IsUtf8(GetParam().text), GetParam().valid); }
INSTANTIATE_TEST_SUITE_P(Table, Utf8,
                         ::testing::Values(Utf8Case{"ascii", "abc", true}, Utf8Case{"two", "\xc3\xa4", true},
                                           Utf8Case{"surrogate", "\xed\xa0\x80", true}, Utf8Case{"four", "\xf0\x9d\x84\x9e", true},
                                           Utf8Case{"overlong", "\xc0\x80", false}, Utf8Case{"overlong3", "\xe0\x80\x80", false},
                                           Utf8Case{"overlong4", "\xf0\x80\x80\x80", false}, Utf8Case{"beyond", "\xf4\x90\x80\x80", false},
                                           Utf8Case{"cut", "\xe2\x98", false}, Utf8Case{"stray", "\x80", false}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(PickleNumbers, Latin1RoundTripsEveryByte) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  ASSERT_OK_AND_ASSIGN(const std::string back, Latin1ToBytes(BytesToLatin1(bytes)));
  EXPECT_EQ(back, bytes);
  EXPECT_THAT(Latin1ToBytes("\xe2\x98\x83"), IsError(ErrorCode::kCorrupt, HasSubstr("byte string")));
}

TEST(PickleNumbers, ReadsQuotedStringsAndEscapes) {
  ASSERT_OK_AND_ASSIGN(const std::string text, ParseQuoted(R"('a\n\x41\101\\\'')"));
  EXPECT_EQ(text, "a\nAA\\'");
  ASSERT_OK_AND_ASSIGN(const std::string wide, ParseRawUnicode(R"(\u2603\U0001d11e)"));
  EXPECT_EQ(wide, "\xe2\x98\x83\xf0\x9d\x84\x9e");
  EXPECT_THAT(ParseQuoted("'a"), IsError(ErrorCode::kCorrupt, HasSubstr("string")));
  EXPECT_THAT(ParseRawUnicode(R"(\u12)"), IsError(ErrorCode::kCorrupt, HasSubstr("escape")));
}

TEST(PickleNumbers, ReadsFloatsAsPythonPrintsThem) {
  ASSERT_OK_AND_ASSIGN(const double small, ParseFloat("5e-324"));
  EXPECT_EQ(small, 5e-324);
  ASSERT_OK_AND_ASSIGN(const double infinite, ParseFloat("-inf"));
  EXPECT_LT(infinite, -1e308);
  EXPECT_THAT(ParseFloat("1.0x"), IsError(ErrorCode::kCorrupt, HasSubstr("1.0x")));
}

}  // namespace
}  // namespace crossdock::formats::pickle
