// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "dialects/hf/extras.h"
#include "dialects/hf/hub_target.h"
#include "dialects/maxtext/maxtext_dialect.h"
#include "dialects/maxtext/step_words.h"
#include "dialects/maxtext/target_arrays.h"

namespace crossdock::dialects::maxtext {
namespace {

/// A parameter has four axes at most, and layers one more.
constexpr int kMaxScanAxis = 3;
/// MaxText counts steps in int32.
constexpr std::int64_t kMaxStep = (std::int64_t{1} << 31U) - 1;

Status CheckOptions(const HubState& hub, const TargetOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(hf::CheckOptimizerCarried(hub));
  for (const auto& [key, text] : options.set_args) {
    if (key == "opt_type") continue;
    return MakeError(ErrorCode::kUsage, fmt::format("a MaxText checkpoint stores no setting {}", Printable(key)))
        .WithExpected("--set opt_type=adamw or adam_pax, or none")
        .WithFound(fmt::format("--set {}={}", Printable(key), Printable(text)));
  }
  if (options.scan_axis < 0 || options.scan_axis > kMaxScanAxis) {
    return MakeError(ErrorCode::kUsage, "--scan-axis is no axis that layers can have").WithExpected(fmt::format("0 to {}", kMaxScanAxis)).WithFound(std::to_string(options.scan_axis));
  }
  return OkStatus();
}

Result<std::int64_t> StepOf(const HubState& hub, const TargetOptions& options) {
  const std::int64_t step = options.iteration.value_or(hub.counters.step.value_or(0));
  if (step >= 0 && step <= kMaxStep) return step;
  return MakeError(ErrorCode::kUsage, "MaxText counts no such step").WithExpected(fmt::format("0 to {}", kMaxStep)).WithFound(std::to_string(step));
}

/// `scan_layers` is read by MaxText; the rest is for the way back.
Value CustomMetadata(const HubState& hub, bool scanned, std::vector<LeftOut>* left_out) {
  Value carried = Value::MakeDict();
  if (hub.counters.consumed_train_samples) carried.Set("consumed_train_samples", Value(*hub.counters.consumed_train_samples));
  if (const Value::Dict* extras = hub.extras.as_dict(); extras != nullptr && !extras->items.empty()) {
    std::vector<std::string> dropped;
    carried.Set("extras", Value(hf::EncodeExtras(hub.extras, hub.extras_words, &dropped)));
    if (!dropped.empty()) left_out->push_back({dropped.front(), "objects of the source's own kind have no form in JSON", static_cast<std::int64_t>(dropped.size()), 0});
  }
  if (hub.optimizer == "muon" && !hub.muon_momentum.empty()) {
    carried.Set("muon_momentum", Value(hub.muon_momentum));
    if (hub.muon_beta) carried.Set("muon_beta", Value(*hub.muon_beta));
  }
  if (!hub.trainer_levels.is_null()) carried.Set(kLevelsWord, hub.trainer_levels);
  return StepMetadata(hub.step_metadata, scanned, std::move(carried));
}

/// A hub that was read without a configuration has none to give.
Status AddHfFolder(const HubState& hub, const TargetOptions& options, DType params_dtype, TargetState* target) {
  if (hub.config.words != "maxtext" || options.template_config) return hf::AddHfFolder(hub, options, params_dtype, target);
  target->notices.emplace_back("no config.json travels along: the source has none (--hf-template DIR gives one)");
  return OkStatus();
}

}  // namespace

Result<TargetState> WriteHub(const HubState& hub, const TargetOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(CheckOptions(hub, options));
  CROSSDOCK_ASSIGN_OR_RETURN(const Consumer consumer, ChooseConsumer(options.consumer, options.consumer_version));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t step, StepOf(hub, options));
  CROSSDOCK_ASSIGN_OR_RETURN(const TreeBinding binding, BindTree(*hub.family, hub.model, {options.scan_layers, options.scan_axis}));
  CROSSDOCK_ASSIGN_OR_RETURN(TargetArrays arrays, MakeTargetArrays({&hub, &binding, &options, consumer, step}));

  TargetState target;
  target.unit_name = std::to_string(step);
  target.left_out = std::move(arrays.left_out);
  target.notices = std::move(arrays.notices);
  Catalog& catalog = target.catalog;
  catalog.format = "orbax";
  catalog.step = step;
  catalog.entries = std::move(arrays.entries);
  target.exprs = std::move(arrays.exprs);
  catalog.objects["tree"] = std::move(arrays.tree);
  catalog.objects["scalars"] = std::move(arrays.scalars);
  catalog.objects["custom_metadata"] = CustomMetadata(hub, options.scan_layers, &target.left_out);
  catalog.objects["orbax"] = OrbaxForm(consumer, options.zstd_level);
  CROSSDOCK_RETURN_IF_ERROR(AddHfFolder(hub, options, arrays.params_dtype, &target));
  target.notices.push_back(fmt::format("written for {}, layers {}", consumer.name(), options.scan_layers ? fmt::format("scanned along axis {}", options.scan_axis) : "each on its own (scan_layers=false)"));
  target.load_line = LoadLine(arrays.optimizer != OptimizerKind::kNone, options.scan_layers);
  return target;
}

}  // namespace crossdock::dialects::maxtext
