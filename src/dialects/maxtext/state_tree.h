// SPDX-License-Identifier: Apache-2.0
/// \file  The paths of MaxText's saved tree, both ways.
///   params.params.<name>             parameters
///   opt_state.[0].{count, mu.params.<name>, nu.params.<name>}, [1] None, [2].count               adamw: a list; [2] is the schedule
///   opt_state.{count, mu.params.<name>, nu.params.<name>}                                        adam_pax
///   opt_state.inner_states.{muon,adam}.inner_state.[0].{count, mu.params.<name>, ...}, ...       Muon, Linen: lists
///   opt_state.inner_states.{muon,adam}.inner_state."0".{count, mu.<name>, ...}, ...              Muon, NNX: dicts, no None, no `params`
/// In mu and nu of Muon's groups a parameter of the other group is None. An integer in a path is an index of a sequence.
/// Reference: optax 0.2.8 (contrib/_muon.py), MaxText 0.2.5 (common/train_state_nnx.py); tests/golden/maxtext. Threads: functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/slot.h"
#include "tensor/value.h"

namespace crossdock::dialects::maxtext {

using KeyPath = std::vector<Value>;

enum class OptimizerKind : std::uint8_t { kNone, kAdamW, kAdamPax, kMuon };
struct StateForm {
  OptimizerKind kind = OptimizerKind::kNone;
  bool linen = false;                 ///< counts for Muon only
};

/// The name of an array: its path joined by dots.
[[nodiscard]] std::string ArrayName(const KeyPath& path);
/// `prefix` and the parts of a dotted name.
[[nodiscard]] KeyPath PathTo(KeyPath prefix, std::string_view name);
/// Where `mu` and `nu` of the slot's group lie. REQUIRES: a slot of the form's optimizer.
[[nodiscard]] KeyPath StatePath(const StateForm& form, Slot slot, std::string_view name);
/// The two counters of a group: its own, and that of the schedule. adam_pax has no schedule: the second is empty.
struct CounterPaths {
  KeyPath count, schedule;
};
[[nodiscard]] CounterPaths CountersOf(const StateForm& form, bool muon);
/// States without content that the form names: None placeholders.
[[nodiscard]] std::vector<KeyPath> EmptyStates(const StateForm& form);
[[nodiscard]] KeyPath CoefficientsPath(const StateForm& form);

/// What an array is, told by its name.
struct TreeKey {
  enum class Kind : std::uint8_t {
    kParam,         ///< `name` below params.params
    kVariable,      ///< `name` below nnx_aux.model or another collection of params: no parameter, but of the model
    kState,         ///< `slot` of the parameter `name`
    kCount,         ///< counter of an optimizer (`muon`), or of its schedule (`schedule`)
    kStep,
    kRandom,        ///< of a random generator
    kCoefficients,  ///< ns_coeffs
    kOther,
  };
  Kind kind = Kind::kOther;
  Slot slot = Slot::kParam;
  std::string name;
  bool muon = false;
  bool schedule = false;
  bool wrapper = false;   ///< a counter directly below opt_state: adam_pax's own, or that of a wrapper around an `inner_state`
};
[[nodiscard]] TreeKey ParseTreeKey(std::string_view name);

}  // namespace crossdock::dialects::maxtext
