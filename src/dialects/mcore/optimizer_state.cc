// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/optimizer_state.h"

#include <algorithm>

#include "dialects/mcore/args.h"
#include "dialects/mcore/muon_groups.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// Settings by the names of Megatron's arguments; what was asked for with --set wins over what the source carried.
class Settings {
 public:
  explicit Settings(const CommonRequest& request) : request_(request) {
    const Value* groups = request.hub->extras.Find("param_groups");
    const ValueList* list = groups != nullptr ? groups->as_sequence() : nullptr;
    if (list == nullptr) return;
    for (const Value& group : *list) {
      // The group whose weight decay counts speaks for all of its optimizer.
      const Value*& chosen = IsMuonGroup(group) ? muon_ : decayed_;
      if (chosen == nullptr || Decay(group) > Decay(*chosen)) chosen = &group;
    }
  }

  /// Megatron's multiplier, else (in groups of torch's own optimizers) the decay itself.
  static double Decay(const Value& group) { return group.GetFloat("wd_mult").value_or(group.GetFloat("weight_decay").value_or(0)); }

  [[nodiscard]] bool IsSet(const std::string& name) const { return request_.options->set_args.contains(name); }

  [[nodiscard]] std::optional<double> Find(const std::string& name, std::string_view in_group) const {
    if (const auto set = request_.options->set_args.find(name); set != request_.options->set_args.end()) {
      const Value value = ParseArgument(set->second);
      if (const double* real = value.as_float()) return *real;
      if (const std::int64_t* whole = value.as_int()) return static_cast<double>(*whole);
      return std::nullopt;
    }
    for (const Value* group : {decayed_, muon_}) {
      if (group == nullptr) continue;
      if (const std::optional<double> found = group->GetFloat(in_group)) return found;
    }
    const Value& extras = request_.hub->extras;
    if (const std::optional<double> found = extras.GetFloat("args." + name)) return found;
    return extras.GetFloat(name);
  }

  [[nodiscard]] const Value* decayed() const { return decayed_; }   ///< of Adam's groups
  [[nodiscard]] const Value* muon() const { return muon_; }

 private:
  const CommonRequest& request_;
  const Value* decayed_ = nullptr;
  const Value* muon_ = nullptr;
};

struct Hyper {
  double max_lr = 0, lr = 0, min_lr = 0, weight_decay = 0, beta1 = 0, beta2 = 0, epsilon = 0;
};

Result<Hyper> ReadHyper(const Settings& settings, std::vector<std::string>* notices) {
  const std::optional<double> max_lr = settings.Find("lr", "max_lr");
  const std::optional<double> min_lr = settings.Find("min_lr", "min_lr");
  const std::optional<double> decay = settings.Find("weight_decay", "weight_decay");
  std::string missing;
  for (const auto& [value, name] : {std::pair{&max_lr, "lr"}, std::pair{&min_lr, "min_lr"}, std::pair{&decay, "weight_decay"}}) {
    if (!*value) missing += fmt::format("{}--set {}=VALUE", missing.empty() ? "" : " ", name);
  }
  if (!missing.empty()) {
    return MakeError(ErrorCode::kUsage, "Megatron's checkpoint must store the optimizer's settings, which the source does not say")
        .WithExpected(missing)
        .WithHint("give the values of the run that will load it (Megatron matches parameter groups by them), or leave the state behind with --no-optim");
  }
  Hyper hyper{*max_lr, *max_lr, *min_lr, *decay, 0.9, 0.999, 1e-8};
  if (settings.decayed() != nullptr && !settings.IsSet("lr")) hyper.lr = settings.decayed()->GetFloat("lr").value_or(hyper.max_lr);
  const Value* betas = settings.decayed() != nullptr ? settings.decayed()->Find("betas") : nullptr;
  const ValueList* pair = betas != nullptr ? betas->as_sequence() : nullptr;
  bool assumed = false;
  const auto beta = [&](const char* name, std::size_t at, double fallback) {
    if (pair != nullptr && pair->size() == 2 && (*pair)[at].as_float() != nullptr && !settings.IsSet(name)) return *(*pair)[at].as_float();
    const std::optional<double> found = settings.Find(name, name);
    assumed = assumed || !found;
    return found.value_or(fallback);
  };
  hyper.beta1 = beta("adam_beta1", 0, 0.9);
  hyper.beta2 = beta("adam_beta2", 1, 0.999);
  const std::optional<double> epsilon = settings.Find("adam_eps", "eps");
  assumed = assumed || !epsilon;
  hyper.epsilon = epsilon.value_or(1e-8);
  if (assumed) {
    notices->push_back(fmt::format("Adam's betas ({}, {}) and eps ({}) are assumed where the source does not say them (--set adam_beta1=, adam_beta2=, adam_eps=)",
                                   hyper.beta1, hyper.beta2, hyper.epsilon));
  }
  return hyper;
}

