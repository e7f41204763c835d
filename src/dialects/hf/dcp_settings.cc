// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/dcp_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/digits.h"
#include "dialects/hf/muon_group.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::string_view kConsumedSamples = "consumed_train_samples";

const Value::Dict* DictOf(const Catalog& source, const char* name) {
  const auto found = source.objects.find(name);
  return found == source.objects.end() ? nullptr : found->second.as_dict();
}

/// A whole number, also when torch keeps it as a float.
std::optional<std::int64_t> Whole(const Value& value) {
  if (const std::int64_t* whole = value.as_int()) return *whole;
  const double* real = value.as_float();
  if (real == nullptr || !(*real >= 0 && *real < 9e15) || std::floor(*real) < *real) return std::nullopt;
  return static_cast<std::int64_t>(*real);
}

/// Calls `visit(key, value)` for numbers stored as tensors and as bytes items.
template <typename Visit>
void ForEachObject(const Catalog& source, Visit visit) {
  for (const char* name : {"scalars", "items"}) {
    const Value::Dict* dict = DictOf(source, name);
    if (dict == nullptr) continue;
    for (const auto& [key, value] : dict->items) visit(*key.as_string(), value);
  }
}

/// A group's names as hub names; a name that is none stays out, as a parameter of another model would.
Value HubNames(const Value& params, const NameIndex& names) {
  ValueList out;
  if (const ValueList* list = params.as_sequence()) {
    for (const Value& item : *list) {
      if (item.as_string() == nullptr) continue;
      if (const auto found = names.Find(*item.as_string(), true)) out.emplace_back(found->hub);
    }
  }
  return Value::MakeList(std::move(out));
}

/// Flattened state dicts have a group a parameter: those with equal settings are one.
ValueList JoinFlattened(const std::map<std::string, Value>& by_name, const NameIndex& names) {
  std::vector<std::pair<const Value*, ValueList>> joined;  // settings, members
  for (const auto& [name, settings] : by_name) {
    const auto found = names.Find(name, true);
    if (!found) continue;
    const auto same = std::ranges::find_if(joined, [&](const auto& group) { return group.first->Equals(settings); });
    if (same == joined.end()) {
      joined.push_back({&settings, {Value(found->hub)}});
    } else {
      same->second.emplace_back(found->hub);
    }
  }
  ValueList groups;
  for (auto& [settings, members] : joined) {
    Value group = *settings;
    group.Set("params", Value::MakeList(std::move(members)));
    groups.push_back(std::move(group));
  }
  return groups;
}

