// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/muon_groups.h"

#include <utility>

namespace crossdock::dialects::mcore {
namespace {

Value OneOfChain(ValueList groups) {
  Value inner = Value::MakeDict();
  inner.Set("param_groups", Value::MakeList(std::move(groups)));
  Value optimizer = Value::MakeDict();
  optimizer.Set("optimizer", std::move(inner));
  return optimizer;
}

}  // namespace

Value MakeMuonGroup(const MuonSettings& settings, bool experts) {
  Value group = Value::MakeDict();
  group.Set("is_expert_parallel", Value(experts));
  group.Set("default_config", Value(true));
  group.Set("wd_mult", Value(1.0));
  group.Set("lr_mult", Value(1.0));
  group.Set("is_decoupled_lr", Value(false));
  group.Set("max_lr", Value(settings.max_lr));
  group.Set("min_lr", Value(settings.min_lr));
  group.Set("lr", Value(settings.lr));
  group.Set("momentum", Value(settings.momentum));
  group.Set("weight_decay", Value(settings.weight_decay));
  return group;
}

Value ChainMuon(const MuonSettings& settings, ValueList adam, bool experts) {
  // A run matches its groups by this word too; it stands in the groups that are not the chosen optimizer's own.
  for (Value& group : adam) group.Set("optimizer", Value("adam"));
  ValueDict chain;
  const auto add = [&](ValueList groups) { chain.emplace_back(Value(static_cast<std::int64_t>(chain.size())), OneOfChain(std::move(groups))); };
  add({MakeMuonGroup(settings, false)});
  if (experts) add({MakeMuonGroup(settings, true)});
  add(std::move(adam));
  return Value::MakeDict(std::move(chain));
}

}  // namespace crossdock::dialects::mcore
