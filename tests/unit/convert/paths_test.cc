// SPDX-License-Identifier: Apache-2.0
#include "convert/paths.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace crossdock::convert {
namespace {

TEST(Paths, OneOfManySpellingsIsCanonical) {
  std::string pattern = (std::filesystem::temp_directory_path() / "crossdock-paths-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path root = pattern;
  std::filesystem::create_directories(root / "real/deep");
  std::filesystem::create_directory_symlink("real", root / "link");
  const std::string expected = Canonical((root / "real/deep").string());
  for (const char* spelling : {"real/deep/", "link/deep", "real/../link/./deep", "link/deep//"}) EXPECT_EQ(Canonical((root / spelling).string()), expected) << spelling;
  EXPECT_EQ(Canonical((root / "link/new/one").string()), Canonical((root / "real").string()) + "/new/one");
  std::filesystem::remove_all(root);
}

TEST(Paths, InsideIsByWholeNames) {
  EXPECT_TRUE(Inside("/a/b", "/a"));
  EXPECT_TRUE(Inside("/a", "/a"));
  EXPECT_TRUE(Inside("/a", "/"));
  EXPECT_FALSE(Inside("/ab", "/a"));
  EXPECT_FALSE(Inside("/a", "/a/b"));
}

}  // namespace
}  // namespace crossdock::convert
