// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/common_state.h"

#include <set>

#include "base/checked_math.h"
#include "dialects/mcore/args.h"
#include "dialects/mcore/known_args.h"
#include "dialects/mcore/layout_args.h"
#include "dialects/mcore/optimizer_state.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// What the run that loads reads of the run that wrote.
void SetRunArgs(const CommonRequest& request, Value* args) {
  const HubState& hub = *request.hub;
  if (const Value* carried = hub.extras.Find("args"); carried != nullptr && carried->as_dict() != nullptr) {
    for (const auto& [key, value] : carried->as_dict()->items) {
      if (const std::string* name = key.as_string()) args->Set(*name, value);
    }
  }
  args->Set("make_vocab_size_divisible_by", Value(VocabDivisorOf(hub, *request.options)));
  args->Set("iteration", Value(request.iteration));
  args->Set("consumed_train_samples", Value(hub.counters.consumed_train_samples.value_or(0)));
  for (const char* counter : {"skipped_train_samples", "consumed_valid_samples"}) {
    if (!args->GetInt(counter)) args->Set(counter, Value(0));
  }
  args->Set("no_save_rng", Value(true));
  args->Set("no_save_optim", Value(!request.with_optimizer));
  args->Set("use_distributed_optimizer", Value(request.with_optimizer && !request.with_muon));
  args->Set("ckpt_fully_parallel_save", Value(true));
  args->Set("ckpt_format", Value("torch_dist"));
  args->Set("transformer_impl", Value("transformer_engine"));
}

void SetModelArgs(const CommonRequest& request, Value* args) {
  args->Set("vocab_size", Value(request.vocab_size));
  args->Set("padded_vocab_size", Value(request.padded_vocab));
  args->Set("params_dtype", Value(request.params_dtype));
  args->Set("bf16", Value(request.params_dtype == DType::kBF16));
  args->Set("fp16", Value(request.params_dtype == DType::kF16));
}

/// Arguments that the tensors and their division settle: another value would describe a checkpoint that is not there.
std::set<std::string> SettledNames(const family::FamilyFile& family) {
  std::set<std::string> names = {"padded_vocab_size",
                                 "iteration",
                                 "params_dtype",
                                 "tensor_model_parallel_size",
                                 "pipeline_model_parallel_size",
                                 "expert_model_parallel_size",
                                 "expert_tensor_parallel_size",
                                 "moe_layer_freq",
                                 "virtual_pipeline_model_parallel_size",
                                 "num_layers_per_virtual_pipeline_stage",
                                 "num_virtual_stages_per_pipeline_rank",
                                 "account_for_embedding_in_pipeline_split",
                                 "account_for_loss_in_pipeline_split",
                                 "custom_pipeline_layers",
                                 "decoder_first_pipeline_num_layers",
                                 "decoder_last_pipeline_num_layers",
                                 "pipeline_model_parallel_layout"};
  for (const auto& [letter, rule] : family.letters) {
    const auto paths = rule.paths.find("mcore");
    if (paths == rule.paths.end()) continue;
    for (const std::string& path : paths->second) names.insert(path.substr(0, path.find(' ')));
  }
  return names;
}

/// A name close to a known one is a typing error; any other may be a fork's own argument.
Status CheckSetName(const std::string& name, const Value& args, std::vector<std::string>* notices) {
  if (IsMegatronArgument(name) || args.Find(name) != nullptr) return OkStatus();
  const std::string_view nearest = NearestMegatronArgument(name);
  if (nearest.empty()) {
    notices->push_back(fmt::format("--set {}: no argument of Megatron-LM has this name; it is stored as given", Printable(name)));
    return OkStatus();
  }
  return MakeError(ErrorCode::kUsage, fmt::format("--set names no argument of Megatron: {}", Printable(name)))
      .WithHint(fmt::format("did you mean `{}`?", nearest));
}

/// --set fills what the source does not say and changes what a run may choose; it cannot contradict the tensors.
Status ApplySetArgs(const CommonRequest& request, Value* args, std::vector<std::string>* notices) {
  const std::set<std::string> settled = SettledNames(*request.hub->family);
  for (const auto& [name, text] : request.options->set_args) {
    CROSSDOCK_RETURN_IF_ERROR(CheckSetName(name, *args, notices));
    Value value = ParseArgument(text);
    const Value* now = args->Find(name);
    if (settled.contains(name) && now != nullptr && ToJson(*now) != ToJson(value)) {
      return MakeError(ErrorCode::kUsage, fmt::format("--set {} contradicts the tensors that are written", Printable(name)))
          .WithExpected(Printable(ToJson(*now, 0)))
          .WithFound(Printable(text))
          .WithHint("--set fills arguments that the source lacks; sizes and layout follow from the model and --tp, --pp, ...");
    }
    args->Set(name, std::move(value));
  }
  return OkStatus();
}

