// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_optimizer.h"

#include "base/check.h"
#include "dialects/mcore/muon_groups.h"
#include "dialects/mcore/training_state.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// One group of a kind, or none of it.
struct Kinds {
  ValueList decaying, plain;             // Adam's, without experts
  ValueList muon;
  ValueList experts, muon_experts;
};

Kinds Sorted(const ValueList& groups) {
  Kinds kinds;
  for (const Value& group : groups) {
    const bool experts = IsExpertGroup(group);
    ValueList& of_adam = experts ? kinds.experts : GroupDecays(group).value_or(true) ? kinds.decaying : kinds.plain;
    (IsMuonGroup(group) ? (experts ? kinds.muon_experts : kinds.muon) : of_adam).push_back(group);
  }
  return kinds;
}

Value ForExperts(Value group) {
  group.Set("is_expert_parallel", Value(true));
  return group;
}

Value Torch(ValueList groups) {
  Value inner = Value::MakeDict();
  inner.Set("param_groups", Value::MakeList(std::move(groups)));
  return inner;
}

/// One dict, or the list of a chain.
Value Joined(ValueList members) { return members.size() == 1 ? std::move(members.front()) : Value::MakeList(std::move(members)); }

Value Member(Value inner, const LegacyChain& chain) {
  Value out = Value::MakeDict();
  out.Set("optimizer", std::move(inner));
  if (!chain.scaler.is_null()) out.Set("grad_scaler", chain.scaler);
  return out;
}

const Value* ScalerOf(const Value& common) {
  if (const Value* scaler = common.Find("grad_scaler")) return scaler;
  const Value::Dict* members = common.as_dict();
  for (std::size_t i = 0; members != nullptr && i < members->items.size(); ++i) {
    if (const Value* scaler = members->items[i].second.Find("grad_scaler")) return scaler;
  }
  return nullptr;
}

}  // namespace

Result<LegacyChain> ChainOf(const Value& common, bool experts) {
  Value whole = Value::MakeDict();
  whole.Set("optimizer", common);
  Kinds kinds = Sorted(ParamGroups(whole));
  const std::size_t most_muon = kinds.muon.empty() ? 0 : 1;
  if (kinds.decaying.size() != 1 || kinds.plain.size() != 1 || kinds.muon.size() != most_muon || kinds.experts.size() > 1 || kinds.muon_experts.size() > 1) {
    return MakeError(ErrorCode::kUnsupported, "a legacy checkpoint's optimizer needs two parameter groups for Adam, with and without weight decay, and at most one for Muon")
        .WithExpected("one of each")
        .WithFound(fmt::format("{} with, {} without, {} of Muon, {} of experts", kinds.decaying.size(), kinds.plain.size(), kinds.muon.size(),
                               kinds.experts.size() + kinds.muon_experts.size()))
        .WithHint("write `--to megatron`, or leave the state behind with --no-optim");
  }
  LegacyChain chain;
  chain.muon = most_muon > 0;
  chain.experts = experts;
  if (const Value* scaler = ScalerOf(common)) chain.scaler = *scaler;
  if (chain.muon) {
    chain.optimizers.push_back({kinds.muon.front()});
    if (experts) chain.optimizers.push_back({kinds.muon_experts.empty() ? ForExperts(kinds.muon.front()) : kinds.muon_experts.front()});
  }
  chain.optimizers.push_back({kinds.decaying.front(), kinds.plain.front()});
  if (!chain.muon && experts) chain.optimizers.push_back({kinds.experts.empty() ? ForExperts(kinds.decaying.front()) : kinds.experts.front()});
  return chain;
}

Result<std::vector<OptimizerPlace>> OptimizerPlaces(const LegacyChain& chain, const std::vector<GroupedParameter>& parameters) {
  const GroupRules rules(chain.experts, chain.muon);
  std::vector<OptimizerPlace> out(parameters.size());
  std::vector<bool> placed(parameters.size(), false);
  for (std::size_t at = 0; at < chain.optimizers.size(); ++at) {
    std::size_t number = 0;
    for (std::size_t group = 0; group < chain.optimizers[at].size(); ++group) {
      std::size_t index = 0;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (!rules.Holds(chain.optimizers[at][group], parameters[i])) continue;
        out[i] = {at, number++, group, index++};
        placed[i] = true;
      }
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (placed[i]) continue;
    return MakeError(ErrorCode::kUnsupported, "no parameter group of the optimizer holds this parameter").WithTensor(parameters[i].name).WithHint("write `--to megatron`, or leave the state behind with --no-optim");
  }
  return out;
}

std::string PathInChain(const LegacyChain& chain, const OptimizerPlace& place) { return chain.optimizers.size() == 1 ? std::string() : fmt::format("{}/", place.optimizer); }

Value MakePlainOptimizer(const LegacyChain& chain, const std::vector<OptimizerPlace>& places, const std::vector<OptimizedParameter>& parameters) {
  ValueList members;
  for (std::size_t at = 0; at < chain.optimizers.size(); ++at) {
    std::vector<std::size_t> mine;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i].optimizer == at) mine.push_back(i);
    }
    ValueList groups = chain.optimizers[at];
    ValueDict state(mine.size());
    std::vector<ValueList> masters(groups.size());
    std::vector<ValueList> numbers(groups.size());
    for (const std::size_t i : mine) {
      const OptimizerPlace& place = places[i];
      const auto number = static_cast<std::int64_t>(place.number);
      Value moments = Value::MakeDict();
      if (parameters[i].momentum.is_null()) {
        moments.Set("exp_avg", parameters[i].mu);
        moments.Set("exp_avg_sq", parameters[i].nu);
      } else {
        moments.Set("momentum_buffer", parameters[i].momentum);
      }
      state[place.number] = {Value(number), std::move(moments)};
      CROSSDOCK_CHECK(masters[place.group].size() == place.index);
      masters[place.group].push_back(parameters[i].master);
      numbers[place.group].emplace_back(number);
    }
    ValueList all;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      groups[g].Set("params", Value::MakeList(std::move(numbers[g])));
      all.push_back(Value::MakeList(std::move(masters[g])));
    }
    Value inner = Value::MakeDict();
    inner.Set("state", Value::MakeDict(std::move(state)));
    inner.Set("param_groups", Value::MakeList(std::move(groups)));
    Value member = Member(std::move(inner), chain);
    member.Set("fp32_from_fp16_params", Value::MakeList(std::move(all)));
    members.push_back(std::move(member));
  }
  return Joined(std::move(members));
}

Value MakeDistributedOptimizer(const LegacyChain& chain) {
  ValueList members;
  for (ValueList groups : chain.optimizers) {
    for (Value& group : groups) group.Erase("params");
    members.push_back(Member(Torch(std::move(groups)), chain));
  }
  return Joined(std::move(members));
}

}  // namespace crossdock::dialects::mcore
