// SPDX-License-Identifier: Apache-2.0
#include "tensor/slot.h"

namespace crossdock {
namespace {
constexpr std::array<std::string_view, 5> kNames = {"param", "master", "adam_mu", "adam_nu", "muon_mu"};
}

std::string_view SlotName(Slot slot) { return kNames[static_cast<std::size_t>(slot)]; }

std::optional<Slot> SlotFromName(std::string_view name) {
  for (Slot slot : kAllSlots) {
    if (SlotName(slot) == name) return slot;
  }
  return std::nullopt;
}

}  // namespace crossdock
