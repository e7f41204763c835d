// SPDX-License-Identifier: Apache-2.0
/// \file  Which rule put a tensor where it is: names of a dialect's tensors with their hub names, rule line and axes.
/// For `manifest` and `inspect`; a conversion itself does not need it. Names that no rule knows are simply not found.
/// Threads: immutable once made.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convert/source.h"

namespace crossdock::convert {

struct RuleOf {
  std::vector<std::string> hub;      ///< hub names, in the order of the rule
  std::string rule;                  ///< "qwen3.toml:23"
  std::vector<std::string> axes;     ///< "layer", "out", "in"; one an axis, or none
};

class RuleBook {
 public:
  /// Binds the hub's family once more, for names only. An empty book when the hub has no family.
  static RuleBook Make(const dialects::HubState& hub, formats::Kind kind);
  /// By the name in the checkpoint, prefixes of optimizer slots included; null when no rule knows it.
  [[nodiscard]] const RuleOf* Find(std::string_view name) const;

 private:
  void Add(const std::string& name, RuleOf rule) { rules_.emplace(name, std::move(rule)); }
  void AddMaxText(const family::FamilyFile& family, const family::Model& model);
  std::map<std::string, RuleOf, std::less<>> rules_;
  bool nested_ = false;  ///< plain DCP: names stand below words of the user's own
  bool tree_ = false;    ///< MaxText's: names stand below those of a collection or of a level of the optimizer
};

/// The name without "param/", "optim/<slot>/" or "optimizer.state.<slot>.".
[[nodiscard]] std::string_view WithoutSlot(std::string_view name);

/// "model.layers.{0..3}.self_attn.{k,q,v}_proj.weight": many names as a few patterns, numbers as ranges.
[[nodiscard]] std::vector<std::string> FoldNames(const std::vector<std::string_view>& names);

}  // namespace crossdock::convert
