// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_stacks.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "dialects/mcore/legacy_experts.h"
#include "dialects/mcore/legacy_names.h"
#include "dialects/mcore/legacy_towers.h"
#include "dialects/mcore/view_catalog.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

using Stack = std::vector<const WholeParameter*>;

bool AlikeLayers(const Stack& stack) {
  return std::ranges::all_of(stack, [&](const WholeParameter* whole) {
    if (whole == nullptr || stack.front() == nullptr) return false;
    for (std::size_t s = 0; s < kAllSlots.size(); ++s) {
      const expr::Expr& a = stack.front()->slots[s];
      const expr::Expr& b = whole->slots[s];
      if ((a == nullptr) != (b == nullptr) || (a != nullptr && (a->shape != b->shape || a->dtype != b->dtype))) return false;
    }
    return true;
  });
}

class Stacker {
 public:
  Stacker(const WholeParameters& whole, const StackOptions& options, GlobalView* view) : whole_(whole), options_(options), view_(*view) {}

  Status Run() {
    CROSSDOCK_RETURN_IF_ERROR(FindLayers());
    CROSSDOCK_RETURN_IF_ERROR(FindBlocks());
    const bool stacked = !options_.numbered && std::ranges::all_of(layers_, [](const auto& item) { return AlikeLayers(item.second); });
    for (const auto& [key, whole] : whole_) {
      if ((stacked && LayerNumber(key)) || FindTowerBlock(key)) continue;
      for (const Slot slot : kAllSlots) Add(key, slot, whole.slots[static_cast<std::size_t>(slot)]);
    }
    for (const auto& [key, stack] : layers_) {
      if (stacked) CROSSDOCK_RETURN_IF_ERROR(AddStack(key, stack));
    }
    for (const auto& [key, stack] : blocks_) CROSSDOCK_RETURN_IF_ERROR(AddStack(key, stack));
    return SortView(&view_);
  }

 private:
  Status FindLayers() {
    for (const auto& [key, whole] : whole_) {
      const std::optional<std::int64_t> layer = LayerNumber(key);
      if (!layer) continue;
      // A name may carry a number that no stage counts (`language_model.encoder.decoder.layers.7...`).
      if (*layer >= options_.layers) {
        return MakeError(ErrorCode::kCorrupt, "a parameter's layer is beyond the model's")
            .WithTensor(key)
            .WithExpected(fmt::format("fewer than {}", options_.layers))
            .WithFound(fmt::format("{}", *layer));
      }
      Stack& stack = layers_[WithoutLayerNumber(key)];
      stack.resize(static_cast<std::size_t>(options_.layers), nullptr);
      stack[static_cast<std::size_t>(*layer)] = &whole;
    }
    return OkStatus();
  }

  Status FindBlocks() {
    for (const auto& [key, whole] : whole_) {
      const std::optional<TowerBlock> block = FindTowerBlock(key);
      if (!block) continue;
      Stack& stack = blocks_[block->key];
      if (block->number >= static_cast<std::int64_t>(whole_.size())) {
        return MakeError(ErrorCode::kCorrupt, "a block of a vision tower is numbered beyond all of them").WithTensor(key).WithFound(fmt::format("{}", block->number));
      }
      if (static_cast<std::size_t>(block->number) >= stack.size()) stack.resize(static_cast<std::size_t>(block->number) + 1, nullptr);
      stack[static_cast<std::size_t>(block->number)] = &whole;
    }
    for (const auto& [key, stack] : blocks_) {
      if (AlikeLayers(stack)) continue;
      return MakeError(ErrorCode::kCorrupt, "the blocks of a vision tower are not numbered from 0, or are not alike").WithTensor(key).WithExpected(fmt::format("{} blocks of one shape", stack.size()));
    }
    return OkStatus();
  }

  Status AddStack(const std::string& key, const Stack& stack) {
    for (const Slot slot : kAllSlots) {
      std::vector<expr::Expr> layers;
      for (const WholeParameter* whole : stack) layers.push_back(whole->slots[static_cast<std::size_t>(slot)]);
      if (layers.front() == nullptr) continue;
      CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr whole, IsOfExperts(key) ? StackLayers(layers) : expr::Stack(layers, 0));
      Add(key, slot, whole);
    }
    return OkStatus();
  }

  void Add(const std::string& key, Slot slot, const expr::Expr& whole) {
    if (whole == nullptr) return;
    view_.catalog.entries.push_back({SlotKey(slot, key, options_.form), Slot::kParam, whole->dtype, whole->shape, {}});
    view_.exprs.push_back(expr::Simplify(whole));
  }

  const WholeParameters& whole_;
  const StackOptions& options_;
  GlobalView& view_;
  std::map<std::string, Stack> layers_;   // by key without the number
  std::map<std::string, Stack> blocks_;   // of a tower
};

}  // namespace

Status StackLayersOf(const WholeParameters& whole, const StackOptions& options, GlobalView* view) { return Stacker(whole, options, view).Run(); }

}  // namespace crossdock::dialects::mcore
