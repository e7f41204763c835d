// SPDX-License-Identifier: Apache-2.0
/// \file  Which optimizer the parameters belong to, by the source's own keys, and how much of each one's state a target takes.
/// A conversion that loses one optimizer's state altogether while it carries the other's would begin it from zero in silence: an error.
/// Units: numbers of hub tensors. Errors: kUnsupported where a slot of the source reaches no tensor of the target. Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convert/source.h"
#include "expr/expr.h"

namespace crossdock::convert {

struct PartitionSlot {
  std::int64_t in_source = 0;
  std::int64_t carried = 0;                ///< of these, in the target
};
struct PartitionRow {
  std::int64_t parameters = 0;
  std::map<Slot, PartitionSlot> slots;     ///< without kParam
  std::vector<std::string> some;           ///< the first names, for parameters that have no state
};
/// "adam", "muon" and "none", those that occur; empty where there is no optimizer state.
using Partition = std::map<std::string_view, PartitionRow>;

[[nodiscard]] Partition PartitionOf(const dialects::HubState& hub);
/// With `carried` counted: a tensor is carried when the target's expressions read all that it is made of.
[[nodiscard]] Partition PartitionOf(const dialects::HubState& hub, const std::vector<expr::Expr>& target);

/// REQUIRES: `partition` was counted with a target that holds optimizer state.
[[nodiscard]] Status CheckCarried(const Partition& partition);

/// "muon: 28 parameters, master 28, muon_mu 28". With `counted`, "12 of 28" where not all is carried.
[[nodiscard]] std::vector<std::string> PartitionLines(const Partition& partition, bool counted);
[[nodiscard]] Value PartitionJson(const Partition& partition, bool counted);

}  // namespace crossdock::convert
