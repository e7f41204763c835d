// SPDX-License-Identifier: Apache-2.0
/// \file  The levels that post-training puts around MaxText's tree, as a record: what was taken off, so that it can be put on again.
///   model_params.[ADAPTER.]P.value                                      params.params.P
///   optimizer_state.opt_state.[SHELLS.]0.{mu,nu}.[ADAPTER.]P.value      opt_state.[0].{mu,nu}.params.P
///   optimizer_state.opt_state.[SHELLS.]{mu,nu}.[ADAPTER.]P.value        opt_state.{mu,nu}.params.P                        (adam_pax)
///   optimizer_state.opt_state.[SHELLS.]inner_states.G.inner_state.K.mu.[ADAPTER.]P.value
///                                                                       opt_state.inner_states.G.inner_state.K.mu.P       (Muon)
///   optimizer_state.step.value                                          step
/// SHELLS are keys of wrappers (`inner_state` of inject_hyperparams, `inner_opt_state` of MultiSteps) and of chains; what else they hold
/// and MaxText's tree has no place for is in `dropped`.
/// As JSON, in the custom metadata of a step under "crossdock", "tunix_levels": {"adapter": "base", "opt_state": "inner_state.1",
/// "dropped": {"opt_state.count": {"dtype": "int32", "value": 7}}}, and only where they say something "state_adapter", "moved",
/// "schedule" and "value" (below).
/// Errors: kCorrupt for a record that is none. Threads: functions are pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "dialects/maxtext/state_tree.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"
#include "tensor/value.h"

namespace crossdock::dialects::tunix {

inline constexpr std::string_view kParamsItem = "model_params";
inline constexpr std::string_view kStateItem = "optimizer_state";

/// A small array by value.
struct Constant {
  DType dtype = DType::kI32;
  Shape shape;
  Value value;                              ///< a number or bool; a List of them, row-major, where there is a shape
  Value random_key;                         ///< of a typed PRNG key: what Orbax's process files say of it; else null
};

struct Levels {
  std::string adapter;                      ///< "base": at the root of the parameters; "" none
  std::string state_adapter;                ///< at the root of every subtree of the optimizer that is shaped like the parameters
  std::vector<std::string> opt_state;       ///< SHELLS, outermost first
  /// By the name in the step (`opt_state.count`, `model_params.base.rngs.params.count`), without `.value`; of the optimizer's item the
  /// item's name is left out.
  std::map<std::string, Constant> dropped;
  /// A chain whose members stand elsewhere than in adamw: its index in MaxText's tree ("0", "2") -> the path below SHELLS ("1", "0.0").
  std::map<std::string, std::string> moved;
  /// Which counter of the step MaxText's schedule (opt_state.[2].count) counts by, where it has no place of its own below SHELLS: a name
  /// as in `dropped`; "" when there is none, and the way back leaves the schedule out.
  std::optional<std::string> schedule;
  bool value = true;                        ///< leaves end in `.value`
};

[[nodiscard]] Value ToValue(const Levels& levels);
[[nodiscard]] Result<Levels> LevelsFrom(const Value& json);
/// The record in a step's custom metadata; nothing where there is none.
[[nodiscard]] Result<std::optional<Levels>> LevelsIn(const Value& custom_metadata);

/// The error of a record that cannot be one, or of one that belongs to another tree.
[[nodiscard]] Error BrokenRecord(const std::string& what);

/// Where a leaf of MaxText's tree lies in a Tunix step: the item, its path, `value`. Nothing for what no trainer keeps: None in place
/// of a stateless member of a chain, a schedule's counter that was made for pre-training, and the step where MultiSteps' counter gave it.
[[nodiscard]] std::optional<maxtext::KeyPath> StoredPath(const Levels& levels, const maxtext::KeyPath& seen);

/// "adapter base, inject_hyperparams, chain 1" for people.
[[nodiscard]] std::string Describe(const Levels& levels);

}  // namespace crossdock::dialects::tunix
