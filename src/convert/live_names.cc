// SPDX-License-Identifier: Apache-2.0
#include "convert/live_names.h"

#include <algorithm>

namespace crossdock::convert {

std::optional<std::string> LiveName(std::string_view entry_name) {
  constexpr std::string_view kModel = "model";
  const std::size_t hash = entry_name.find('#');
  if (hash == std::string_view::npos) return std::nullopt;
  const std::string_view path = entry_name.substr(hash + 1);
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos || !path.starts_with(kModel)) return std::nullopt;
  const std::string_view number = path.substr(kModel.size(), slash - kModel.size());
  if (!std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  const std::string name(path.substr(slash + 1));
  return number.empty() ? name : std::string(path.substr(0, slash)) + "." + name;
}

}  // namespace crossdock::convert
