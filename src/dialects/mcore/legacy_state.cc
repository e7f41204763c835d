// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_state.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "dialects/mcore/legacy_groups.h"
#include "dialects/mcore/muon_groups.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;

/// The rank's optimizers: one, or the members of a chain (experts, Muon) in their order.
std::vector<const Value*> Optimizers(const LegacyRank& rank) {
  std::vector<const Value*> out;
  const Value* optimizer = rank.file->Find("optimizer");
  if (optimizer == nullptr) return out;
  if (const ValueList* chained = optimizer->as_sequence()) {
    for (const Value& one : *chained) out.push_back(&one);
  } else {
    out.push_back(optimizer);
  }
  return out;
}

/// {state, param_groups} of the torch optimizer: below `optimizer` where masters are kept apart, else the dict itself.
const Value* Inner(const Value& optimizer) {
  const Value* inner = optimizer.Find("optimizer");
  return inner != nullptr && inner->Find("param_groups") != nullptr ? inner : optimizer.Find("param_groups") != nullptr ? &optimizer : nullptr;
}

Error Untold(const LegacyRank& rank, std::string message) {
  return MakeError(ErrorCode::kUnsupported, std::move(message)).WithPath(rank.dir).WithHint("--no-optim leaves the optimizer state behind");
}

/// The parameter groups of one optimizer; none where they are no list.
const ValueList* GroupsOf(const Value& optimizer) {
  const Value* inner = Inner(optimizer);
  return inner == nullptr ? nullptr : inner->Find("param_groups")->as_sequence();
}

GroupRules RulesOf(const std::vector<const Value*>& optimizers) {
  std::vector<const Value*> all;
  for (const Value* optimizer : optimizers) {
    const ValueList* groups = GroupsOf(*optimizer);
    for (std::size_t g = 0; groups != nullptr && g < groups->size(); ++g) all.push_back(&(*groups)[g]);
  }
  return GroupRules(all);
}

class Mapper {
 public:
  Mapper(const Catalog& source, const LegacyRank& rank, const LegacyModel& shard, std::vector<const Value*> optimizers)
      : source_(source), rank_(rank), shard_(shard), optimizers_(std::move(optimizers)), rules_(RulesOf(optimizers_)) {}

  Result<LegacyState> Run() {
    for (const Value* optimizer : optimizers_) CROSSDOCK_RETURN_IF_ERROR(One(*optimizer));
    return std::move(out_);
  }

 private:
  Status One(const Value& optimizer) {
    masters_ = Lists(optimizer.Find("fp32_from_fp16_params"));
    ReadStates(*Inner(optimizer));
    const ValueList* groups = GroupsOf(optimizer);
    if (groups == nullptr) return Untold(rank_, "the optimizer's parameter groups are no list");
    for (std::size_t g = 0; g < groups->size(); ++g) {
      const Value& group = (*groups)[g];
      const std::optional<bool> decays = GroupDecays(group);
      if (!decays) return Untold(rank_, "a parameter group does not say whether weight decay counts for it");
      const bool fresh = seen_.emplace(*decays, rules_.experts() && IsExpertGroup(group), IsMuonGroup(group)).second;
      if (!fresh) return Untold(rank_, "several parameter groups have the same weight decay, so that their parameters cannot be told apart");
      CROSSDOCK_RETURN_IF_ERROR(Group(g, group, *decays));
    }
    return OkStatus();
  }

  static std::vector<const ValueList*> Lists(const Value* lists) {
    std::vector<const ValueList*> out;
    const ValueList* outer = lists != nullptr ? lists->as_sequence() : nullptr;
    for (std::size_t i = 0; outer != nullptr && i < outer->size(); ++i) out.push_back((*outer)[i].as_sequence());
    return out;
  }

  void ReadStates(const Value& inner) {
    states_.clear();
    const Value* state = inner.Find("state");
    if (state == nullptr || state->as_dict() == nullptr) return;
    for (const auto& [key, value] : state->as_dict()->items) {
      if (key.as_int() != nullptr) states_[*key.as_int()] = &value;
    }
  }

