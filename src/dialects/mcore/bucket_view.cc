// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/bucket_view.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/checked_math.h"
#include "dialects/mcore/args.h"
#include "dialects/mcore/bucket_keys.h"
#include "dialects/mcore/cut_table.h"
#include "dialects/mcore/flat_buffer.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/layout_args.h"
#include "dialects/mcore/legacy_experts.h"
#include "dialects/mcore/legacy_groups.h"
#include "dialects/mcore/legacy_names.h"
#include "dialects/mcore/registration_order.h"
#include "fmt/format.h"
#include "layout/bucket_layout.h"
#include "layout/stage_map.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;

constexpr const char* kLeaveBehind = "--no-optim leaves the optimizer state behind";

/// A model tensor of the source, and what one layer of it is.
struct ModelTensor {
  std::int32_t entry = -1;
  bool stacked = false;      ///< the first axis counts layers
  std::int64_t layers = 1;   ///< of a stacked tensor
  std::int64_t experts = 0;  ///< of a layer, which are one parameter each; 0: no experts'
  DType dtype = DType::kBF16;
  Shape shape;               ///< of one layer, or of one expert
  std::optional<Cut> cut;    ///< of that shape
};

/// One optimizer of one rank: which parameters it has, and where it is stored.
struct StateOwner {
  std::int64_t chained = -1;
  std::int64_t group = 0;
  int tensor = 0;            ///< the rank's part of dense parameters
  int expert = 0;            ///< its part of the experts, and within each of them
  int within = 0;
  bool dense = true, experts = true;
};

/// A parameter of one rank's model chunk.
struct LocalParam {
  std::string name;          ///< with a global layer number
  const ModelTensor* tensor = nullptr;
  Shape shape;               ///< of the rank's shard
  bool copy = false;         ///< a last stage's copy of the tied embedding: its state is the embedding's own
  std::string key;           ///< the tensor's, with a global layer number: `name` but for experts
};

/// The integers that an object records for one buffer: [[{dtypes: [n, ...]}, ...]], the outer list being the object's.
std::optional<std::vector<std::int64_t>> RecordedSizes(const Value& object, std::int64_t buffer) {
  const ValueList* outer = object.as_sequence();
  const ValueList* buffers = outer != nullptr && outer->size() == 1 ? outer->front().as_sequence() : nullptr;
  if (buffers == nullptr || buffer >= static_cast<std::int64_t>(buffers->size())) return std::nullopt;
  const Value::Dict* dtypes = (*buffers)[static_cast<std::size_t>(buffer)].as_dict();
  const ValueList* sizes = dtypes != nullptr && dtypes->items.size() == 1 ? dtypes->items.front().second.as_sequence() : nullptr;
  if (sizes == nullptr) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const Value& size : *sizes) {
    if (size.as_int() == nullptr) return std::nullopt;
    numbers.push_back(*size.as_int());
  }
  return numbers;
}

class Reader {
 public:
  Reader(const Catalog& source, const ObjectLoader& load) : source_(source), load_(load) {}

