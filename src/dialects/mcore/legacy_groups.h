// SPDX-License-Identifier: Apache-2.0
/// \file  Which parameters a parameter group of a rank's optimizers holds, by what the group says of itself.
/// Source: megatron-core 0.19.2, optimizer/__init__.py (_get_param_groups, _get_megatron_emerging_optimizer): groups divide by weight
/// decay (matrices that are no biases), with expert-parallel ranks by experts, and beside Muon by its rule. They stand in one optimizer,
/// or in a chain: [dense, experts], or [Muon, Muon of the experts, Adam]. A module's buffers are nobody's.
/// Threads: functions are pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dims.h"
#include "tensor/value.h"

namespace crossdock::dialects::mcore {

struct GroupedParameter {
  std::string name;        ///< of the module
  Shape shape;
  bool expert = false;     ///< one of the experts'
};

/// True when weight decay applies: matrices that are no biases.
[[nodiscard]] bool Decays(const std::string& name, const Shape& shape);

/// Megatron's rule beside Muon: matrices are Muon's, but not the embedding and the head.
[[nodiscard]] bool IsOfMuon(const std::string& name, const Shape& shape);

/// Buffers of a module that are stored and have no gradient.
[[nodiscard]] bool IsModuleBuffer(std::string_view name);

/// Whether a parameter is the embedding that stages share, which has a bucket to itself: the embedding where layers of multi-token prediction
/// have it beside them, or a tied model's, whose head is its copy on a stage without it. For runs of more stages than one.
[[nodiscard]] bool IsSharedEmbedding(std::string_view name, bool tied, bool predicts, bool embedding_beside);

/// Whether weight decay counts for a group; nothing when it does not say.
[[nodiscard]] std::optional<bool> GroupDecays(const Value& group);

[[nodiscard]] bool IsExpertGroup(const Value& group);

/// What the groups of all optimizers of a rank divide by.
class GroupRules {
 public:
  explicit GroupRules(const std::vector<const Value*>& groups);
  GroupRules(bool experts, bool muon) : experts_(experts), muon_(muon) {}
  /// A group that does not say whether it decays holds nothing.
  [[nodiscard]] bool Holds(const Value& group, const GroupedParameter& parameter) const;
  [[nodiscard]] bool experts() const { return experts_; }
  [[nodiscard]] bool muon() const { return muon_; }

 private:
  bool experts_ = false;
  bool muon_ = false;
};

}  // namespace crossdock::dialects::mcore
