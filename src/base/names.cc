// SPDX-License-Identifier: Apache-2.0
#include "base/names.h"

#include <algorithm>

#include <fmt/format.h>

#include "crossdock/error.h"

namespace crossdock {

std::string SomeNames(const std::vector<std::string>& names, std::size_t limit) {
  std::string out;
  for (std::size_t i = 0; i < std::min(limit, names.size()); ++i) out += (i == 0 ? "" : ", ") + Printable(names[i]);
  if (names.size() > limit) out += fmt::format(" and {} more", names.size() - limit);
  return out;
}

}  // namespace crossdock
