// SPDX-License-Identifier: Apache-2.0
/// \file  Names made of decimal digits alone: layers, chains, shards and steps are called so in many formats. Not of any locale.
#pragma once

#include <algorithm>
#include <string_view>

namespace crossdock {

[[nodiscard]] constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// At least one character, and no other than 0 to 9.
[[nodiscard]] constexpr bool OnlyDigits(std::string_view text) { return !text.empty() && std::ranges::all_of(text, IsDigit); }

}  // namespace crossdock
