// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dialects/hf/claim.h"
#include "dialects/hf/extras.h"
#include "dialects/hf/full_state.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/hub_target.h"
#include "dialects/hf/random_states.h"

namespace crossdock::dialects::hf {
namespace {

void SetMeta(const HubState& hub, TargetState* target) {
  Value meta = Value::MakeDict();
  const auto add = [&](std::string_view name, const std::optional<std::int64_t>& value) {
    if (value) meta.Set(name, Value(*value));
  };
  add("meta/step", hub.counters.step);
  add("meta/adam_count", hub.counters.adam_count);
  add("meta/muon_count", hub.counters.muon_count);
  if (!meta.as_dict()->items.empty()) target->catalog.objects["meta"] = std::move(meta);
}

void SetMetadata(const HubState& hub, bool ling, TargetState* target) {
  Value metadata = Value::MakeDict();
  metadata.Set("format", Value(ling ? kLingFormat : kFullStateFormat));
  metadata.Set("model_name", Value(ling && !hub.model_name.empty() ? hub.model_name : hub.family->name));
  metadata.Set("optimizer", Value(hub.optimizer));
  if (!ling && hub.optimizer == "muon" && !hub.muon_momentum.empty()) {
    metadata.Set("muon_momentum", Value(hub.muon_momentum));
    if (hub.muon_beta) metadata.Set("muon_beta", Value(fmt::format("{}", *hub.muon_beta)));
  }
  if (hub.counters.step) metadata.Set("step", Value(std::to_string(*hub.counters.step)));
  if (hub.counters.consumed_train_samples) {
    metadata.Set("consumed_train_samples", Value(std::to_string(*hub.counters.consumed_train_samples)));
  }
  if (hub.extras.as_dict() != nullptr && !hub.extras.as_dict()->items.empty()) {
    std::vector<std::string> dropped;
    metadata.Set("crossdock_extras", Value(EncodeExtras(hub.extras, hub.extras_words, &dropped)));
    if (!dropped.empty()) {
      target->left_out.push_back({fmt::format("{}", fmt::join(dropped, ", ")), "objects of the source's own kind have no form in full-state",
                                  static_cast<std::int64_t>(dropped.size()), 0});
    }
  }
  target->catalog.objects["__metadata__"] = std::move(metadata);
}

/// They stand in the metadata for whoever writes a Megatron checkpoint of the same layout again.
void SetRandomStates(const TargetOptions& options, TargetState* target) {
  if (options.random.count() == 0 && options.random.refusal.empty()) return;
  const auto leave = [&](std::string reason) { target->left_out.push_back({"rng_state", std::move(reason), std::max<std::int64_t>(options.random.count(), 1), 0}); };
  if (!options.random.refusal.empty()) return leave(options.random.refusal);
  if (options.no_rng) return leave("left behind by --no-rng");
  Result<std::string> text = EncodeRandomStates(options.random);
  if (!text) return leave(std::move(text).error().message);
  target->catalog.objects["__metadata__"].Set(kRandomStatesKey, Value(*std::move(text)));
  target->random_states = options.random.count();
}

bool Holds(const HubState& hub, Slot slot) {
  return std::any_of(hub.tensors.begin(), hub.tensors.end(), [&](const HubTensor& tensor) { return tensor.slot == slot; });
}

/// What the reader of kLingFormat asks for, and what it has no place for. `hub` loses the latter.
Status FitToLing(const TargetOptions& options, HubState* hub, TargetState* target) {
  if (!Holds(*hub, Slot::kMuonMu)) {
    return MakeError(ErrorCode::kIncomplete, fmt::format("{} always holds Muon's momentum, and the source has none", kLingFormat))
        .WithHint("without `--for ling3` any optimizer state, or none, is written");
  }
  const std::pair<const char*, const std::optional<std::int64_t>*> counters[] = {
      {"step", &hub->counters.step}, {"muon_count", &hub->counters.muon_count}, {"adam_count", &hub->counters.adam_count}};
  for (const auto& [name, value] : counters) {
    if (*value) continue;
    return MakeError(ErrorCode::kIncomplete, fmt::format("{} always holds three counters, and the source does not say one", kLingFormat)).WithExpected(fmt::format("meta/{}", name));
  }
  if (options.params_from_master) CROSSDOCK_RETURN_IF_ERROR(UseMasters(hub));
  for (const HubTensor& tensor : hub->tensors) {
    if (tensor.slot != Slot::kMaster || options.params_from_master) continue;
    const auto bytes = ByteSize(tensor.dtype, tensor.shape);
    AddLeftOut(&target->left_out, "master weights", fmt::format("{} has no place for them; --params-from master makes them the parameters", kLingFormat), bytes ? *bytes : 0);
  }
  std::erase_if(hub->tensors, [](const HubTensor& tensor) { return tensor.slot == Slot::kMaster; });
  if (!hub->extras.as_dict()->items.empty()) {
    target->left_out.push_back({"scheduler and optimizer settings", fmt::format("{} has no place for them", kLingFormat), 1, 0});
    hub->extras = Value::MakeDict();
  }
  hub->optimizer = "muon";
  if (!hub->counters.consumed_train_samples) {
    hub->counters.consumed_train_samples = 0;
    target->notices.emplace_back("consumed_train_samples is not known and stored as 0: a run that continues starts its data again");
  }
  return OkStatus();
}

}  // namespace

Result<TargetState> WriteFullState(const HubState& given, const TargetOptions& options) {
  const bool ling = options.consumer == kLingConsumer;
  if (options.params_from_master && !ling) {
    return MakeError(ErrorCode::kUsage, "full-state files hold parameters and master weights both")
        .WithHint("leave --params-from out");
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckOptimizerCarried(given));
  TargetState target;
  HubState fitted;
  if (ling) {
    fitted = given;
    CROSSDOCK_RETURN_IF_ERROR(FitToLing(options, &fitted, &target));
  }
  const HubState& hub = ling ? fitted : given;
  target.catalog.format = "safetensors";
  target.catalog.step = hub.counters.step;
  Draft draft;
  draft.family = hub.family;
  for (const HubTensor& tensor : hub.tensors) {
    CROSSDOCK_RETURN_IF_ERROR(draft.Add(FullStateName(tensor.slot, tensor.name), tensor.name, tensor.slot, tensor.dtype, tensor.shape,
                                        tensor.expr, options));
  }
  CROSSDOCK_RETURN_IF_ERROR(AddConfigAndSideFiles(hub, options, MainDType(draft), &target));
  draft.Finish(&target);
  SetMeta(hub, &target);
  SetMetadata(hub, ling, &target);
  if (!ling) SetRandomStates(options, &target);
  target.load_line = {"crossdock convert TARGET OUT --to FORMAT   (hf, megatron, megatron-legacy or dcp)"};
  return target;
}

}  // namespace crossdock::dialects::hf