  Result<BucketState> Run() {
    CROSSDOCK_ASSIGN_OR_RETURN(stored_, FindBuffers(source_));
    CROSSDOCK_RETURN_IF_ERROR(ReadRun());
    CROSSDOCK_RETURN_IF_ERROR(ReadModel());
    CROSSDOCK_ASSIGN_OR_RETURN(stages_, layout::MakeStageMap(layout_, layers_));
    for (int stage = 0; stage < layout_.pp; ++stage) {
      for (const StateOwner& owner : OwnersOf(stage)) CROSSDOCK_RETURN_IF_ERROR(OneOwner(stage, owner));
    }
    if (!stored_.empty()) return Disagrees(stored_.begin()->first, fmt::format("TP {} x PP {} and what the model chunks hold", layout_.tp, layout_.pp));
    CROSSDOCK_RETURN_IF_ERROR(Join());
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Value> scaler, Object(OwnersOf(0).front(), "grad_scaler"));
    const ValueList* wrapped = scaler ? scaler->as_sequence() : nullptr;
    if (wrapped != nullptr && wrapped->size() == 1) state_.grad_scaler = wrapped->front();
    state_.notices.push_back(
        fmt::format("the optimizer's flat buckets (dp_reshardable, TP {}, PP {}{}{}) are put in order by the run's arguments; every master weight is compared with its model weight", layout_.tp,
                    layout_.pp, Divided() ? fmt::format(", EP {}", layout_.ep) : std::string(), stages_.vpp > 1 ? fmt::format(", {} model chunks a stage", stages_.vpp) : std::string()));
    return std::move(state_);
  }

 private:
  /// With expert parallelism experts have an optimizer of their own.
  [[nodiscard]] bool Divided() const { return layout_.ep > 1; }

  [[nodiscard]] bool HoldsExperts(int stage) const {
    for (int index = 0; index < stages_.vpp; ++index) {
      const layout::StageMap::ModelChunk& chunk = stages_.At(stage, index);
      for (const auto& [key, tensor] : model_) {
        if (tensor.experts == 0) continue;
        const std::optional<std::int64_t> number = LayerNumber(key);
        if (number ? *number >= chunk.first && *number < chunk.first + chunk.count : chunk.count > 0) return true;
      }
    }
    return false;
  }

  /// The optimizers of a stage's ranks, each once: data-parallel ranks share one.
  [[nodiscard]] std::vector<StateOwner> OwnersOf(int stage) const {
    // Where one stage has experts all of them chain two optimizers, the second one without parameters on a stage that has none.
    const bool experts = Divided() && std::ranges::any_of(model_, [](const auto& item) { return item.second.experts > 0; });
    std::vector<StateOwner> owners;
    for (int rank = 0; rank < layout_.tp; ++rank) {
      const std::int64_t group = rank + static_cast<std::int64_t>(layout_.tp) * stage;
      owners.push_back({experts ? 0 : -1, group, rank, 0, rank, true, !experts});
    }
    for (int expert = 0; experts && HoldsExperts(stage) && expert < layout_.ep; ++expert) {
      for (int within = 0; within < layout_.expert_tp(); ++within) {
        owners.push_back({1, within + static_cast<std::int64_t>(layout_.expert_tp()) * (expert + static_cast<std::int64_t>(layout_.ep) * stage), 0, expert, within, false, true});
      }
    }
    return owners;
  }

  Error Disagrees(const BufferPlace& place, std::string expected) const {
    return MakeError(ErrorCode::kCorrupt, "the optimizer's flat buckets do not fit the layout that the run's arguments say")
        .WithTensor(fmt::format("{}.gbuf_idx_{}", GroupName(place), place.buffer))
        .WithExpected(std::move(expected))
        .WithHint(fmt::format("the arguments in {} must be those of the run that saved; {}", origin_, kLeaveBehind));
  }

  Status ReadRun() {
    std::optional<StoredArgs> stored = ReadStoredArgs(source_);
    const auto missing = [&](const char* what) {
      return MakeError(ErrorCode::kIncomplete, "the optimizer's flat buckets have an order that only the run's arguments tell, and they are not all stored")
          .WithExpected(what)
          .WithHint("save the run again with --dist-ckpt-optim-fully-reshardable (Megatron-Core 0.15 or newer), or leave the state behind with --no-optim");
    };
    if (!stored) return missing("`args` in the common state");
    args_ = std::move(stored->args);
    origin_ = stored->origin;
    for (const char* needed : {"tensor_model_parallel_size", "pipeline_model_parallel_size"}) {
      if (!args_.GetInt(needed)) return missing(needed);
    }
    const auto refused = [](std::string what) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("the optimizer's flat buckets are those of a run with {}, which this version does not read", what)).WithHint(kLeaveBehind);
    };
    if (const std::int64_t instances = args_.GetInt("num_distributed_optimizer_instances").value_or(1); instances != 1) {
      return refused(fmt::format("num_distributed_optimizer_instances = {}", instances));
    }
    if (args_.GetBool("moe_use_legacy_grouped_gemm").value_or(false)) return refused("moe_use_legacy_grouped_gemm");
    CROSSDOCK_ASSIGN_OR_RETURN(layout_, LayoutOfArgs(args_));
    if (!Divided() && layout_.expert_tp() != layout_.tp) return refused("expert_tensor_parallel_size beside no expert parallelism");
    const std::optional<std::int64_t> dp = args_.GetInt("data_parallel_size");
    const std::int64_t cp = args_.GetInt("context_parallel_size").value_or(1);
    constexpr std::int64_t kMostRanks = 1 << 20;
    if (dp && *dp >= 1 && *dp <= kMostRanks && cp >= 1 && cp <= kMostRanks) data_parallel_ = *dp * cp;
    spec_ = LayerSpecOf(args_);
    gated_ = HasGatedMlp(args_);
    return OkStatus();
  }

  Status ReadModel() {
    for (std::size_t i = 0; i < source_.entries.size(); ++i) {
      const Entry& entry = source_.entries[i];
      if (ParseTensorKey(entry.name).kind != TensorKey::Kind::kModel) continue;
      ModelTensor tensor{static_cast<std::int32_t>(i), HasLayerAxis(entry.name) && !entry.shape.empty(), 1, 0, entry.dtype, entry.shape, FindCut(entry.name)};
      if (tensor.stacked) {
        tensor.layers = entry.shape[0];
        layers_ = std::max(layers_, tensor.layers);
        tensor.shape.erase(0);
      } else if (const std::optional<std::int64_t> number = LayerNumber(entry.name)) {
        layers_ = std::max(layers_, *number + 1);
      }
      if (IsModuleBuffer(entry.name)) continue;
      if (tensor.cut && tensor.cut->experts) {
        if (tensor.shape.empty() || tensor.shape[0] < 1 || tensor.shape[0] % layout_.ep != 0) {
          return MakeError(ErrorCode::kCorrupt, fmt::format("the experts do not divide among the {} expert-parallel ranks that the run's arguments say", layout_.ep)).WithTensor(entry.name)
              .WithFound(ToString(tensor.shape)).WithHint(kLeaveBehind);
        }
        tensor.experts = tensor.shape[0];
        tensor.shape.erase(0);
        tensor.cut = tensor.cut->axis == 0 ? std::nullopt : std::optional<Cut>(Cut{tensor.cut->axis - 1, tensor.cut->halves, false});
      }
      model_.emplace(entry.name, std::move(tensor));
    }
    if (!model_.contains(std::string(kEmbeddingKey))) {
      return MakeError(ErrorCode::kIncomplete, "the optimizer's flat buckets are proven by the model's weights, which are not there").WithTensor(std::string(kEmbeddingKey)).WithHint(kLeaveBehind);
    }
    constexpr std::int64_t kMostLayers = 1 << 16;
    if (layers_ < 1 || layers_ > kMostLayers) return MakeError(ErrorCode::kCorrupt, "no model has so many layers").WithFound(fmt::format("{}", layers_));
    return OkStatus();
  }

  Result<LocalParam> Local(std::string name, const ModelTensor& tensor, bool copy, std::string key) const {
    Shape shape = tensor.shape;
    const int ranks = tensor.experts > 0 ? layout_.expert_tp() : layout_.tp;
    if (tensor.cut) {
      const auto axis = static_cast<std::size_t>(tensor.cut->axis);
      if (axis >= shape.size() || shape[axis] % ranks != 0) {
        return MakeError(ErrorCode::kCorrupt, fmt::format("the tensor cannot have been divided among the {} tensor-parallel ranks that the run's arguments say", ranks))
            .WithTensor(name)
            .WithFound(ToString(shape))
            .WithHint(kLeaveBehind);
      }
      shape[axis] /= ranks;
    }
    return LocalParam{std::move(name), &tensor, std::move(shape), copy, std::move(key)};
  }

  /// The parameters of one model chunk in order of registration.
  Result<std::vector<LocalParam>> ParamsOf(const layout::StageMap::ModelChunk& chunk, const StateOwner& owner) const {
    std::map<std::string, LocalParam> held;
    const bool grouped = GroupsExperts(args_);
    const auto hold = [&](const std::string& key, const ModelTensor& tensor, bool copy) -> Status {
      if (!(tensor.experts > 0 ? owner.experts : owner.dense)) return OkStatus();
      for (std::int64_t e = 0; e < (tensor.experts > 0 ? tensor.experts / layout_.ep : 1); ++e) {
        std::string name = tensor.experts > 0 ? ExpertName(key, e, grouped) : key;
        CROSSDOCK_ASSIGN_OR_RETURN(LocalParam local, Local(name, tensor, copy, key));
        held.emplace(std::move(name), std::move(local));
      }
      return OkStatus();
    };
    for (const auto& [key, tensor] : model_) {
      if (tensor.stacked) {
        for (std::int64_t i = chunk.first; i < std::min(chunk.first + chunk.count, tensor.layers); ++i) {
          CROSSDOCK_RETURN_IF_ERROR(hold(fmt::format("{}{}.{}", kLayersPrefix, i, std::string_view(key).substr(kLayersPrefix.size())), tensor, false));
        }
        continue;
      }
      const std::optional<std::int64_t> number = LayerNumber(key);
      const bool here = number                          ? *number >= chunk.first && *number < chunk.first + chunk.count
                        : key.starts_with("embedding.") ? chunk.embedding
                                                        : chunk.head;
      if (here) CROSSDOCK_RETURN_IF_ERROR(hold(key, tensor, false));
    }
    // Tied weights are one parameter, unless embedding and head are on different stages.
    if (owner.dense && chunk.head && !chunk.embedding && !model_.contains(std::string(kHeadKey))) {
      CROSSDOCK_RETURN_IF_ERROR(hold(std::string(kHeadKey), model_.at(std::string(kEmbeddingKey)), true));
    }
    std::vector<std::string> names;
    for (const auto& [name, local] : held) names.push_back(name);
    CROSSDOCK_ASSIGN_OR_RETURN(names, InRegistrationOrder(std::move(names), spec_));
    std::vector<LocalParam> params;
    for (const std::string& name : names) params.push_back(std::move(held.at(name)));
    return params;
  }

  Result<std::optional<Value>> Object(const StateOwner& owner, const char* what) const {
    const std::string name = fmt::format("{}.{}/shard_0_1", GroupName({owner.chained, owner.group, 0}), what);
    const auto ref = std::find_if(source_.object_refs.begin(), source_.object_refs.end(), [&](const ObjectRef& r) { return r.name == name; });
    if (ref == source_.object_refs.end()) return std::optional<Value>();
    CROSSDOCK_ASSIGN_OR_RETURN(Value value, load_(*ref));
    return std::optional<Value>(std::move(value));
  }

  Status OneOwner(int stage, const StateOwner& owner) {
    std::int64_t buffer = 0;
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Value> padded, Object(owner, "per_bucket_numel"));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Value> unpadded, Object(owner, "per_bucket_numel_unpadded"));
    for (int index = 0; index < stages_.vpp; ++index) {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<LocalParam> params, ParamsOf(stages_.At(stage, index), owner));
      // One buffer a dtype, in order of first appearance.
      std::vector<DType> dtypes;
      for (const LocalParam& param : params) {
        if (std::ranges::find(dtypes, param.tensor->dtype) == dtypes.end()) dtypes.push_back(param.tensor->dtype);
      }
      for (const DType dtype : dtypes) {
        std::vector<const LocalParam*> members;
        for (const LocalParam& param : params) {
          if (param.tensor->dtype == dtype) members.push_back(&param);
        }
        CROSSDOCK_RETURN_IF_ERROR(OneBuffer({owner.chained, owner.group, buffer}, owner, dtype, members, padded, unpadded));
        ++buffer;
      }
    }
    return TakeGroups(owner);
  }

  /// The ranks that share an optimizer's state, where known: data-parallel ones, for experts those of one part of them.
  [[nodiscard]] std::optional<std::int64_t> Sharers(const StateOwner& owner) const {
    if (!data_parallel_ || owner.dense) return data_parallel_;
    const std::int64_t ranks = *data_parallel_ * layout_.tp;
    const std::int64_t parts = static_cast<std::int64_t>(layout_.ep) * layout_.expert_tp();
    return ranks % parts == 0 ? std::optional<std::int64_t>(ranks / parts) : std::nullopt;
  }

  Status OneBuffer(const BufferPlace& place, const StateOwner& owner, DType dtype, const std::vector<const LocalParam*>& members, const std::optional<Value>& padded,
                   const std::optional<Value>& unpadded) {
    const auto stored = stored_.find(place);
    if (stored == stored_.end()) return Disagrees(place, fmt::format("such a buffer, for {} parameters", members.size())).WithFound("none");
    const StoredBuffer buffer = std::move(stored->second);
    stored_.erase(stored);
    if (!buffer.dtypes.starts_with(BufferDTypePrefix(dtype))) return Disagrees(place, fmt::format("parameters of {}", DTypeName(dtype))).WithFound(buffer.dtypes);

    std::vector<layout::BufferParam> sizes;
    for (const LocalParam* member : members) sizes.push_back({CheckedCount(member->shape), false});
    std::vector<std::int64_t> recorded;
    for (const std::int32_t entry : buffer.entries[0]) recorded.push_back(source_.entries[static_cast<std::size_t>(entry)].shape[0]);
    Result<layout::BucketLayout> fitted = layout::FitBucketLayout(sizes, recorded);
    if (!fitted) {
      Error error = Disagrees(place, fitted.error().expected);
      error.found = fitted.error().found;
      return error;
    }
    if (unpadded && RecordedSizes(*unpadded, place.buffer) != recorded) return Disagrees(place, "the sizes that per_bucket_numel_unpadded records");
    const std::optional<std::int64_t> sharers = Sharers(owner);
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::int64_t> whole, PaddedSizes(place, padded, recorded, sharers));
    for (std::size_t bucket = 0; bucket < recorded.size(); ++bucket) {
      const std::optional<std::int64_t> share = whole.empty() || !sharers ? std::nullopt : std::optional<std::int64_t>(whole[bucket] / *sharers);
      for (const std::vector<std::int32_t>& entries : buffer.entries) {
        CROSSDOCK_RETURN_IF_ERROR(CheckEntryPieces(source_.entries[static_cast<std::size_t>(entries[bucket])], recorded[bucket], *fitted, sizes, bucket, share));
      }
    }
    return Place(buffer, *fitted, owner, members);
  }

  /// What a bucket has with its padding must follow from the run's data-parallel size.
  Result<std::vector<std::int64_t>> PaddedSizes(const BufferPlace& place, const std::optional<Value>& padded, const std::vector<std::int64_t>& recorded,
                                                const std::optional<std::int64_t>& sharers) const {
    if (!padded || !sharers) return std::vector<std::int64_t>();
    const std::optional<std::vector<std::int64_t>> sizes = RecordedSizes(*padded, place.buffer);
    if (!sizes || sizes->size() != recorded.size()) return Disagrees(place, "one number a bucket in per_bucket_numel");
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      const std::int64_t plain = RoundUp(recorded[i], layout::BucketEndDivisor(*sharers, false));
      const std::int64_t wide = RoundUp(recorded[i], layout::BucketEndDivisor(*sharers, true));
      if ((*sizes)[i] == plain || (*sizes)[i] == wide) continue;
      return Disagrees(place, fmt::format("{} or {} elements with padding in bucket {}, for {} ranks that share it", plain, wide, i, *sharers)).WithFound(fmt::format("{}", (*sizes)[i]));
    }
    return *sizes;
  }

  static Status CheckEntryPieces(const Entry& entry, std::int64_t size, const layout::BucketLayout& layout, std::span<const layout::BufferParam> sizes, std::size_t bucket,
                                 std::optional<std::int64_t> share) {
    if (entry.shape[0] != size) {
      return MakeError(ErrorCode::kCorrupt, "the states of one bucket differ in size").WithTensor(entry.name).WithExpected(fmt::format("{} elements", size)).WithFound(ToString(entry.shape));
    }
    std::vector<std::int64_t> edges;
    for (const Chunk& chunk : entry.chunks) edges.push_back(chunk.box.offsets[0]);
    std::ranges::sort(edges);
    Status pieces = layout::CheckPieces(layout, sizes, static_cast<std::int64_t>(bucket), edges, share);
    if (pieces) return pieces;
    return Error(std::move(pieces).error()).WithTensor(entry.name).WithHint(fmt::format("the arguments must be those of the run that saved; {}", kLeaveBehind));
  }

  Status Place(const StoredBuffer& buffer, const layout::BucketLayout& layout, const StateOwner& owner, const std::vector<const LocalParam*>& members) {
    for (std::size_t state = 0; state < kBucketStates.size(); ++state) {
      std::vector<Expr> flats;
      for (const std::int32_t entry : buffer.entries[state]) {
        const Entry& stored = source_.entries[static_cast<std::size_t>(entry)];
        flats.push_back(expr::Leaf(entry, stored.dtype, stored.shape));
      }
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (members[i]->copy) continue;
        const bool expert = members[i]->tensor->experts > 0;
        std::vector<Expr>& shards = expert ? ExpertsOf(state, *members[i], owner) : shards_[state][members[i]->key];
        // A tensor that is not cut lies with every rank: the first one's is taken.
        if (!expert && !members[i]->tensor->cut && owner.tensor > 0) continue;
        CROSSDOCK_ASSIGN_OR_RETURN(Expr shard, OutOfBuffer(layout, flats, i, members[i]->shape));
        shards.push_back(std::move(shard));
      }
    }
    return OkStatus();
  }

  /// Where the experts of one rank go, in their order: a rank's buffer has the first matrices of all of them before the second ones, or
  /// those of each expert together, but of one matrix always one expert after the other.
  std::vector<Expr>& ExpertsOf(std::size_t state, const LocalParam& param, const StateOwner& owner) {
    auto& parts = experts_[state][param.key].parts;
    parts.resize(static_cast<std::size_t>(layout_.ep));
    auto& ranks = parts[static_cast<std::size_t>(owner.expert)];
    ranks.resize(static_cast<std::size_t>(layout_.expert_tp()));
    return ranks[static_cast<std::size_t>(owner.within)];
  }

  Status TakeGroups(const StateOwner& owner) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Value> object, Object(owner, "optimizer"));
    const ValueList* wrapped = object ? object->as_sequence() : nullptr;
    const Value* groups = wrapped != nullptr && wrapped->size() == 1 ? wrapped->front().Find("param_groups") : nullptr;
    const ValueList* list = groups != nullptr ? groups->as_sequence() : nullptr;
    if (list == nullptr) {
      return MakeError(ErrorCode::kIncomplete, "the optimizer's parameter groups are missing").WithTensor(fmt::format("{}.optimizer/shard_0_1", GroupName({owner.chained, owner.group, 0}))).WithHint(kLeaveBehind);
    }
    ValueList& into = owner.dense ? state_.param_groups : state_.expert_groups;
    for (const Value& one : *list) {
      const auto same = [&](const Value& other) { return other.Equals(one); };
      if (std::ranges::none_of(into, same)) into.push_back(one);
    }
    return OkStatus();
  }

  /// The shards of all ranks and layers become the tensors that fully_reshardable would have stored.
  Status Join() {
    for (std::size_t state = 0; state < kBucketStates.size(); ++state) {
      for (const auto& [key, tensor] : model_) {
        std::vector<Expr> parts;
        for (std::int64_t layer = 0; layer < tensor.layers; ++layer) {
          const std::string name = tensor.stacked ? fmt::format("{}{}.{}", kLayersPrefix, layer, std::string_view(key).substr(kLayersPrefix.size())) : key;
          const auto shards = shards_[state].find(name);
          const auto experts = experts_[state].find(name);
          if (tensor.experts > 0 ? experts == experts_[state].end() : shards == shards_[state].end()) {
            return MakeError(ErrorCode::kCorrupt, "no stage of the layout that the run's arguments say holds the parameter").WithTensor(name).WithHint(kLeaveBehind);
          }
          Result<Expr> whole = tensor.experts > 0 ? JoinExperts(experts->second, tensor.cut ? Cut{tensor.cut->axis + 1, tensor.cut->halves, true} : Cut{0, false, true}, gated_) : JoinRanks(shards->second, tensor.cut, gated_);
          if (!whole) return std::move(std::move(whole).error()).WithTensor(name);
          parts.push_back(*std::move(whole));
        }
        Expr made = parts.front();
        if (tensor.stacked) {
          CROSSDOCK_ASSIGN_OR_RETURN(made, tensor.experts > 0 ? StackLayers(parts) : expr::Stack(parts, 0));
        }
        state_.entries.push_back({fmt::format("optimizer.state.{}.{}", kBucketStates[state], key), Slot::kParam, made->dtype, made->shape, {}});
        state_.exprs.push_back(std::move(made));
      }
    }
    return OkStatus();
  }

  const Catalog& source_;
  const ObjectLoader& load_;
  StoredBuffers stored_;
  Value args_ = Value::MakeDict();
  std::string origin_;
  layout::ParallelLayout layout_;
  layout::StageMap stages_;
  LayerSpec spec_ = LayerSpec::kTransformerEngine;
  bool gated_ = true;
  std::optional<std::int64_t> data_parallel_;
  std::int64_t layers_ = 0;
  std::map<std::string, ModelTensor> model_;
  std::array<std::map<std::string, std::vector<Expr>>, kBucketStates.size()> shards_;  ///< by key, in order of tensor ranks
  std::array<std::map<std::string, ExpertParts>, kBucketStates.size()> experts_;       ///< by key
  BucketState state_;
};

}  // namespace

bool HasBuckets(const Catalog& source) {
  return std::ranges::any_of(source.entries, [](const Entry& entry) { return ParseTensorKey(entry.name).kind == TensorKey::Kind::kBucket; });
}

Result<BucketState> ReadBuckets(const Catalog& source, const ObjectLoader& load) { return Reader(source, load).Run(); }

}  // namespace crossdock::dialects::mcore
