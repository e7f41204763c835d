// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_groups.h"

#include "dialects/mcore/keys.h"
#include "dialects/mcore/muon_groups.h"

namespace crossdock::dialects::mcore {

bool Decays(const std::string& name, const Shape& shape) { return shape.size() != 1 && !name.ends_with(".bias"); }

bool IsOfMuon(const std::string& name, const Shape& shape) { return shape.size() == 2 && !name.ends_with(kEmbeddingKey) && !name.ends_with(kHeadKey); }

bool IsModuleBuffer(std::string_view name) { return name.ends_with("mlp.router.expert_bias"); }

bool IsSharedEmbedding(std::string_view name, bool tied, bool predicts, bool embedding_beside) {
  if (name.ends_with(kEmbeddingKey)) return tied || predicts;
  return tied && !embedding_beside && name.ends_with(kHeadKey);
}

std::optional<bool> GroupDecays(const Value& group) {
  if (const std::optional<double> mult = group.GetFloat("wd_mult")) return *mult > 0;
  if (const std::optional<double> decay = group.GetFloat("weight_decay")) return *decay > 0;
  return std::nullopt;
}

bool IsExpertGroup(const Value& group) { return group.GetBool("is_expert_parallel").value_or(false); }

GroupRules::GroupRules(const std::vector<const Value*>& groups) {
  for (const Value* group : groups) {
    experts_ = experts_ || IsExpertGroup(*group);
    muon_ = muon_ || IsMuonGroup(*group);
  }
}

bool GroupRules::Holds(const Value& group, const GroupedParameter& parameter) const {
  if (IsModuleBuffer(parameter.name)) return false;
  if (GroupDecays(group) != Decays(parameter.name, parameter.shape)) return false;
  if (experts_ && IsExpertGroup(group) != parameter.expert) return false;
  return !muon_ || IsMuonGroup(group) == IsOfMuon(parameter.name, parameter.shape);
}

}  // namespace crossdock::dialects::mcore
