// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/columns.h"

#include <limits>

#include "result_matchers.h"

namespace crossdock::formats::ocdbt {
namespace {

using ::testing::HasSubstr;

TEST(OcdbtColumns, NumbersGoBothWays) {
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{127}, std::uint64_t{128}, std::uint64_t{300}, std::uint64_t{1} << 62U,
                                    std::numeric_limits<std::uint64_t>::max()}) {
    std::string bytes;
    PutUv(bytes, value);
    PutU64(bytes, value);
    Cursor cursor(bytes);
    ASSERT_OK_AND_ASSIGN(const std::uint64_t uv, cursor.Uv());
    ASSERT_OK_AND_ASSIGN(const std::uint64_t fixed, cursor.U64());
    EXPECT_EQ(uv, value);
    EXPECT_EQ(fixed, value);
    EXPECT_THAT(cursor.End(), IsOk());
  }
  std::string three_hundred;
  PutUv(three_hundred, 300);
  EXPECT_EQ(three_hundred, "\xAC\x02");
}

TEST(OcdbtColumns, RefusesWhatDoesNotFit) {
  EXPECT_THAT(Cursor("").Uv(), IsError(ErrorCode::kCorrupt, HasSubstr("too early")));
  EXPECT_THAT(Cursor("\x80").Uv(), IsError(ErrorCode::kCorrupt, HasSubstr("too early")));
  EXPECT_THAT(Cursor("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02").Uv(), IsError(ErrorCode::kCorrupt, HasSubstr("64 bits")));
  EXPECT_THAT(Cursor("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01").Uv(), IsError(ErrorCode::kCorrupt, HasSubstr("64 bits")));
  EXPECT_THAT(Cursor("\x05").Uv(4, "the length of a key"), IsError(ErrorCode::kCorrupt, HasSubstr("the length of a key is too large")));
  EXPECT_THAT(Cursor("abc").Bytes(4), IsError(ErrorCode::kCorrupt, HasSubstr("too early")));
  EXPECT_THAT(Cursor("abc").End(), IsError(ErrorCode::kCorrupt, HasSubstr("3 bytes follow")));
}

TEST(OcdbtColumns, AColumnLongerThanTheRecordAsksForNoMemory) {
  EXPECT_THAT(Cursor("abc").Column(std::uint64_t{1} << 60U, 255, "a number"), IsError(ErrorCode::kCorrupt, HasSubstr("too early")));
}

}  // namespace
}  // namespace crossdock::formats::ocdbt
