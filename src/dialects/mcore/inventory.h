// SPDX-License-Identifier: Apache-2.0
/// \file  What a torch_dist catalog holds, sorted by meaning: model tensors with their optimizer slots, what cannot be
/// carried and why, and the facts that tell the family. No configuration is needed for it.
/// Invariant: `tensors` names each entry at most once. Errors: kCorrupt for two tensors of one meaning,
/// kUnsupported for layouts that no rule reads (mixed layer forms, HybridModel).
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "dialects/dialect.h"
#include "family/detect.h"

namespace crossdock::dialects::mcore {

/// Entry indices by slot (the number of the Slot); -1 = absent.
using SlotEntries = std::array<std::int32_t, kAllSlots.size()>;

struct Inventory {
  std::map<std::string, SlotEntries> tensors;   ///< by model key, in TransformerEngine's spelling
  bool stacked = true;                          ///< layers along the first axis
  bool split_halves = false;                    ///< fc1 as weight_w and weight_v
  bool stacked_experts = true;                  ///< experts along an axis; else each by its number
  std::int64_t embedding_rows = 0;              ///< the stored (padded) vocabulary; 0 = no embedding
  family::McoreFacts facts;
  bool has_optimizer = false;                   ///< some slot beside the parameters
  std::string optimizer_refusal;                ///< why the optimizer state cannot be carried; empty = it can
  std::vector<LeftOut> left_out;                ///< objects, and optimizer tensors that are not carried
};

/// With `no_optim` the optimizer's tensors are left out by wish.
[[nodiscard]] Result<Inventory> TakeInventory(const Catalog& catalog, bool no_optim);


}  // namespace crossdock::dialects::mcore
