// SPDX-License-Identifier: Apache-2.0
/// \file  The level that an adapter around the model puts at the root of its parameters: `base`, once and nowhere else.
/// Post-training wraps MaxText's Transformer in a module that holds it as `base`; bare models are saved too. A module of the model's own
/// that is called so is told apart by where it stands, and in the optimizer's subtrees by the parameters' names.
/// Reference: MaxText 0.2.5, integration/tunix/tunix_adapter.py. Threads: functions are pure.
#pragma once

#include <set>
#include <string>

#include "dialects/tunix/leaf_tree.h"

namespace crossdock::dialects::tunix {

inline constexpr std::string_view kAdapter = "base";

/// "base" where the tree of the parameters stands in it, else "". Beside it may stand variables of the adapter's own.
[[nodiscard]] std::string AdapterOfParams(const LeafNode& params);
/// The same of a subtree of the optimizer that is shaped like the parameters, whose names (without the adapter's) are given.
[[nodiscard]] std::string AdapterOfState(const LeafNode& state, const std::set<std::string>& names);

/// The node that the adapter holds; the node itself when there is none.
[[nodiscard]] const LeafNode& Within(const LeafNode& node, const std::string& adapter);

}  // namespace crossdock::dialects::tunix