std::optional<double> Real(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

constexpr std::array kSettable = {"lr", "weight_decay", "adam_beta1", "adam_beta2", "adam_eps", "muon_momentum"};

Result<std::map<std::string, double>> SetValues(const TargetOptions& options) {
  std::map<std::string, double> out;
  for (const auto& [name, text] : options.set_args) {
    if (std::ranges::find(kSettable, name) == kSettable.end()) {
      return MakeError(ErrorCode::kUsage, fmt::format("`--set {}` means nothing for a target of format `dcp`", Printable(name)))
          .WithExpected("lr, weight_decay, adam_beta1, adam_beta2, adam_eps or muon_momentum");
    }
    const std::optional<double> value = Real(text);
    if (!value) return MakeError(ErrorCode::kUsage, fmt::format("`--set {}` takes a number", name)).WithFound(Printable(text));
    out[name] = *value;
  }
  return out;
}

/// The group of the source whose settings speak for all of an optimizer: the one that decays weights.
const Value* Decayed(const Value& extras, bool muon) {
  const Value* groups = extras.Find("param_groups");
  const ValueList* list = groups == nullptr ? nullptr : groups->as_sequence();
  if (list == nullptr) return nullptr;
  const Value* best = nullptr;
  const auto decay = [](const Value& group) { return group.GetFloat("weight_decay").value_or(0); };
  for (const Value& group : *list) {
    if (IsMuonGroup(group) != muon) continue;
    if (best == nullptr || decay(group) > decay(*best)) best = &group;
  }
  return best;
}

/// Every field that a group of torch.optim.Muon has in torch 2.15 (torch/optim/_muon.py).
void FillMuonDefaults(Value* group) {
  const std::pair<const char*, Value> defaults[] = {{"nesterov", Value(true)}, {"ns_coefficients", Value::MakeTuple({Value(3.4445), Value(-4.7750), Value(2.0315)})},
                                                     {"eps", Value(1e-7)},      {"ns_steps", Value(5)},
                                                     {"adjust_lr_fn", Value()}};
  for (const auto& [name, value] : defaults) {
    if (group->Find(name) == nullptr) group->Set(name, value);
  }
}

/// Every field that AdamW's group has in torch 2.15: dcp.load asks for each one that the loading optimizer has.
void FillDefaults(Value* group) {
  const std::pair<const char*, Value> defaults[] = {{"amsgrad", Value(false)},  {"maximize", Value(false)}, {"foreach", Value()},
                                                     {"capturable", Value(false)}, {"differentiable", Value(false)}, {"fused", Value()},
                                                     {"decoupled_weight_decay", Value(true)}};
  for (const auto& [name, value] : defaults) {
    if (group->Find(name) == nullptr) group->Set(name, value);
  }
}

/// A pair, whatever the carrier made of it.
std::optional<std::pair<double, double>> Betas(const Value* group) {
  const Value* betas = group == nullptr ? nullptr : group->Find("betas");
  const ValueList* pair = betas == nullptr ? nullptr : betas->as_sequence();
  if (pair == nullptr || pair->size() != 2 || (*pair)[0].as_float() == nullptr || (*pair)[1].as_float() == nullptr) return std::nullopt;
  return std::pair(*(*pair)[0].as_float(), *(*pair)[1].as_float());
}

Value BetaPair(double first, double second) { return Value::MakeTuple({Value(first), Value(second)}); }

/// The source's own groups, when they are torch's and name every parameter once.
std::optional<ValueList> OwnGroups(const HubState& hub, const std::vector<std::string>& params) {
  const Value* groups = hub.extras.Find("param_groups");
  const ValueList* list = groups == nullptr ? nullptr : groups->as_sequence();
  if (hub.extras_words != "torch" || list == nullptr) return std::nullopt;
  std::multiset<std::string> named;
  ValueList out = *list;
  for (Value& group : out) {
    const Value* members = group.Find("params");
    if (members == nullptr || members->as_sequence() == nullptr || !group.GetFloat("lr")) return std::nullopt;
    ValueList kept;
    for (const Value& name : *members->as_sequence()) {
      // A tied head is named beside the embedding that holds the state of both.
      if (name.as_string() == nullptr || !std::ranges::binary_search(params, *name.as_string())) continue;
      named.insert(*name.as_string());
      kept.push_back(name);
    }
    group.Set("params", Value::MakeList(std::move(kept)));
  }
  if (!std::ranges::equal(named, std::multiset<std::string>(params.begin(), params.end()))) return std::nullopt;
  return out;
}

/// Also over groups of the source's own.
void ApplySet(const std::map<std::string, double>& set, bool muon, Value* group) {
  for (const auto& [name, key] : {std::pair{"lr", "lr"}, std::pair{"weight_decay", "weight_decay"}, std::pair{muon ? "muon_momentum" : "adam_eps", muon ? "momentum" : "eps"}}) {
    if (const auto found = set.find(name); found != set.end()) group->Set(key, Value(found->second));
  }
  if (muon) return;
  const auto pair = Betas(group).value_or(std::pair(0.9, 0.999));
  const auto first = set.find("adam_beta1");
  const auto second = set.find("adam_beta2");
  group->Set("betas", BetaPair(first == set.end() ? pair.first : first->second, second == set.end() ? pair.second : second->second));
}

/// What Megatron keeps of its Muon among the run's arguments.
void CarryMuonArguments(const Value& extras, Value* group) {
  if (const Value* nesterov = extras.FindPath("args.muon_nesterov"); nesterov != nullptr && nesterov->as_bool() != nullptr) group->Set("nesterov", *nesterov);
  if (const Value* steps = extras.FindPath("args.muon_num_ns_steps"); steps != nullptr && steps->as_int() != nullptr) group->Set("ns_steps", *steps);
}

/// One group for all parameters of an optimizer. `missing` gathers the settings that nobody says.
Value OneGroup(const HubState& hub, bool muon, const std::vector<std::string>& params, const std::map<std::string, double>& set, std::string* missing, std::vector<std::string>* notices) {
  const Value* source = Decayed(hub.extras, muon);
  Value group = Value::MakeDict();
  std::vector<std::pair<const char*, const char*>> needed = {{"lr", "lr"}, {"weight_decay", "weight_decay"}};
  if (muon) needed.emplace_back("momentum", "muon_momentum");
  for (const auto& [key, name] : needed) {
    auto carried = source == nullptr ? std::nullopt : source->GetFloat(key);
    if (muon && !carried && std::string_view(key) == "momentum") carried = hub.muon_beta;
    if (carried) group.Set(key, Value(*carried));
    if (const auto said = set.find(name); said != set.end()) group.Set(key, Value(said->second));
    const std::string asked = fmt::format("--set {}=VALUE", name);
    if (!carried && !set.contains(name) && missing->find(asked) == std::string::npos) *missing += (missing->empty() ? "" : " ") + asked;
  }
  if (muon) {
    CarryMuonArguments(hub.extras, &group);
    notices->push_back("torch.optim.Muon's own settings are torch's defaults where the source does not say them: a run that scales its updates otherwise says so itself (adjust_lr_fn, ns_coefficients)");
  } else {
    const auto betas = Betas(source);
    const auto epsilon = source == nullptr ? std::nullopt : source->GetFloat("eps");
    const bool assumed = (!betas && !(set.contains("adam_beta1") && set.contains("adam_beta2"))) || (!epsilon && !set.contains("adam_eps"));
    if (betas) group.Set("betas", BetaPair(betas->first, betas->second));
    group.Set("eps", Value(epsilon.value_or(1e-8)));
    if (assumed) notices->push_back("Adam's betas or eps are torch's defaults where the source does not say them (--set adam_beta1=, adam_beta2=, adam_eps=)");
  }
  ValueList members;
  for (const std::string& name : params) members.emplace_back(name);
  group.Set("params", Value::MakeList(std::move(members)));
  return group;
}

}  // namespace

