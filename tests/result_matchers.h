// SPDX-License-Identifier: Apache-2.0
/// \file  Matchers for Result and Status: EXPECT_THAT(r, IsOk()), EXPECT_THAT(r, IsError(code, HasSubstr("...")));
/// ASSERT_OK_AND_ASSIGN(auto x, expr) stops the test with the message of the error.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "crossdock/result.h"

namespace crossdock {

MATCHER(IsOk, "is a value") {
  if (arg.has_value()) return true;
  *result_listener << arg.error().ToString();
  return false;
}

MATCHER_P2(IsError, code, text, "") {
  if (arg.has_value()) {
    *result_listener << "which is a value";
    return false;
  }
  *result_listener << ErrorCodeName(arg.error().code) << ": " << arg.error().ToString();
  return arg.error().code == code && ::testing::ExplainMatchResult(text, arg.error().ToString(), result_listener);
}

}  // namespace crossdock

#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(CROSSDOCK_CONCAT_(result_, __COUNTER__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(tmp, lhs, expr)         \
  auto tmp = (expr);                                       \
  ASSERT_TRUE(tmp.has_value()) << tmp.error().ToString();  \
  lhs = std::move(tmp).value()
