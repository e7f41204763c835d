// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "dialects/hf/claim.h"
#include "dialects/hf/dcp_settings.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/hub_target.h"
#include "dialects/hf/spelling.h"

namespace crossdock::dialects::hf {
namespace {

/// A loading rank reads whole blobs: smaller chunks waste less where the shards are small, and files stay few.
constexpr std::int64_t kChunkBytes = std::int64_t{512} << 20;

/// Rows of at most kChunkBytes each.
std::vector<Chunk> CutRows(const Entry& entry) {
  const auto bytes = ByteSize(entry.dtype, entry.shape);
  const std::int64_t rows = entry.shape.empty() ? 1 : entry.shape[0];
  std::vector<Chunk> chunks;
  if (!bytes || *bytes <= kChunkBytes || rows < 2) {
    chunks.emplace_back().box = Box::Whole(entry.shape);
    return chunks;
  }
  const std::int64_t row = *bytes / rows;
  const std::int64_t step = std::max<std::int64_t>(1, kChunkBytes / std::max<std::int64_t>(row, 1));
  for (std::int64_t at = 0; at < rows; at += step) {
    Chunk& chunk = chunks.emplace_back();
    chunk.box = Box::Whole(entry.shape);
    chunk.box.offsets[0] = at;
    chunk.box.sizes[0] = std::min(step, rows - at);
  }
  return chunks;
}

/// Chunks fill one file after the other, each up to `most` bytes.
void CutFiles(std::int64_t most, Catalog* catalog) {
  std::int32_t shard = 0;
  std::int64_t filled = 0;
  for (Entry& entry : catalog->entries) {
    entry.chunks = CutRows(entry);
    for (Chunk& chunk : entry.chunks) {
      const auto size = ByteSize(entry.dtype, chunk.box.sizes);
      const std::int64_t bytes = size ? *size : 0;
      if (filled > 0 && filled + bytes > most) {
        ++shard;
        filled = 0;
      }
      chunk.shard = shard;
      filled += bytes;
    }
  }
}

Value Scalar(double number) {
  const auto real = static_cast<float>(number);
  std::string bytes(sizeof real, '\0');
  std::memcpy(bytes.data(), &real, sizeof real);
  TensorValue tensor;
  tensor.dtype = DType::kF32;
  tensor.storage = "0";
  tensor.storage_numel = 1;
  tensor.bytes = std::make_shared<const std::string>(std::move(bytes));
  return Value(std::move(tensor));
}

class Writer {
 public:
  Writer(const HubState& hub, const TargetOptions& options) : hub_(hub), options_(options) { draft_.family = hub.family; }

  Result<TargetState> Write() {
    CROSSDOCK_RETURN_IF_ERROR(Check());
    for (const HubTensor& tensor : hub_.tensors) CROSSDOCK_RETURN_IF_ERROR(Add(tensor));
    CROSSDOCK_RETURN_IF_ERROR(AddConfigAndSideFiles(hub_, options_, MainDType(draft_), &target_));
    draft_.Finish(&target_);
    target_.catalog.format = "dcp";
    target_.catalog.step = hub_.counters.step;
    CutFiles(options_.max_shard_bytes, &target_.catalog);
    CROSSDOCK_RETURN_IF_ERROR(AddOptimizer());
    AddCounters();
    target_.catalog.objects["planner_data"] = Value::MakeDict(std::move(paths_));
    TellMasters();
    target_.load_line = {fmt::format("torch.distributed.checkpoint.load({{\"model\": model_sd{}}}, checkpoint_id=\"TARGET\")  # model_sd{} by get_state_dict",
                                     !WithState() ? "" : ", \"optim\": optim_sd", !WithState() ? "" : ", optim_sd")};
    return std::move(target_);
  }

 private:
  Status Check() {
    CROSSDOCK_RETURN_IF_ERROR(CheckOptimizerCarried(hub_));
    for (const HubTensor& tensor : hub_.tensors) {
      if (tensor.slot == Slot::kMaster) masters_[tensor.name] = &tensor;
      if (tensor.slot != Slot::kMuonMu || tensor.shape.size() == 2) continue;
      return MakeError(ErrorCode::kUnsupported, "torch.optim.Muon takes matrices alone").WithTensor(tensor.name)
          .WithExpected("two axes").WithFound(ToString(tensor.shape))
          .WithHint("--no-optim leaves the optimizer state behind");
    }
    if (options_.params_from_master && masters_.empty()) {
      return MakeError(ErrorCode::kIncomplete, "the source has no master weights, which --params-from master asks for")
          .WithHint("leave --params-from out");
    }
    return OkStatus();
  }

  /// Remembers the way to a flat key: names hold dots themselves.
  std::string Key(ValueList path) {
    std::string key;
    for (const Value& step : path) {
      if (!key.empty()) key += '.';
      key += step.as_int() != nullptr ? std::to_string(*step.as_int()) : *step.as_string();
    }
    paths_.emplace_back(Value(key), Value::MakeTuple(std::move(path)));
    return key;
  }