Value MakeGroup(const Hyper& hyper, bool decayed, std::int64_t step, bool experts = false) {
  Value group = Value::MakeDict();
  group.Set("is_expert_parallel", Value(experts));
  group.Set("default_config", Value(true));
  group.Set("wd_mult", Value(decayed ? 1.0 : 0.0));
  group.Set("lr_mult", Value(1.0));
  group.Set("is_decoupled_lr", Value(false));
  group.Set("max_lr", Value(hyper.max_lr));
  group.Set("min_lr", Value(hyper.min_lr));
  group.Set("lr", Value(hyper.lr));
  group.Set("betas", Value::MakeTuple({Value(hyper.beta1), Value(hyper.beta2)}));
  group.Set("eps", Value(hyper.epsilon));
  group.Set("weight_decay", Value(decayed ? hyper.weight_decay : 0.0));
  group.Set("bias_correction", Value(true));
  group.Set("step", Value(step));
  return group;
}

Result<std::int64_t> AdamStep(const CommonRequest& request, std::vector<std::string>* notices) {
  if (request.hub->counters.adam_count) return *request.hub->counters.adam_count;
  const std::optional<std::int64_t> step = request.hub->counters.step ? request.hub->counters.step : request.options->iteration;
  if (!step) {
    return MakeError(ErrorCode::kUsage, "the source does not say Adam's step, which Megatron must continue from")
        .WithHint("give it with --iteration N, or leave the state behind with --no-optim");
  }
  notices->push_back(fmt::format("Adam's step is taken to be the iteration, {}", *step));
  return *step;
}

/// The scheduler counts samples. Its limits belong to the run that loads: --override-opt_param-scheduler says so.
Value MakeScheduler(const CommonRequest& request, const Hyper& hyper) {
  Value scheduler = Value::MakeDict();
  const std::int64_t samples = request.hub->counters.consumed_train_samples.value_or(0);
  scheduler.Set("max_lr", Value(hyper.max_lr));
  scheduler.Set("lr_warmup_steps", Value(0));
  scheduler.Set("num_steps", Value(samples));
  scheduler.Set("lr_decay_style", Value("linear"));
  scheduler.Set("lr_decay_steps", Value(std::max<std::int64_t>(samples, 1)));
  scheduler.Set("min_lr", Value(hyper.min_lr));
  scheduler.Set("start_wd", Value(hyper.weight_decay));
  scheduler.Set("end_wd", Value(hyper.weight_decay));
  scheduler.Set("wd_incr_style", Value("constant"));
  scheduler.Set("wd_incr_steps", Value(std::max<std::int64_t>(samples, 1)));
  return scheduler;
}

/// Carried groups, with what --set changes and plain flags where older files lack them.
ValueList CarriedGroups(const ValueList& carried, const Settings& settings, const Hyper& hyper, std::int64_t step) {
  ValueList groups;
  for (Value group : carried) {
    const bool decayed = group.GetFloat("wd_mult").value_or(group.GetFloat("weight_decay").value_or(0)) > 0;
    const Value fresh = MakeGroup(hyper, decayed, step);
    for (const auto& [key, value] : fresh.as_dict()->items) {
      if (group.Find(*key.as_string()) == nullptr) group.Set(*key.as_string(), value);
    }
    constexpr std::pair<const char*, std::string_view> kSet[] = {{"lr", "max_lr"}, {"lr", "lr"}, {"min_lr", "min_lr"}, {"weight_decay", "weight_decay"}, {"adam_eps", "eps"}};
    for (const auto& [name, key] : kSet) {
      if (settings.IsSet(name)) group.Set(key, *fresh.Find(key));
    }
    group.Set("betas", *fresh.Find("betas"));  // a tuple, whatever the carrier made of it
    group.Set("step", Value(step));
    groups.push_back(std::move(group));
  }
  return groups;
}

/// Adam's among the carried groups. Which optimizer's they are is said anew by what is written.
ValueList AdamGroups(const ValueList& carried) {
  ValueList groups;
  for (Value group : carried) {
    if (IsMuonGroup(group)) continue;
    group.Erase("optimizer");
    groups.push_back(std::move(group));
  }
  return groups;
}

bool IsGroupOfExperts(const Value& group) { return group.GetBool("is_expert_parallel").value_or(false); }

/// A run with expert-parallel ranks has a second optimizer, for the experts: one group, as none of theirs is a vector or a bias.
Value ExpertGroup(const ValueList& dense) {
  const auto decayed = std::find_if(dense.begin(), dense.end(), [](const Value& group) { return group.GetFloat("wd_mult").value_or(1) > 0; });
  Value group = decayed != dense.end() ? *decayed : dense.front();
  group.Set("is_expert_parallel", Value(true));
  return group;
}

