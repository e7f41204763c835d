// SPDX-License-Identifier: Apache-2.0
#include "tensor/find_near.h"

#include <algorithm>

namespace crossdock {

std::int32_t FindNear(const Catalog& catalog, std::string_view name, std::int32_t* near) {
  const std::vector<Entry>& entries = catalog.entries;
  const auto size = static_cast<std::int32_t>(entries.size());
  // No slot comes before kParam.
  const auto before = [&](std::int32_t at) { return entries[static_cast<std::size_t>(at)].name < name; };
  // Steps of twice the size each until the place lies between `low` (all of it is before) and `high` (nothing from it on is).
  std::int32_t low = std::min(*near, size);
  std::int32_t high = low;
  std::int32_t step = 1;
  if (low < size && before(low)) {
    for (high = ++low; high < size && before(high); step *= 2) {
      low = high + 1;
      high = low + std::min(step, size - low);
    }
  } else {
    for (; low > 0 && !before(low - 1); step *= 2) {
      high = low - 1;
      low = high - std::min(step, high);
    }
  }
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    if (before(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  *near = low;
  if (low == size) return -1;
  const Entry& found = entries[static_cast<std::size_t>(low)];
  return found.name == name && found.slot == Slot::kParam ? low : -1;
}

}  // namespace crossdock
