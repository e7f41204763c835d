// SPDX-License-Identifier: Apache-2.0
/// \file  A few of many names, for messages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace crossdock {

/// "a, b, c and 7 more", printable; empty for no names.
[[nodiscard]] std::string SomeNames(const std::vector<std::string>& names, std::size_t limit = 8);

}  // namespace crossdock