Result<std::optional<std::int64_t>> ReadAdamStep(const Catalog& source) {
  std::optional<std::int64_t> step;
  std::string first;
  Status status = OkStatus();
  ForEachObject(source, [&](const std::string& key, const Value& value) {
    const auto parsed = ParseStateKey(key);
    if (!status || !parsed || parsed->kind != StateKind::kStep) return;
    const std::optional<std::int64_t> here = Whole(value);
    if (!here) {
      status = MakeError(ErrorCode::kCorrupt, "an optimizer's step is no whole number").WithTensor(key).WithFound(ToJson(value, 0));
    } else if (step && *step != *here) {
      status = MakeError(ErrorCode::kUnsupported, "parameters are at different steps of the optimizer")
                   .WithTensor(key)
                   .WithExpected(fmt::format("{}, as `{}` says", *step, Printable(first)))
                   .WithFound(std::to_string(*here))
                   .WithHint("one step for all can be carried; --no-optim converts the parameters alone");
    } else {
      step = here;
      if (first.empty()) first = key;
    }
  });
  if (!status) return status.error();
  return step;
}

ValueList ReadParamGroups(const Catalog& source, const NameIndex& names) {
  std::map<std::int64_t, Value> numbered;
  std::map<std::string, Value> flattened;
  ForEachObject(source, [&](const std::string& key, const Value& value) {
    const auto parsed = ParseGroupKey(key);
    if (!parsed) return;
    const bool number = OnlyDigits(parsed->group) && parsed->group.size() < 10;
    Value& group = number ? numbered.try_emplace(std::stoll(parsed->group), Value::MakeDict()).first->second
                          : flattened.try_emplace(parsed->group, Value::MakeDict()).first->second;
    if (value.as_opaque() != nullptr || value.as_tensor() != nullptr) return;
    group.Set(parsed->field, parsed->field == "params" ? HubNames(value, names) : value);
  });
  if (numbered.empty()) return JoinFlattened(flattened, names);
  ValueList groups;
  for (auto& [index, group] : numbered) groups.push_back(std::move(group));
  return groups;
}

bool HasSgd(const Catalog& source) {
  bool found = false;
  ForEachObject(source, [&](const std::string& key, const Value&) {
    const auto parsed = ParseGroupKey(key);
    found = found || (parsed && parsed->field == "dampening");
  });
  return found;
}

bool IsRootCounter(std::string_view key) {
  return key == "step" || key == "global_step" || key == "iteration" || key == "train_state.step" || key == kConsumedSamples;
}

Counters ReadRootCounters(const Catalog& source) {
  Counters counters;
  ForEachObject(source, [&](const std::string& key, const Value& value) {
    if (!IsRootCounter(key)) return;
    if (key == kConsumedSamples) {
      counters.consumed_train_samples = Whole(value);
    } else if (!counters.step) {
      counters.step = Whole(value);
    }
  });
  return counters;
}

Result<ParamGroupsToWrite> MakeParamGroups(const HubState& hub, const TargetOptions& options, const ParamsWithState& params) {
  ParamGroupsToWrite out;
  CROSSDOCK_ASSIGN_OR_RETURN(const auto set, SetValues(options));
  if (set.contains("muon_momentum") && params.muon.empty()) {
    return MakeError(ErrorCode::kUsage, "`--set muon_momentum` means nothing where no state of Muon is carried").WithHint("leave it out");
  }
  std::vector<std::string> all;
  std::ranges::merge(params.adam, params.muon, std::back_inserter(all));
  if (auto own = OwnGroups(hub, all)) {
    out.groups = *std::move(own);
  } else {
    std::string missing;
    if (!params.muon.empty()) out.groups.push_back(OneGroup(hub, true, params.muon, set, &missing, &out.notices));
    if (!params.adam.empty()) out.groups.push_back(OneGroup(hub, false, params.adam, set, &missing, &out.notices));
    if (!missing.empty()) {
      return MakeError(ErrorCode::kUsage, "a checkpoint with optimizer state must store its settings, which the source does not say")
          .WithExpected(missing)
          .WithHint("give the values of the run that will load it, or leave the state behind with --no-optim");
    }
    const Value* groups = hub.extras.Find("param_groups");
    if (groups != nullptr && groups->as_sequence() != nullptr && groups->as_sequence()->size() > out.groups.size()) {
      out.notices.push_back(fmt::format("the source keeps {} parameter groups without names; one group holds all parameters{}, with the settings of the one that decays weights",
                                        groups->as_sequence()->size(), out.groups.size() > 1 ? " of an optimizer" : ""));
    }
  }
  for (Value& group : out.groups) {
    const bool muon = IsMuonGroup(group);
    ApplySet(set, muon, &group);
    if (muon) {
      FillMuonDefaults(&group);
    } else {
      FillDefaults(&group);
    }
  }
  return out;
}

}  // namespace crossdock::dialects::hf
