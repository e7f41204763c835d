// SPDX-License-Identifier: Apache-2.0
/// \file  What the tests of all dialects begin with: JSON as a Value, a family by its name.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "family/detect.h"
#include "tensor/value.h"

namespace crossdock::dialects {

inline Value Json(std::string_view text) {
  const Result<Value> value = ParseJson(text);
  EXPECT_TRUE(value.has_value()) << (value ? "" : value.error().ToString());
  return value ? *value : Value::MakeDict();
}

inline const family::FamilyFile& Family(std::string_view name) {
  for (const family::FamilyFile& family : family::BuiltinFamilies()) {
    if (family.name == name) return family;
  }
  std::abort();
}

}  // namespace crossdock::dialects