  Status Add(const HubTensor& tensor) {
    if (tensor.slot == Slot::kMaster) return OkStatus();
    if (tensor.slot != Slot::kParam) {
      const char* field = tensor.slot == Slot::kMuonMu ? "momentum_buffer" : tensor.slot == Slot::kAdamMu ? "exp_avg" : "exp_avg_sq";
      if (tensor.slot == Slot::kAdamMu) with_state_.adam.push_back(tensor.name);
      if (tensor.slot == Slot::kMuonMu) with_state_.muon.push_back(tensor.name);
      return draft_.Add(Key({Value("optim"), Value("state"), Value(tensor.name), Value(field)}), tensor.name, tensor.slot, tensor.dtype, tensor.shape,
                        tensor.expr, options_);
    }
    const auto master = masters_.find(tensor.name);
    const HubTensor& from = options_.params_from_master && master != masters_.end() ? *master->second : tensor;
    CROSSDOCK_RETURN_IF_ERROR(draft_.Add(Key({Value("model"), Value(tensor.name)}), tensor.name, Slot::kParam, from.dtype, from.shape, from.expr, options_));
    const bool tied = !hub_.model.Holds("untied");
    if (tensor.name != EmbeddingOf(*hub_.family) || !tied) return OkStatus();
    // A tied model's state dict names the weight twice, and dcp.load asks for both.
    return draft_.Add(Key({Value("model"), Value(HeadOf(*hub_.family))}), HeadOf(*hub_.family), Slot::kParam, from.dtype, from.shape, from.expr, options_);
  }

  Status AddOptimizer() {
    if (!WithState()) return OkStatus();
    std::ranges::sort(with_state_.adam);
    std::ranges::sort(with_state_.muon);
    CROSSDOCK_RETURN_IF_ERROR(AddSteps());
    CROSSDOCK_ASSIGN_OR_RETURN(ParamGroupsToWrite groups, MakeParamGroups(hub_, options_, with_state_));
    for (std::size_t i = 0; i < groups.groups.size(); ++i) {
      for (const auto& [field, value] : groups.groups[i].as_dict()->items) {
        const std::string key = Key({Value("optim"), Value("param_groups"), Value(static_cast<std::int64_t>(i)), field});
        target_.catalog.objects["object:" + key] = value;
      }
    }
    for (std::string& notice : groups.notices) target_.notices.push_back(std::move(notice));
    return OkStatus();
  }

  [[nodiscard]] bool WithState() const { return !with_state_.adam.empty() || !with_state_.muon.empty(); }

  /// Adam's step stands beside its moments, a parameter at a time. torch.optim.Muon counts none.
  Status AddSteps() {
    if (!with_state_.muon.empty() && hub_.counters.muon_count && hub_.counters.muon_count != hub_.counters.adam_count) {
      target_.notices.push_back(fmt::format("Muon's counter, {}, has no place in a PyTorch optimizer, whose Muon counts no steps: it is left out", *hub_.counters.muon_count));
    }
    if (with_state_.adam.empty()) return OkStatus();
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t step, AdamStep());
    for (const std::string& name : with_state_.adam) {
      target_.catalog.objects["scalar:" + Key({Value("optim"), Value("state"), Value(name), Value("step")})] = Scalar(static_cast<double>(step));
    }
    return OkStatus();
  }

  Result<std::int64_t> AdamStep() {
    if (hub_.counters.adam_count) return *hub_.counters.adam_count;
    if (hub_.counters.step) {
      target_.notices.push_back(fmt::format("Adam's step is taken to be the iteration, {}", *hub_.counters.step));
      return *hub_.counters.step;
    }
    return MakeError(ErrorCode::kUsage, "the source does not say Adam's step, which training must continue from")
        .WithHint("--no-optim leaves the state behind");
  }

  /// Items at the root: a loader that does not ask for them does not see them.
  void AddCounters() {
    const auto add = [&](const char* name, const std::optional<std::int64_t>& value) {
      if (value) target_.catalog.objects["object:" + Key({Value(name)})] = Value(*value);
    };
    add("step", hub_.counters.step);
    add("consumed_train_samples", hub_.counters.consumed_train_samples);
  }

  void TellMasters() {
    if (masters_.empty()) return;
    std::int64_t bytes = 0;
    for (const auto& [name, master] : masters_) {
      const auto size = ByteSize(master->dtype, master->shape);
      bytes += size ? *size : 0;
    }
    if (options_.params_from_master) {
      target_.notices.push_back("the parameters are the master weights (--params-from master)");
      return;
    }
    target_.left_out.push_back({"master weights", "a PyTorch optimizer keeps none: it steps on the parameters themselves", static_cast<std::int64_t>(masters_.size()), bytes});
    const bool wider = std::ranges::any_of(hub_.tensors, [&](const HubTensor& t) {
      const auto master = masters_.find(t.name);
      return t.slot == Slot::kParam && master != masters_.end() && BitsOf(master->second->dtype) > BitsOf(t.dtype);
    });
    if (wider) target_.notices.push_back("the master weights are finer than the parameters that are written; --params-from master writes them instead, and training goes on exactly");
  }

  const HubState& hub_;
  const TargetOptions& options_;
  Draft draft_;
  TargetState target_;
  ValueDict paths_;
  std::map<std::string_view, const HubTensor*> masters_;
  ParamsWithState with_state_;
};

}  // namespace

Result<TargetState> WriteDcp(const HubState& hub, const TargetOptions& options) {
  if (options.experts.empty()) return Writer(hub, options).Write();
  CROSSDOCK_ASSIGN_OR_RETURN(const Spellings spellings, WithExperts(*hub.family, options.experts, {}));
  CROSSDOCK_ASSIGN_OR_RETURN(std::vector<SpelledTensor> tensors, Spell(hub, spellings));
  HubState spelled = hub;
  spelled.tensors.clear();
  for (SpelledTensor& one : tensors) spelled.tensors.push_back(std::move(one.tensor));
  return Writer(spelled, options).Write();
}

}  // namespace crossdock::dialects::hf