Value ContentMetadata(bool distributed) {
  Value metadata = Value::MakeDict();
  if (distributed) {
    metadata.Set("distrib_optim_sharding_type", Value("fully_reshardable"));
    metadata.Set("distrib_optim_fully_reshardable_mem_efficient", Value(false));
  }
  metadata.Set("singleton_local_shards", Value(false));
  metadata.Set("chained_optim_avoid_prefix", Value(true));
  return metadata;
}

/// Megatron's Muon counts no steps. A count of its own is kept beside what Megatron reads; the run's next save leaves it out, so
/// that it never grows old.
void KeepCounters(const CommonRequest& request, CommonResult* result) {
  const Counters& counters = request.hub->counters;
  if (!request.with_muon || !counters.muon_count || counters.muon_count == counters.adam_count) return;
  Value kept = Value::MakeDict();
  kept.Set("muon_count", Value(*counters.muon_count));
  result->common.Set(kKeptCounters, std::move(kept));
  result->notices.push_back(fmt::format("Muon's counter, {}, has no place in Megatron's optimizer, whose Muon counts no steps: it is kept as {} in the common state, which this tool reads again",
                                        *counters.muon_count, kKeptCounters));
}

}  // namespace

std::optional<std::int64_t> PaddedVocabulary(std::int64_t size, std::int64_t divisor, std::int64_t tp) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31U;   // more would make a plan of rows that nobody stores
  const std::optional<std::int64_t> unit = CheckedMul(divisor, tp);
  if (divisor < 1 || tp < 1 || size < 0 || size > kMost || !unit || *unit > kMost) return std::nullopt;
  return RoundUp(size, *unit);
}

bool WereComputed(std::int64_t rows, std::int64_t size, std::int64_t divisor, std::int64_t tp) { return PaddedVocabulary(size, divisor, tp) == rows; }

std::int64_t VocabDivisorOf(const HubState& hub, const TargetOptions& options) {
  if (options.vocab_divisor) return *options.vocab_divisor;
  const std::optional<std::int64_t> run = hub.extras.GetInt("args.make_vocab_size_divisible_by");
  return run && *run > 0 ? *run : kVocabDivisor;
}

Value MakeNamespace(Value values) {
  Opaque space;
  space.form = Opaque::Form::kNewObj;
  space.module = "argparse";
  space.name = "Namespace";
  space.state = std::make_shared<Value>(std::move(values));
  return Value(std::move(space));
}

Result<CommonResult> MakeCommon(const CommonRequest& request) {
  const HubState& hub = *request.hub;
  CommonResult result;
  CROSSDOCK_ASSIGN_OR_RETURN(result.args, ArgsFromConfig(*hub.family, hub.model, hub.config));
  SetModelArgs(request, &result.args);
  SetParallelArgs(request.options->layout, *request.stages, &result.args);
  SetRunArgs(request, &result.args);

  result.common = Value::MakeDict();
  result.common.Set("checkpoint_version", Value(3.0));
  result.common.Set("iteration", Value(request.iteration));
  if (request.with_optimizer) {
    CROSSDOCK_ASSIGN_OR_RETURN(OptimizerState state, MakeOptimizerState(request));
    for (const auto& [key, value] : state.run_args.as_dict()->items) result.args.Set(*key.as_string(), value);
    result.common.Set("optimizer", std::move(state.optimizer));
    result.common.Set("opt_param_scheduler", std::move(state.scheduler));
    result.notices = std::move(state.notices);
    KeepCounters(request, &result);
    if (!hub.counters.consumed_train_samples) {
      result.notices.push_back("consumed_train_samples is not known and stored as 0: a run that continues starts its data again");
    }
  }
  CROSSDOCK_RETURN_IF_ERROR(ApplySetArgs(request, &result.args, &result.notices));
  for (const char* needed : {"max_position_embeddings", "seq_length"}) {
    if (result.args.GetInt(needed)) continue;
    return MakeError(ErrorCode::kUsage, fmt::format("Megatron's checkpoint must store {}, which the source does not say", needed))
        .WithHint(fmt::format("give it with --set {}=N", needed));
  }
  const Value* operations = hub.extras.Find("num_floating_point_operations_so_far");
  result.common.Set("num_floating_point_operations_so_far", operations != nullptr ? *operations : Value(0));
  result.common.Set("content_metadata", ContentMetadata(request.with_optimizer && !request.with_muon));
  result.common.Set("args", MakeNamespace(result.args));
  return result;
}

}  // namespace crossdock::dialects::mcore
