// SPDX-License-Identifier: Apache-2.0
/// \file  The wrappers and chains around an optimizer's state, told by what they are and not by where they stand.
///   inject_hyperparams {count, hyperparams[, hyperparams_states], inner_state}   goes; its count is the schedule's where there is no other
///   MultiSteps {mini_step, gradient_step, inner_opt_state, acc_grads[, skip_state]}, any other wrapper with an `inner_state`   goes
///   a chain (all keys are numbers) goes when one child alone carries state, and that is a level or an optimizer itself; {0: {count, mu, nu}}
///   is adamw, whose other members have none
/// What is left is adamw's chain, adam_pax ({count, mu, nu}) or Muon's partition (`inner_states`).
/// Reference: optax 0.2.8; MaxText 0.2.5, trainers/post_train. Threads: functions are pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dialects/maxtext/state_tree.h"
#include "dialects/tunix/leaf_tree.h"

namespace crossdock::dialects::tunix {

struct OptimizerLevels {
  maxtext::OptimizerKind kind = maxtext::OptimizerKind::kNone;
  std::vector<std::string> shells;          ///< keys below opt_state, outermost first
  const LeafNode* root = nullptr;           ///< below them; points into the tree that was given
  std::string adam;                         ///< adamw: path of {count, mu, nu} below the root, usually "0"
  std::optional<std::string> schedule;      ///< path of the schedule's {count} below the root, usually "2"
  std::optional<std::string> shell_count;   ///< name of the counter of inject_hyperparams: "opt_state.count"
  std::optional<std::string> updates;       ///< name of MultiSteps' counter of updates, beside which the optimizer's `step` counts micro-batches
  using Named = std::pair<std::string, const LeafNode*>;
  std::vector<Named> dropped;               ///< leaves that MaxText's tree has no place for, by name without `.value`
  std::vector<Named> accumulated;           ///< subtrees of gradients that MultiSteps gathers
  std::string refusal;                      ///< why there is state that cannot be carried; "" all of it can
};

/// `state`: the item optimizer_state. `catalog` tells shapes.
[[nodiscard]] OptimizerLevels FindOptimizerLevels(const LeafNode& state, const Catalog& catalog);

}  // namespace crossdock::dialects::tunix
