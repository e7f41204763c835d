// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dialects/hf/extras.h"
#include "dialects/hf/full_state.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/hub_target.h"

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

void SetMetadata(const HubState& hub, TargetState* target) {
  Value metadata = Value::MakeDict();
  metadata.Set("format", Value(kFullStateFormat));
  metadata.Set("model_name", Value(hub.family->name));
  metadata.Set("optimizer", Value(hub.optimizer));
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

}  // namespace

Result<TargetState> WriteFullState(const HubState& hub, const TargetOptions& options) {
  if (options.params_from_master) {
    return MakeError(ErrorCode::kUsage, "full-state files hold parameters and master weights both")
        .WithHint("leave --params-from out");
  }
  if (!hub.optimizer_refusal.empty()) {
    return MakeError(ErrorCode::kUnsupported, "the source's optimizer state cannot be carried: " + hub.optimizer_refusal)
        .WithHint("--no-optim writes the parameters alone");
  }
  TargetState target;
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
  SetMetadata(hub, &target);
  target.load_line = {"crossdock convert TARGET OUT --to FORMAT   (hf, megatron, megatron-legacy or dcp)"};
  return target;
}

}  // namespace crossdock::dialects::hf
