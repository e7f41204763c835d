// SPDX-License-Identifier: Apache-2.0
#include "convert/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace crossdock::convert {
namespace {

constexpr std::size_t kSomeNames = 8;

constexpr unsigned Bit(Slot slot) { return 1U << static_cast<unsigned>(slot); }

std::string_view OwnerOf(unsigned slots) {
  if ((slots & Bit(Slot::kMuonMu)) != 0) return "muon";
  return (slots & (Bit(Slot::kAdamMu) | Bit(Slot::kAdamNu))) != 0 ? "adam" : "none";
}

template <typename Carried>
Partition CountOwners(const dialects::HubState& hub, Carried carried) {
  Partition out;
  unsigned all = 0;
  for (const dialects::HubTensor& tensor : hub.tensors) all |= Bit(tensor.slot);
  if ((all & (Bit(Slot::kAdamMu) | Bit(Slot::kAdamNu) | Bit(Slot::kMuonMu))) == 0) return out;
  std::map<std::string_view, unsigned> slots;
  for (const dialects::HubTensor& tensor : hub.tensors) slots[tensor.name] |= Bit(tensor.slot);
  for (const auto& [name, has] : slots) {
    PartitionRow& row = out[OwnerOf(has)];
    ++row.parameters;
    if (OwnerOf(has) == "none" && row.some.size() < kSomeNames) row.some.emplace_back(name);
  }
  for (const dialects::HubTensor& tensor : hub.tensors) {
    if (tensor.slot == Slot::kParam) continue;
    PartitionSlot& slot = out[OwnerOf(slots[tensor.name])].slots[tensor.slot];
    ++slot.in_source;
    if (carried(tensor)) ++slot.carried;
  }
  return out;
}

}  // namespace

Partition PartitionOf(const dialects::HubState& hub) {
  return CountOwners(hub, [](const dialects::HubTensor&) { return false; });
}

Partition PartitionOf(const dialects::HubState& hub, const std::vector<expr::Expr>& target) {
  std::vector<bool> read;
  for (const expr::Expr& root : target) {
    for (const int leaf : expr::LeafOrdinals(root)) {
      const auto at = static_cast<std::size_t>(leaf);
      if (at >= read.size()) read.resize(at + 1);
      read[at] = true;
    }
  }
  return CountOwners(hub, [&](const dialects::HubTensor& tensor) {
    const std::vector<int> leaves = expr::LeafOrdinals(tensor.expr);
    return std::ranges::all_of(leaves, [&](int leaf) { return static_cast<std::size_t>(leaf) < read.size() && read[static_cast<std::size_t>(leaf)]; });
  });
}

Status CheckCarried(const Partition& partition) {
  for (const auto& [owner, row] : partition) {
    for (const auto& [slot, count] : row.slots) {
      if (slot == Slot::kMaster || count.in_source == 0 || count.carried != 0) continue;
      return MakeError(ErrorCode::kUnsupported, fmt::format("the target takes none of the state of {}'s parameters, which would begin from zero", owner == "muon" ? "Muon" : "Adam"))
          .WithExpected(fmt::format("{} of {} parameters", SlotName(slot), count.in_source))
          .WithFound("0")
          .WithHint("`--no-optim` leaves all optimizer state behind");
    }
  }
  return OkStatus();
}

std::vector<std::string> PartitionLines(const Partition& partition, bool counted) {
  std::vector<std::string> lines;
  for (const auto& [owner, row] : partition) {
    std::string line = fmt::format("{}: {} parameters", owner == "none" ? "no state" : owner, row.parameters);
    for (const auto& [slot, count] : row.slots) {
      const bool whole = !counted || count.carried == count.in_source;
      line += whole ? fmt::format(", {} {}", SlotName(slot), count.in_source) : fmt::format(", {} {} of {}", SlotName(slot), count.carried, count.in_source);
    }
    if (!row.some.empty()) {
      std::vector<std::string> names;
      for (const std::string& name : row.some) names.push_back(Printable(name));
      line += fmt::format(" ({}{})", fmt::join(names, ", "), static_cast<std::size_t>(row.parameters) > names.size() ? ", ..." : "");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

Value PartitionJson(const Partition& partition, bool counted) {
  Value out = Value::MakeDict();
  for (const auto& [owner, row] : partition) {
    Value one = Value::MakeDict();
    one.Set("parameters", row.parameters);
    Value slots = Value::MakeDict();
    for (const auto& [slot, count] : row.slots) {
      if (counted) {
        Value pair = Value::MakeDict();
        pair.Set("source", count.in_source);
        pair.Set("target", count.carried);
        slots.Set(SlotName(slot), std::move(pair));
      } else {
        slots.Set(SlotName(slot), count.in_source);
      }
    }
    one.Set("slots", std::move(slots));
    out.Set(owner, std::move(one));
  }
  return out;
}

}  // namespace crossdock::convert
