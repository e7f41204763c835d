// SPDX-License-Identifier: Apache-2.0
#include "io/storage.h"

#include <gtest/gtest.h>

#include "result_matchers.h"

namespace crossdock::io {
namespace {

TEST(Paths, AreJoinedAndTakenApart) {
  EXPECT_EQ(JoinPath("", "a"), "a");
  EXPECT_EQ(JoinPath("/", "a"), "/a");
  EXPECT_EQ(JoinPath("d/", "a"), "d/a");
  EXPECT_EQ(JoinPath("d", ""), "d");
  EXPECT_EQ(JoinPath(".", "a"), "a");
  EXPECT_EQ(JoinPath(".", "/a"), ".//a");
  EXPECT_EQ(JoinPath(".", ""), ".");
  EXPECT_EQ(ParentPath("a"), ".");
  EXPECT_EQ(ParentPath("/a"), "/");
  EXPECT_EQ(ParentPath("/"), "/");
  EXPECT_EQ(ParentPath("a/b//"), "a");
  EXPECT_EQ(ParentPath("a//b"), "a");
  EXPECT_EQ(BaseName("a/b/"), "b");
  EXPECT_EQ(BaseName("/"), "/");
}

TEST(Paths, AreMadeAbsoluteWithoutFollowingLinks) {
  EXPECT_EQ(AbsolutePath("/a/./b/../c"), "/a/c");
  EXPECT_EQ(AbsolutePath("/a/"), "/a/");
  EXPECT_EQ(AbsolutePath("x/../y"), AbsolutePath("y"));
  EXPECT_TRUE(AbsolutePath("y").starts_with("/"));
  EXPECT_EQ(ParentPath(AbsolutePath("y")) + "/", AbsolutePath(""));
}

TEST(Paths, RelativeOnesAreChecked) {
  for (const char* good : {"a", "a/b", "..a", "a..", "a b/c.d"}) EXPECT_THAT(CheckRelativePath(good), IsOk()) << good;
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string(".."), std::string("a/../b"), std::string("a//b"),
        std::string("a/"), std::string("./a"), std::string("a\\b"), std::string("a\0b", 3)}) {
    EXPECT_THAT(CheckRelativePath(bad), IsError(ErrorCode::kUnsafe, ::testing::HasSubstr("outside"))) << bad;
  }
}

}  // namespace
}  // namespace crossdock::io
