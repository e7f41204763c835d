// SPDX-License-Identifier: Apache-2.0
/// \file  What a catalog of MaxText's tree holds, sorted by meaning. No configuration is needed for it.
/// Invariant: each entry of the catalog is named at most once. Errors: kCorrupt for two arrays of one meaning and for counters that
/// are no numbers; kUnsupported for trees that are no MaxText training state. Threads: functions are pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::maxtext {

/// Entry indices by slot (the number of the Slot); -1 = absent.
using SlotEntries = std::array<std::int32_t, kAllSlots.size()>;

struct Inventory {
  std::map<std::string, SlotEntries> tensors;      ///< by the name below params.params
  std::map<std::string, std::int32_t> variables;   ///< of the model, but no parameters: routed biases of 0.2.5
  std::vector<std::string> unknown;                ///< arrays that are none of these
  bool scanned = false;                            ///< layers lie along an axis
  std::string mixed;                               ///< a scanned tensor and one of a layer by number, where there are both
  bool has_states = false;                         ///< of an optimizer, carried or not
  Counters counters;
  std::vector<LeftOut> left_out;
  std::vector<std::string> notices;

  [[nodiscard]] bool Holds(std::string_view part) const;   ///< a tensor or variable whose name has this in it
  [[nodiscard]] std::int64_t PredictionLayers() const;       ///< of multi-token prediction
};

/// With `no_optim` the optimizer's arrays are left out by wish.
[[nodiscard]] Result<Inventory> TakeInventory(const Catalog& catalog, bool no_optim);

}  // namespace crossdock::dialects::maxtext