Value OneOptimizer(ValueList groups, const Value* scaler) {
  Value inner = Value::MakeDict();
  inner.Set("param_groups", Value::MakeList(std::move(groups)));
  Value optimizer = Value::MakeDict();
  optimizer.Set("optimizer", std::move(inner));
  optimizer.Set("param_state_sharding_type", Value("fully_reshardable"));
  if (scaler != nullptr) optimizer.Set("grad_scaler", *scaler);
  return optimizer;
}

/// Megatron takes the momentum of a group from the checkpoint, whatever the loading run's own argument says.
MuonSettings ReadMuon(const Settings& settings, const Hyper& hyper, std::vector<std::string>* notices) {
  constexpr double kMomentum = 0.9;  // Megatron's own default of --muon-momentum
  MuonSettings muon{hyper.max_lr, hyper.lr, hyper.min_lr, hyper.weight_decay, kMomentum};
  if (settings.muon() != nullptr && !settings.IsSet("lr")) muon.lr = settings.muon()->GetFloat("lr").value_or(muon.lr);
  const std::optional<double> momentum = settings.Find("muon_momentum", "momentum");
  if (momentum) {
    muon.momentum = *momentum;
  } else {
    notices->push_back(fmt::format("Muon's momentum ({}) is assumed, for the source does not say it, and the loading run takes it from the checkpoint (--set muon_momentum=)", kMomentum));
  }
  return muon;
}

bool HasBothDecays(const ValueList& groups) {
  bool with = false;
  bool without = false;
  for (const Value& group : groups) {
    const double mult = group.GetFloat("wd_mult").value_or(1);
    with = with || mult > 0;
    without = without || mult == 0;
  }
  return with && without;
}

}  // namespace

Result<OptimizerState> MakeOptimizerState(const CommonRequest& request) {
  OptimizerState state;
  const Settings settings(request);
  CROSSDOCK_ASSIGN_OR_RETURN(const Hyper hyper, ReadHyper(settings, &state.notices));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t step, AdamStep(request, &state.notices));
  const Value* carried = request.hub->extras.Find("param_groups");
  const ValueList* list = carried != nullptr ? carried->as_sequence() : nullptr;
  ValueList groups;
  const ValueList adam = list != nullptr ? AdamGroups(*list) : ValueList();
  if (HasBothDecays(adam)) {
    groups = CarriedGroups(adam, settings, hyper, step);
  } else {
    groups = {MakeGroup(hyper, true, step), MakeGroup(hyper, false, step)};
  }
  const Value* scaler = request.hub->extras.Find("grad_scaler");
  std::erase_if(groups, IsGroupOfExperts);   // of a run with another division: made anew where this one has them
  const bool divided = request.options->layout.ep > 1 && request.hub->model.letters.contains("experts");
  if (request.with_muon) {
    const MuonSettings muon = ReadMuon(settings, hyper, &state.notices);
    state.optimizer = ChainMuon(muon, std::move(groups), divided);
    state.run_args.Set("muon_momentum", Value(muon.momentum));
  } else if (divided) {
    ValueList experts = {ExpertGroup(groups)};
    state.optimizer = Value::MakeDict({{Value(0), OneOptimizer(std::move(groups), scaler)}, {Value(1), OneOptimizer(std::move(experts), scaler)}});
  } else {
    state.optimizer = OneOptimizer(std::move(groups), scaler);
  }

  const Value* scheduler = request.hub->extras.Find("opt_param_scheduler");
  const bool changed = settings.IsSet("lr") || settings.IsSet("min_lr") || settings.IsSet("weight_decay");
  if (scheduler != nullptr && scheduler->as_dict() != nullptr && !changed) {
    state.scheduler = *scheduler;
    state.run_args.Set("override_opt_param_scheduler", Value(false));
  } else {
    state.scheduler = MakeScheduler(request, hyper);
    state.run_args.Set("override_opt_param_scheduler", Value(true));  // as the load line says it to the next run
    state.notices.push_back("the learning-rate schedule is the loading run's own: the source carries none (--override-opt_param-scheduler)");
  }
  constexpr std::pair<const char*, double Hyper::*> kArguments[] = {{"lr", &Hyper::max_lr}, {"min_lr", &Hyper::min_lr}, {"weight_decay", &Hyper::weight_decay},
                                                                    {"adam_beta1", &Hyper::beta1}, {"adam_beta2", &Hyper::beta2}, {"adam_eps", &Hyper::epsilon}};
  for (const auto& [name, member] : kArguments) state.run_args.Set(name, Value(hyper.*member));
  state.run_args.Set("optimizer", Value(request.with_muon ? "muon" : "adam"));
  return state;
}

}  // namespace crossdock::dialects::mcore