  /// The rank's parameters of a group, in the order of registration.
  std::vector<const LegacyTensor*> Members(const Value& group) const {
    std::vector<const LegacyTensor*> members;
    for (const std::vector<LegacyTensor>& chunk : shard_.chunks) {
      for (const LegacyTensor& tensor : chunk) {
        const Entry& entry = Param(tensor);
        if (!IsFloating(entry.dtype)) continue;
        if (rules_.Holds(group, {tensor.name, entry.shape, tensor.meaning.of_experts()})) members.push_back(&tensor);
      }
    }
    return members;
  }

  const Entry& Param(const LegacyTensor& tensor) const { return source_.entries[static_cast<std::size_t>(tensor.entry)]; }

  Status Group(std::size_t g, const Value& group, bool decays) {
    const Value* params = group.Find("params");
    const ValueList* numbers = params != nullptr ? params->as_sequence() : nullptr;
    if (numbers == nullptr) return Untold(rank_, "a parameter group does not number its parameters");
    const std::vector<const LegacyTensor*> members = Members(group);
    if (members.size() != numbers->size()) {
      if (IsLayerWise()) {
        return Untold(rank_, "every data-parallel rank keeps the state of whole parameters of its own (use_layer_wise_distributed_optimizer), beside the model's file in layer_wise_optimizer_D.pt, which is not read");
      }
      return Untold(rank_, "a parameter group has another number of parameters than the model")
          .WithExpected(fmt::format("{} {}", members.size(), decays ? "with weight decay" : "without weight decay"))
          .WithFound(fmt::format("{}", numbers->size()));
    }
    const ValueList* masters = g < masters_.size() ? masters_[g] : nullptr;
    // float32 parameters are their own masters, unless each parameter has one: then the run holds all of them in 16 bits, whatever is stored.
    const bool all = masters != nullptr && masters->size() == members.size();
    std::size_t next_master = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::int64_t* number = (*numbers)[i].as_int();
      if (number == nullptr) return Untold(rank_, "a parameter group does not number its parameters");
      SlotExprs slots;
      CROSSDOCK_RETURN_IF_ERROR(States(*members[i], *number, &slots));
      const DType dtype = Param(*members[i]).dtype;
      if (masters != nullptr && (all || dtype == DType::kBF16 || dtype == DType::kF16)) {
        if (next_master == masters->size()) return Untold(rank_, "a parameter group has too few master weights").WithTensor(members[i]->name);
        CROSSDOCK_RETURN_IF_ERROR(Take(*members[i], (*masters)[next_master++], Slot::kMaster, &slots));
      }
      if (std::ranges::any_of(slots, [](const Expr& e) { return e != nullptr; })) out_.params[members[i]->entry] = std::move(slots);
    }
    if (masters != nullptr && next_master != masters->size()) {
      return Untold(rank_, "a parameter group has another number of master weights than the model")
          .WithExpected(fmt::format("{}", next_master))
          .WithFound(fmt::format("{}", masters->size()));
    }
    return OkStatus();
  }

  Status States(const LegacyTensor& tensor, std::int64_t number, SlotExprs* slots) {
    const auto state = states_.find(number);
    if (state == states_.end() || state->second->as_dict() == nullptr) return OkStatus();
    for (const auto& [key, value] : state->second->as_dict()->items) {
      const std::string* name = key.as_string();
      if (name == nullptr) continue;
      if (*name == "step") {
        if (!out_.step) out_.step = value;
        continue;
      }
      if (value.as_tensor() == nullptr) continue;
      const std::optional<Slot> slot = *name == "exp_avg" ? std::optional(Slot::kAdamMu) : *name == "exp_avg_sq" ? std::optional(Slot::kAdamNu)
                                       : *name == "momentum_buffer" ? std::optional(Slot::kMuonMu) : *name == "master_param" ? std::optional(Slot::kMaster)
                                                                                                                             : std::nullopt;
      if (!slot) return Untold(rank_, fmt::format("the optimizer holds {}, which is no state of Adam", Printable(*name))).WithTensor(tensor.name);
      CROSSDOCK_RETURN_IF_ERROR(Take(tensor, value, *slot, slots));
    }
    return OkStatus();
  }

  [[nodiscard]] bool IsLayerWise() const {
    const Value* on = rank_.file->FindPath("args.use_layer_wise_distributed_optimizer");
    return on != nullptr && on->as_bool() != nullptr && *on->as_bool();
  }

  /// The proof that the order is right: the state has the parameter's shape.
  Status Take(const LegacyTensor& tensor, const Value& value, Slot slot, SlotExprs* slots) {
    const TensorValue* stored = value.as_tensor();
    const std::int32_t index = stored == nullptr ? -1 : source_.Find(stored->storage);
    if (index < 0) return Untold(rank_, "an optimizer state has no data").WithTensor(tensor.name);
    const Entry& entry = source_.entries[static_cast<std::size_t>(index)];
    if (entry.shape != Param(tensor).shape || !IsFloating(entry.dtype)) {
      return Untold(rank_, "the optimizer's states are not in the order of the model's parameters")
          .WithTensor(tensor.name)
          .WithExpected(fmt::format("a floating state of shape {}", ToString(Param(tensor).shape)))
          .WithFound(fmt::format("{} {} in {}", DTypeName(entry.dtype), ToString(entry.shape), Printable(entry.name)));
    }
    (*slots)[static_cast<std::size_t>(slot)] = expr::Leaf(index, entry.dtype, entry.shape);
    return OkStatus();
  }

  const Catalog& source_;
  const LegacyRank& rank_;
  const LegacyModel& shard_;
  const std::vector<const Value*> optimizers_;
  const GroupRules rules_;
  std::set<std::tuple<bool, bool, bool>> seen_;           // decays, experts', Muon's
  std::vector<const ValueList*> masters_;                 // of the optimizer at hand
  std::map<std::int64_t, const Value*> states_;           // the same
  LegacyState out_;
};

}  // namespace

