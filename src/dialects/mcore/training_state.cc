// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/training_state.h"

#include <array>
#include <bit>

#include "base/endian.h"
#include "dialects/mcore/args.h"
#include "dialects/mcore/common_state.h"
#include "dialects/mcore/layout_args.h"
#include "dialects/mcore/target_unit.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// Arguments of a run that a later run wants to know.
constexpr std::array kRunArguments = {
    "lr", "min_lr", "weight_decay", "start_weight_decay", "end_weight_decay", "weight_decay_incr_style", "lr_decay_style", "lr_decay_iters",
    "lr_decay_samples", "lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction", "adam_beta1", "adam_beta2", "adam_eps", "clip_grad",
    "global_batch_size", "micro_batch_size", "train_iters", "train_samples", "skipped_train_samples", "consumed_valid_samples", "seed", "optimizer", "make_vocab_size_divisible_by",
    "muon_momentum", "muon_nesterov", "muon_split_qkv", "muon_scale_mode", "muon_fp32_matmul_prec", "muon_coefficient_type", "muon_num_ns_steps",
    "muon_tp_mode", "muon_extra_scale_factor", "muon_scalar_optimizer"};

std::optional<std::int64_t> FromReal(double real) {
  if (!(real >= 0 && real < 9.2e18)) return std::nullopt;
  return static_cast<std::int64_t>(real);
}

/// A step as torch or TransformerEngine keeps it: a number, or a tensor of one.
std::optional<std::int64_t> StepOf(const Value& group, std::string_view key) {
  if (const std::optional<std::int64_t> plain = group.GetInt(key)) return plain;
  const Value* value = group.Find(key);
  const TensorValue* tensor = value != nullptr ? value->as_tensor() : nullptr;
  if (tensor == nullptr || tensor->bytes == nullptr || tensor->storage_offset < 0) return std::nullopt;
  const std::string& bytes = *tensor->bytes;
  const std::size_t width = tensor->dtype == DType::kI64 || tensor->dtype == DType::kF64 ? 8U : 4U;
  const auto index = static_cast<std::size_t>(tensor->storage_offset);
  if (index > bytes.size() / width || bytes.size() - index * width < width) return std::nullopt;
  const char* at = bytes.data() + index * width;
  if (tensor->dtype == DType::kI64) return LoadLittle<std::int64_t>(at);
  if (tensor->dtype == DType::kI32) return LoadLittle<std::int32_t>(at);
  if (tensor->dtype == DType::kF64) return FromReal(std::bit_cast<double>(LoadLittle<std::uint64_t>(at)));
  if (tensor->dtype == DType::kF32) return FromReal(std::bit_cast<float>(LoadLittle<std::uint32_t>(at)));
  return std::nullopt;
}

void AddGroups(const Value& optimizer, ValueList& groups) {
  const Value* inner = optimizer.FindPath("optimizer.param_groups");
  if (inner == nullptr) return;
  if (const ValueList* list = inner->as_sequence()) {
    for (const Value& group : *list) {
      if (group.as_dict() != nullptr) groups.push_back(group);
    }
  }
}

/// Drops what is no plain data (an OptimizerConfig, tensors), keeps tuples.
std::optional<Value> Plain(const Value& value) {
  if (value.as_opaque() != nullptr || value.as_tensor() != nullptr || value.as_bytes() != nullptr || value.as_bigint() != nullptr) return std::nullopt;
  if (const ValueList* items = value.as_sequence()) {
    ValueList out;
    for (const Value& item : *items) {
      if (std::optional<Value> plain = Plain(item)) out.push_back(*std::move(plain));
    }
    return value.is_tuple() ? Value::MakeTuple(std::move(out)) : Value::MakeList(std::move(out));
  }
  if (const Value::Dict* dict = value.as_dict()) {
    Value out = Value::MakeDict();
    for (const auto& [key, item] : dict->items) {
      const std::string* name = key.as_string();
      std::optional<Value> plain = Plain(item);
      if (name != nullptr && plain) out.Set(*name, *std::move(plain));
    }
    return out;
  }
  return value;
}

void Copy(const Value* from, const char* key, const char* as, Value* out) {
  const Value* value = from != nullptr ? from->Find(key) : nullptr;
  if (value == nullptr || value->is_null()) return;
  if (std::optional<Value> plain = Plain(*value)) out->Set(as, *std::move(plain));
}

/// What Megatron-Bridge counts in train_state.pt and Megatron-LM in its arguments and common state; those that are there stay.
void AddTrainState(const Value& state, Value* extras, Value* run) {
  for (const char* name : {"skipped_train_samples", "consumed_valid_samples"}) {
    const std::optional<std::int64_t> count = StepOf(state, name);
    if (count && run->Find(name) == nullptr) run->Set(name, Value(*count));
  }
  constexpr const char* kOperations = "num_floating_point_operations_so_far";
  const std::optional<std::int64_t> operations = StepOf(state, "floating_point_operations_so_far");
  if (operations && extras->Find(kOperations) == nullptr) extras->Set(kOperations, Value(*operations));
}

}  // namespace

ValueList ParamGroups(const Value& common) {
  ValueList groups;
  const Value* optimizer = common.Find("optimizer");
  if (optimizer == nullptr) return groups;
  AddGroups(*optimizer, groups);
  if (!groups.empty()) return groups;
  if (const ValueList* chained = optimizer->as_sequence()) {
    for (const Value& one : *chained) AddGroups(one, groups);
  } else if (const Value::Dict* numbered = optimizer->as_dict()) {
    for (const auto& [key, one] : numbered->items) {
      if (one.as_dict() != nullptr) AddGroups(one, groups);
    }
  }
  return groups;
}

