// SPDX-License-Identifier: Apache-2.0
#include "base/names.h"

#include <gtest/gtest.h>

namespace crossdock {
namespace {

TEST(SomeNames, ShowsTheFirstAndCountsTheRest) {
  EXPECT_EQ(SomeNames({}), "");
  EXPECT_EQ(SomeNames({"a"}), "a");
  EXPECT_EQ(SomeNames({"a", "b", "c"}, 3), "a, b, c");
  EXPECT_EQ(SomeNames({"a", "b", "c"}, 2), "a, b and 1 more");
}

TEST(SomeNames, AreFitForATerminal) { EXPECT_EQ(SomeNames({"a\x1b[2J"}).find('\x1b'), std::string::npos); }

}  // namespace
}  // namespace crossdock