bool HasLegacyOptimizer(const LegacyRank& rank) {
  return std::ranges::any_of(Optimizers(rank), [](const Value* optimizer) { return Inner(*optimizer) != nullptr; });
}

Result<LegacyState> ReadLegacyOptimizer(const Catalog& source, const LegacyRank& rank, const LegacyModel& shard) {
  std::vector<const Value*> optimizers = Optimizers(rank);
  const bool known = std::ranges::all_of(optimizers, [](const Value* optimizer) { return Inner(*optimizer) != nullptr; });
  if (!known) return Untold(rank, "a member of the chain of optimizers has no parameter groups");
  return Mapper(source, rank, shard, std::move(optimizers)).Run();
}

Value CommonOptimizer(const LegacyRank& rank, const std::optional<Value>& step) {
  ValueDict chain;
  for (const Value* optimizer : Optimizers(rank)) {
    ValueList groups;
    const ValueList* stored = GroupsOf(*optimizer);
    for (std::size_t i = 0; stored != nullptr && i < stored->size(); ++i) {
      Value group = (*stored)[i];
      if (group.as_dict() == nullptr) continue;
      group.Erase("params");
      if (step && group.Find("step") == nullptr && !IsMuonGroup(group)) group.Set("step", *step);
      groups.push_back(std::move(group));
    }
    Value torch = Value::MakeDict();
    torch.Set("param_groups", Value::MakeList(std::move(groups)));
    Value one = Value::MakeDict();
    one.Set("optimizer", std::move(torch));
    if (const Value* scaler = optimizer->Find("grad_scaler")) one.Set("grad_scaler", *scaler);
    chain.emplace_back(Value(static_cast<std::int64_t>(chain.size())), std::move(one));
  }
  if (chain.size() == 1) return std::move(chain.front().second);
  return Value::MakeDict(std::move(chain));
}

}  // namespace crossdock::dialects::mcore