std::optional<std::string> IterationNotice(const Catalog& catalog) {
  const Value* common = CommonState(catalog);
  const std::optional<std::int64_t> stored = common != nullptr ? common->GetInt("iteration") : std::nullopt;
  if (!stored || !catalog.step || *stored == *catalog.step || IsRelease(catalog)) return std::nullopt;
  return fmt::format("the directory is named for step {}, but its common state says iteration {}: a run that loads it goes on at {}, and that step is carried",
                     *catalog.step, *stored, *stored);
}

Result<Counters> ReadCounters(const Catalog& catalog, const Value* args, bool with_optimizer) {
  Counters counters;
  const Value* common = CommonState(catalog);
  counters.step = catalog.step;
  if (common != nullptr && common->GetInt("iteration")) counters.step = common->GetInt("iteration");
  if (IsRelease(catalog)) counters.step.reset();
  if (args != nullptr) counters.consumed_train_samples = args->GetInt("consumed_train_samples");
  const auto train_state = catalog.objects.find("train_state.pt");  // Megatron-Bridge
  if (train_state != catalog.objects.end()) {
    if (const auto samples = StepOf(train_state->second, "consumed_train_samples")) counters.consumed_train_samples = samples;
    if (const auto step = StepOf(train_state->second, "step"); step && (common == nullptr || !common->GetInt("iteration"))) counters.step = step;
  }
  if (common == nullptr || !with_optimizer) return counters;
  for (const Value& group : ParamGroups(*common)) {
    const std::optional<std::int64_t> step = StepOf(group, "step");
    if (!step) continue;
    if (counters.adam_count && *counters.adam_count != *step) {
      return MakeError(ErrorCode::kCorrupt, "the optimizer's parameter groups are at different steps")
          .WithPath("common.pt")
          .WithFound(fmt::format("{} and {}", *counters.adam_count, *step))
          .WithHint("--no-optim leaves the optimizer state behind");
    }
    counters.adam_count = step;
  }
  if (!counters.adam_count) {
    const Value* torch_state = common->FindPath("optimizer.optimizer.state");
    if (torch_state != nullptr) counters.adam_count = StepOf(*torch_state, "common_step");
  }
  if (const Value* kept = common->Find(kKeptCounters)) counters.muon_count = kept->GetInt("muon_count");
  return counters;
}

Value ReadExtras(const Catalog& catalog, const Value* args) {
  Value extras = Value::MakeDict();
  if (const Value* common = CommonState(catalog)) {
    ValueList groups;
    for (const Value& group : ParamGroups(*common)) {
      if (std::optional<Value> plain = Plain(group)) groups.push_back(*std::move(plain));
    }
    if (!groups.empty()) extras.Set("param_groups", Value::MakeList(std::move(groups)));
    Copy(common, "opt_param_scheduler", "opt_param_scheduler", &extras);
    Copy(common, "num_floating_point_operations_so_far", "num_floating_point_operations_so_far", &extras);
    if (const Value* scaler = common->FindPath("optimizer.grad_scaler")) {
      if (std::optional<Value> plain = Plain(*scaler); plain && !plain->is_null()) extras.Set("grad_scaler", *std::move(plain));
    }
  }
  Value run = Value::MakeDict();
  for (const char* name : kRunArguments) Copy(args, name, name, &run);
  if (const auto state = catalog.objects.find("train_state.pt"); state != catalog.objects.end()) AddTrainState(state->second, &extras, &run);
  if (!run.as_dict()->items.empty()) extras.Set("args", std::move(run));
  return extras;
}

Value ReadLayout(const Catalog& catalog, const Value* args) {
  Value layout = Value::MakeDict();
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"tensor_model_parallel_size", "tp"},       {"pipeline_model_parallel_size", "pp"},
      {"virtual_pipeline_model_parallel_size", "vpp"}, {"expert_model_parallel_size", "ep"},
      {"expert_tensor_parallel_size", "etp"},
      {"decoder_first_pipeline_num_layers", "first_stage_layers"}, {"decoder_last_pipeline_num_layers", "last_stage_layers"},
      {"account_for_embedding_in_pipeline_split", "account_for_embedding"}, {"account_for_loss_in_pipeline_split", "account_for_loss"},
      {"custom_pipeline_layers", "pipeline_layers"}, {"world_size", "world_size"}, {"data_parallel_size", "dp"}};
  for (const auto& [name, as] : kNames) Copy(args, name, as, &layout);
  if (args != nullptr) {  // a list or an object of Megatron's says its layout as a string too
    const Result<layout::ParallelLayout> said = LayoutOfArgs(*args);
    if (said && !said->pipeline_layout.empty()) layout.Set("pipeline_layout", said->pipeline_layout);
  }
  for (const char* ordinary : {"account_for_embedding", "account_for_loss"}) {
    if (const Value* value = layout.Find(ordinary); value != nullptr && value->as_bool() != nullptr && !*value->as_bool()) layout.Erase(ordinary);
  }
  if (const Value* common = CommonState(catalog)) {
    if (const Value* metadata = common->Find("content_metadata")) Copy(metadata, "distrib_optim_sharding_type", "optimizer_sharding", &layout);
  }
  return layout;
}

}  // namespace crossdock::dialects::mcore
