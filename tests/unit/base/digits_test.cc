// SPDX-License-Identifier: Apache-2.0
#include "base/digits.h"

#include <gtest/gtest.h>

namespace crossdock {
namespace {

TEST(DigitsTest, OnlyDecimalDigitsAndAtLeastOne) {
  EXPECT_TRUE(OnlyDigits("0"));
  EXPECT_TRUE(OnlyDigits("0123456789"));
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "1a", "/", ":", "\xd9\xa1"}) EXPECT_FALSE(OnlyDigits(text)) << text;
}

}  // namespace
}  // namespace crossdock
