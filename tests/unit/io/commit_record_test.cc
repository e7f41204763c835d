// SPDX-License-Identifier: Apache-2.0
#include "io/commit_record.h"

#include <gtest/gtest.h>

namespace crossdock::io {
namespace {

TEST(CommitRecord, ReadsWhatItPrints) {
  CommitRecord record;
  record.inode = 18'446'744'073'709'551'615ULL;
  record.markers = {{"/run/latest", "20"}, {"/run/new line\n", ""}};
  const auto again = ParseCommitRecord(PrintCommitRecord(record));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->inode, record.inode);
  ASSERT_EQ(again->markers.size(), 2U);
  EXPECT_EQ(again->markers[0].path, "/run/latest");
  EXPECT_EQ(again->markers[0].content, "20");
  EXPECT_EQ(again->markers[1].path, "/run/new line\n");
  EXPECT_EQ(again->markers[1].content, "");
}

TEST(CommitRecord, RefusesEveryCutAndEveryChangedByte) {
  CommitRecord record;
  record.inode = 7;
  record.markers = {{"/run/latest", "20"}};
  const std::string text = PrintCommitRecord(record);
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(ParseCommitRecord(text.substr(0, i)).has_value()) << i;
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(ParseCommitRecord(changed).has_value()) << i;
  }
}

}  // namespace
}  // namespace crossdock::io
