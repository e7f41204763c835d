// SPDX-License-Identifier: Apache-2.0
#include "tensor/catalog.h"

#include <algorithm>
#include <tuple>

#include "base/sort_through.h"

namespace crossdock {

std::int32_t Catalog::Find(std::string_view name, Slot slot) const {
  const auto it = std::lower_bound(entries.begin(), entries.end(), std::make_pair(name, slot),
                                   [](const Entry& e, const auto& key) {
                                     return std::make_pair(std::string_view(e.name), e.slot) < key;
                                   });
  if (it == entries.end() || it->name != name || it->slot != slot) return -1;
  return static_cast<std::int32_t>(it - entries.begin());
}

void Catalog::SortEntries() {
  SortThrough(&entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.name, a.slot) < std::tie(b.name, b.slot);
  });
}

}  // namespace crossdock
