// SPDX-License-Identifier: Apache-2.0
#include "tensor/catalog.h"

#include <algorithm>
#include <string_view>

#include "base/sort_through.h"

namespace crossdock {
namespace {

/// By (name, slot), with one comparison of the names: those of one model begin alike, so that each costs.
bool Before(std::string_view a, Slot a_slot, std::string_view b, Slot b_slot) {
  const int order = a.compare(b);
  return order != 0 ? order < 0 : a_slot < b_slot;
}

}  // namespace

std::int32_t Catalog::Find(std::string_view name, Slot slot) const {
  const auto it = std::partition_point(entries.begin(), entries.end(), [&](const Entry& e) { return Before(e.name, e.slot, name, slot); });
  if (it == entries.end() || it->name != name || it->slot != slot) return -1;
  return static_cast<std::int32_t>(it - entries.begin());
}

void Catalog::SortEntries() {
  SortThrough(&entries, [](const Entry& a, const Entry& b) { return Before(a.name, a.slot, b.name, b.slot); });
}

}  // namespace crossdock
