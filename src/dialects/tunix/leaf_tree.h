// SPDX-License-Identifier: Apache-2.0
/// \file  One item of a Tunix step as a tree of leaves, with nnx's box around each taken off: `P.value` is the leaf `P`.
/// A box is a node whose only key is `value` and whose child is a leaf; a module or parameter of that name keeps it.
/// Reference: flax 0.12 (nnx.state as a pytree), Orbax 0.12. In a catalog: objects["tree"], rows whose paths begin with the item.
/// Errors: kUnsupported for quantized parameters (`qvalue` and `scale` in place of an array). Threads: functions are pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "dialects/maxtext/state_tree.h"
#include "tensor/catalog.h"

namespace crossdock::dialects::tunix {

struct LeafNode {
  std::map<std::string, LeafNode, std::less<>> children;   ///< by key; an index as its digits
  bool leaf = false;
  std::int32_t entry = -1;                  ///< of the catalog; -1: a placeholder
  std::string type;                         ///< "jax.Array", "None", ...
  Value random_key;                         ///< "ext_metadata" of the row, else null
  bool boxed = false;                       ///< stood in a box

  [[nodiscard]] const LeafNode* Find(std::string_view key) const;
  /// A node of that key that is no leaf; null when there is none.
  [[nodiscard]] const LeafNode* Below(std::string_view key) const;
  [[nodiscard]] bool Only(std::string_view key) const { return children.size() == 1 && children.begin()->first == key; }
  /// Some array lies in it.
  [[nodiscard]] bool HoldsArrays() const;
};

/// The tree of an item; a node without children when the step has no such item.
[[nodiscard]] Result<LeafNode> LeavesOf(const Catalog& catalog, std::string_view item);

/// Calls visit(dotted name, leaf) for every leaf, sorted by key.
void VisitLeaves(const LeafNode& node, const std::string& prefix, const std::function<void(const std::string&, const LeafNode&)>& visit);

/// "a.b" of two names either of which may be empty.
[[nodiscard]] std::string Dotted(std::string_view a, std::string_view b);

}  // namespace crossdock::dialects::tunix
