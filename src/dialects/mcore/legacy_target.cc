// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_target.h"

#include <algorithm>
#include <array>
#include <map>

#include "dialects/mcore/args.h"
#include "dialects/mcore/bucket_keys.h"
#include "dialects/mcore/common_state.h"
#include "dialects/mcore/extra_state.h"
#include "dialects/mcore/flat_buffer.h"
#include "dialects/mcore/kept_dtypes.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/legacy_names.h"
#include "dialects/mcore/legacy_optimizer.h"
#include "dialects/mcore/legacy_ranks.h"
#include "dialects/mcore/legacy_parts.h"
#include "dialects/mcore/legacy_sections.h"
#include "dialects/mcore/legacy_shards.h"
#include "dialects/mcore/load_line.h"
#include "dialects/mcore/random_state.h"
#include "fmt/format.h"
#include "layout/bucket_layout.h"

namespace crossdock::dialects::mcore {
namespace {

/// The ranks of a stage that share a directory.
struct RankPlace {
  int tensor = 0;
  int expert = 0;
  int within = 0;               ///< tensor rank within an expert
  int number = 0;               ///< the first of them in the stage
};

class Converter {
 public:
  Converter(TargetState global, const layout::ParallelLayout& layout, bool distributed, const std::optional<LegacyRankPlace>& only)
      : global_(std::move(global)), layout_(layout), distributed_(distributed), only_(only) {}

  Result<TargetState> Run() {
    CROSSDOCK_RETURN_IF_ERROR(ReadCommon());
    CROSSDOCK_RETURN_IF_ERROR(FuseSections(&global_));
    CROSSDOCK_ASSIGN_OR_RETURN(parts_, LegacyParts::Make(global_.catalog.entries, layout_, args_, layers_, !only_));
    if (parts_->has_experts()) CROSSDOCK_RETURN_IF_ERROR(CheckExperts());
    out_.catalog.format = "mp_rank";
    out_.catalog.step = global_.catalog.step;
    for (int stage = 0; stage < layout_.pp; ++stage) {
      if (only_ && only_->stage != stage) continue;
      CROSSDOCK_ASSIGN_OR_RETURN(const auto chunks, parts_->OfStage(stage));
      for (const RankPlace& place : Places()) CROSSDOCK_RETURN_IF_ERROR(AddRank(stage, place, chunks));
    }
    Finish();
    return std::move(out_);
  }

 private:
  // ---- what is given ----

  Status ReadCommon() {
    const auto common = global_.catalog.objects.find("common");
    const std::optional<StoredArgs> stored = ReadStoredArgs(global_.catalog);
    const std::optional<std::int64_t> layers = stored ? stored->args.GetInt("num_layers") : std::nullopt;
    if (common == global_.catalog.objects.end() || !layers) {
      return MakeError(ErrorCode::kIncomplete, "a legacy checkpoint is divided by its arguments, which the source does not store")
          .WithExpected("`args` with num_layers");
    }
    common_ = common->second;
    args_ = stored->args;
    layers_ = *layers;
    spec_ = LayerSpecOf(args_);
    tied_ = TiesEmbeddings(args_);
    return OkStatus();
  }

  Status CheckExperts() {
    if (layout_.tp % layout_.expert_tp() != 0 && !only_) {
      return MakeError(ErrorCode::kUnsupported, "the directories of a legacy checkpoint do not tell the tensor-parallel ranks of an expert apart")
          .WithExpected(fmt::format("--etp to be a divisor of --tp {}", layout_.tp))
          .WithFound(fmt::format("--etp {}", layout_.expert_tp()))
          .WithHint("`--to megatron` holds every division");
    }
    args_.Set("moe_grouped_gemm", Value(GroupsExperts(args_)));
    return OkStatus();
  }

  /// The directories of a stage; ranks count as Megatron counts them (parallel_state.py: tensor ranks first).
  [[nodiscard]] std::vector<RankPlace> Places() const {
    if (only_) return {{only_->tensor, only_->expert, only_->within, 0}};
    std::vector<RankPlace> places;
    for (int rank = 0; rank < layout_.ranks_per_stage(); ++rank) {
      const RankPlace place{rank % layout_.tp, rank / layout_.expert_tp() % layout_.ep, rank % layout_.expert_tp(), rank};
      const bool known = std::ranges::any_of(places, [&](const RankPlace& p) { return p.tensor == place.tensor && p.expert == place.expert; });
      if (!known) places.push_back(place);
    }
    return places;
  }

  [[nodiscard]] const Entry& EntryAt(std::int32_t index) const { return global_.catalog.entries[static_cast<std::size_t>(index)]; }

  /// The rank that holds this one's part: a tower's parts go to the decoder's ranks in turn; what repeats the embedding is cut as that is.
  [[nodiscard]] int TensorRankOf(const std::string& key) const {
    const bool tower = IsVision(key) && !key.starts_with("encoder_model.text_encoder.");
    return tower ? rank_.tensor % layout_.tower_tp() : rank_.tensor;
  }

  // ---- one rank's files ----

  Status AddRank(int stage, const RankPlace& place, const std::vector<LocalChunk>& chunks) {
    const std::string dir = RankDirName(place.tensor, stage, layout_.pp, place.expert, layout_.ep);
    file_ = dir + "/" + std::string(kLegacyModelFile);
    rank_ = place;
    shard_ = stage * layout_.ranks_per_stage() + place.number;
    Value object = Value::MakeDict();
    object.Set("args", MakeNamespace(args_));
    object.Set("checkpoint_version", Value(3.0));
    for (const char* key : {"iteration", "num_floating_point_operations_so_far"}) {
      if (const Value* value = common_.Find(key)) object.Set(key, *value);
    }
    CarryKeptDTypes(common_, &object);
    for (std::size_t v = 0; v < chunks.size(); ++v) {
      const std::string key = chunks.size() == 1 ? "model" : fmt::format("model{}", v);
      CROSSDOCK_ASSIGN_OR_RETURN(Value model, MakeModel(key, chunks[v]));
      object.Set(key, std::move(model));
    }
    if (parts_->with_optimizer()) {
      const Value* optimizer = common_.Find("optimizer");
      CROSSDOCK_ASSIGN_OR_RETURN(const LegacyChain chain, ChainOf(optimizer != nullptr ? *optimizer : Value::MakeDict(), DividesExperts()));
      if (chain.muon != parts_->with_muon()) {
        return MakeError(ErrorCode::kIncomplete, "the parameter groups and the states are not those of one optimizer")
            .WithExpected(parts_->with_muon() ? "a group of Muon's" : "groups of Adam's alone")
            .WithHint("--no-optim leaves all state behind");
      }
      Value made = MakeDistributedOptimizer(chain);
      if (!distributed_) {
        CROSSDOCK_ASSIGN_OR_RETURN(made, PlainOptimizer(chain, chunks));
      }
      object.Set("optimizer", std::move(made));
      if (const Value* scheduler = common_.Find("opt_param_scheduler")) object.Set("opt_param_scheduler", *scheduler);
    }
    const auto random = global_.catalog.objects.find("object:" + RandomStateKey(stage, layout_.pp, place.tensor, layout_.tp));
    if (random != global_.catalog.objects.end()) {
      const ValueList* wrapped = random->second.as_sequence();   // torch_dist's objects are lists of one
      object.Set("rng_state", wrapped != nullptr && wrapped->size() == 1 ? wrapped->front() : random->second);
    }
    out_.catalog.objects[file_] = std::move(object);
    if (parts_->with_optimizer() && distributed_) return AddBuffers(dir, chunks);
    return OkStatus();
  }

  Result<Value> MakeModel(const std::string& place, const LocalChunk& chunk) {
    Value model = Value::MakeDict();
    model.as_dict()->ordered_class = true;
    std::vector<std::string> names;
    for (const LocalParameter& parameter : chunk.parameters) names.push_back(parameter.name);
    auto next = chunk.parameters.cbegin();
    for (const StateItem& item : WithExtraStates(names, spec_, chunk.prefix, chunk.head)) {
      Value value;
      if (item.parameter) {
        const LocalParameter& parameter = *next++;
        CROSSDOCK_ASSIGN_OR_RETURN(value, AddTensor(place + "/" + item.name, parameter, parameter.source->param, std::nullopt));
      } else if (!item.none) {
        value = EmptyExtraState().as_sequence()->front();
      }
      model.as_dict()->items.emplace_back(Value(item.name), std::move(value));
    }
    return model;
  }

  /// A run with expert-parallel ranks has an optimizer for the experts alone.
  [[nodiscard]] bool DividesExperts() const { return parts_->has_experts() && layout_.ep > 1; }

  Result<Value> PlainOptimizer(const LegacyChain& chain, const std::vector<LocalChunk>& chunks) {
    std::vector<GroupedParameter> parameters;
    std::vector<const LocalParameter*> all;
    for (const LocalChunk& chunk : chunks) {
      for (const LocalParameter& parameter : chunk.parameters) {
        if (IsModuleBuffer(parameter.name)) continue;
        CROSSDOCK_RETURN_IF_ERROR(CheckOptimized(parameter));
        CROSSDOCK_ASSIGN_OR_RETURN(const LegacyShard shard, Shard(parameter, parameter.source->param));
        parameters.push_back({parameter.name, shard.shape, parameter.experts > 0});
        all.push_back(&parameter);
      }
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<OptimizerPlace> places, OptimizerPlaces(chain, parameters));
    std::vector<OptimizedParameter> made(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const StateEntries& source = *all[i]->source;
      if (chain.muon && (source.momentum >= 0) != IsOfMuon(parameters[i].name, parameters[i].shape)) return OtherOwner(parameters[i], source.momentum >= 0);
      const std::string before = "optimizer/" + PathInChain(chain, places[i]);
      const auto state = [&](std::int32_t entry, const std::string& place, Value* out) -> Status {
        if (entry < 0) return OkStatus();
        CROSSDOCK_ASSIGN_OR_RETURN(*out, AddTensor(before + place, *all[i], entry, DType::kF32));
        return OkStatus();
      };
      CROSSDOCK_RETURN_IF_ERROR(state(source.states[0], fmt::format("fp32_from_fp16_params/{}/{}", places[i].group, places[i].index), &made[i].master));
      CROSSDOCK_RETURN_IF_ERROR(state(source.states[1], fmt::format("optimizer/state/{}/exp_avg", places[i].number), &made[i].mu));
      CROSSDOCK_RETURN_IF_ERROR(state(source.states[2], fmt::format("optimizer/state/{}/exp_avg_sq", places[i].number), &made[i].nu));
      CROSSDOCK_RETURN_IF_ERROR(state(source.momentum, fmt::format("optimizer/state/{}/momentum_buffer", places[i].number), &made[i].momentum));
    }
    return MakePlainOptimizer(chain, places, made);
  }

  /// Numbers stand for names: a run gives them to its parameters by its own rule.
  static Error OtherOwner(const GroupedParameter& parameter, bool muon) {
    return MakeError(ErrorCode::kUnsupported, "the legacy form numbers the states by Megatron's own division between Muon and Adam, and the source divides otherwise").WithTensor(parameter.name)
        .WithExpected(muon ? "Adam's moments" : "Muon's momentum")
        .WithFound(muon ? "Muon's momentum" : "Adam's moments")
        .WithHint("write `--to megatron`, or leave the state behind with --no-optim");
  }

  /// The type in which a run of 16 bits holds every parameter, whatever the files have; nothing for one of F32.
  [[nodiscard]] std::optional<DType> RunDType() const {
    if (args_.GetBool("bf16").value_or(false)) return DType::kBF16;
    return args_.GetBool("fp16").value_or(false) ? std::optional<DType>(DType::kF16) : std::nullopt;
  }

  /// A plain optimizer keeps masters of 16-bit parameters only.
  Status CheckOptimized(const LocalParameter& parameter) const {
    const Entry& entry = EntryAt(parameter.source->param);
    if (parameter.source->states[0] < 0) {
      return MakeError(ErrorCode::kIncomplete, "a parameter has no optimizer state").WithTensor(entry.name)
          .WithHint("`--allow missing-optimizer` begins it with zeros, `--no-optim` leaves all state behind");
    }
    if (entry.dtype == DType::kBF16 || entry.dtype == DType::kF16 || RunDType()) return OkStatus();
    return MakeError(ErrorCode::kUnsupported, "the legacy form of an optimizer over parameters that are not of 16 bits is not written")
        .WithTensor(entry.name)
        .WithExpected("BF16 or F16")
        .WithFound(std::string(DTypeName(entry.dtype)))
        .WithHint("`--dtype bf16` casts them, `--no-optim` leaves the state behind, `--to megatron` holds both");
  }

  // ---- distrib_optim.pt ----

  using Members = std::vector<const LocalParameter*>;

  /// One state; with expert-parallel ranks a list, of the dense parameters' and the experts'. The first data-parallel rank of either
  /// writes it: the others of those that have a directory have None instead, and where both are that there is no file.
  Status AddBuffers(const std::string& dir, const std::vector<LocalChunk>& chunks) {
    file_ = dir + "/" + std::string(kLegacyDistributedFile);
    const auto of = [](bool experts) { return [experts](const LocalParameter& parameter) { return (parameter.experts > 0) == experts; }; };
    if (!DividesExperts()) {
      CROSSDOCK_ASSIGN_OR_RETURN(Value object, Buffers(chunks, "", [](const LocalParameter&) { return true; }));
      out_.catalog.objects[file_] = std::move(object);
      return OkStatus();
    }
    ValueList both(2);
    const bool dense = rank_.number < layout_.tp;
    const bool experts = rank_.number < layout_.ep * layout_.expert_tp();
    if (dense) {
      CROSSDOCK_ASSIGN_OR_RETURN(both[0], Buffers(chunks, "0/", of(false)));
    }
    if (experts) {
      CROSSDOCK_ASSIGN_OR_RETURN(both[1], Buffers(chunks, "1/", of(true)));
    }
    if (dense || experts) out_.catalog.objects[file_] = Value::MakeList(std::move(both));
    return OkStatus();
  }

  template <typename Wanted>
  Result<Value> Buffers(const std::vector<LocalChunk>& chunks, const std::string& before, const Wanted& wanted) {
    Value object = Value::MakeDict();
    object.Set("buckets_coalesced", Value(true));
    std::int64_t buffer = 0;
    for (const LocalChunk& chunk : chunks) {
      Members members;
      for (const LocalParameter& parameter : chunk.parameters) {
        if (!IsModuleBuffer(parameter.name) && wanted(parameter)) members.push_back(&parameter);
      }
      if (members.empty()) continue;   // a chunk without parameters has no buffer
      CROSSDOCK_ASSIGN_OR_RETURN(Value made, MakeBuffer(buffer, before, members));
      object.as_dict()->items.emplace_back(Value(buffer++), std::move(made));
    }
    return object;
  }

  Result<Value> MakeBuffer(std::int64_t buffer, const std::string& before, const Members& members) {
    const DType dtype = RunDType().value_or(EntryAt(members.front()->source->param).dtype);
    std::vector<layout::BufferParam> sizes;
    const bool embedding = std::ranges::any_of(members, [](const LocalParameter* member) { return member->name == kEmbeddingKey; });
    for (const LocalParameter* member : members) {
      const LocalParameter& parameter = *member;
      CROSSDOCK_RETURN_IF_ERROR(CheckOptimized(parameter));
      if (!RunDType() && EntryAt(parameter.source->param).dtype != dtype) {
        return MakeError(ErrorCode::kUnsupported, "distrib_optim.pt of parameters of several dtypes is not written").WithTensor(parameter.name)
            .WithHint("--set use_distributed_optimizer=False writes the plain optimizer's form");
      }
      CROSSDOCK_ASSIGN_OR_RETURN(const LegacyShard shard, Shard(parameter, parameter.source->param));
      const bool shared = layout_.pp > 1 && IsSharedEmbedding(parameter.name, tied_, parts_->PredictsTokens(), embedding);
      sizes.push_back({CheckedCount(shard.shape), shared});
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const layout::BucketLayout places, layout::MakeBucketLayout(sizes, {}));
    const Value types = Value::MakeTuple({Value(dtype), Value(DType::kF32)});
    const std::string place = before + fmt::format("{}/(torch.{}, torch.float32)/", buffer, dtype == DType::kBF16 ? "bfloat16" : "float16");
    Value states = Value::MakeDict();
    for (std::size_t at = 0; at < kBucketStates.size(); ++at) {
      CROSSDOCK_ASSIGN_OR_RETURN(LegacyShard flat, Flat(members, places, at));
      states.Set(kBucketStates[at], Push(place + std::string(kBucketStates[at]), DType::kF32, std::move(flat)));
    }
    states.Set("numel_unpadded", Value(places.total_unpadded()));
    Value out = Value::MakeDict();
    out.as_dict()->items.emplace_back(types, std::move(states));
    return out;
  }

  /// All parameters' states end to end, the gaps between them zero.
  Result<LegacyShard> Flat(const Members& members, const layout::BucketLayout& places, std::size_t at) {
    std::vector<expr::Expr> parts;
    for (const LocalParameter* parameter : members) {
      CROSSDOCK_ASSIGN_OR_RETURN(LegacyShard shard, Shard(*parameter, parameter->source->states[at]));
      CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr wide, expr::Cast(std::move(shard.expr), DType::kF32));
      parts.push_back(std::move(wide));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr whole, IntoBuffer(places, parts));
    return LegacyShard{whole->shape, whole};
  }

  // ---- entries ----

  Result<LegacyShard> Shard(const LocalParameter& parameter, std::int32_t index) {
    const Entry& entry = EntryAt(index);
    int rank = TensorRankOf(entry.name), first = 0;
    LegacyPart part = parameter.part;
    if (part.expert >= 0) {
      part.expert += rank_.expert * parameter.experts;
      first = rank_.expert * layout_.expert_tp();
      rank = first + rank_.within;
    }
    // Every rank asks for a layer: a stack of all layers is walked once.
    CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr layer, Known(index, global_.exprs[static_cast<std::size_t>(index)], {part.layer, -1}));
    expr::Expr whole = layer;
    if (part.expert >= 0) {
      CROSSDOCK_ASSIGN_OR_RETURN(whole, PartOf(layer, {-1, part.expert}));
    }
    if (!DividedRows(entry.name)) {
      const auto [chunks, fresh] = chunks_.try_emplace(index, entry, layout_.ranks_per_stage(), part.layer >= 0);
      return ShardOf(chunks->second, whole, rank, first, part);
    }
    Box box = Box::Whole(whole->shape);
    if (box.sizes.empty() || box.sizes[0] % layout_.tp != 0) {
      return MakeError(ErrorCode::kUsage, "Megatron's own layers divide this projection among the tensor-parallel ranks").WithTensor(entry.name)
          .WithExpected(fmt::format("a multiple of {} rows", layout_.tp))
          .WithFound(ToString(whole->shape));
    }
    box.sizes[0] /= layout_.tp;
    box.offsets[0] = box.sizes[0] * rank_.tensor;
    CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr rows, expr::Slice(whole, box));
    return LegacyShard{rows->shape, expr::Simplify(rows)};
  }

  /// Whether Megatron's own layers divide by rows what TransformerEngine's hold whole on every rank, and so does torch_dist.
  [[nodiscard]] bool DividedRows(std::string_view name) const {
    return spec_ == LayerSpec::kLocal && layout_.tp > 1 &&
           (name.ends_with("self_attention.linear_q_down_proj.weight") || name.ends_with("self_attention.linear_kv_down_proj.weight"));
  }

  Result<expr::Expr> Known(std::int32_t index, const expr::Expr& stacked, const LegacyPart& part) {
    expr::Expr& known = layer_exprs_[{index, part.layer}];
    if (known == nullptr) {
      CROSSDOCK_ASSIGN_OR_RETURN(known, PartOf(stacked, part));
    }
    return known;
  }

  Result<Value> AddTensor(const std::string& path, const LocalParameter& parameter, std::int32_t index, std::optional<DType> dtype) {
    CROSSDOCK_ASSIGN_OR_RETURN(LegacyShard shard, Shard(parameter, index));
    if (dtype) {
      CROSSDOCK_ASSIGN_OR_RETURN(shard.expr, expr::Cast(std::move(shard.expr), *dtype));
    }
    return Push(path, dtype.value_or(EntryAt(index).dtype), std::move(shard));
  }

  Value Push(const std::string& path, DType dtype, LegacyShard shard) {
    TensorValue tensor;
    tensor.dtype = dtype;
    tensor.shape = shard.shape;
    tensor.strides = RowMajorStrides(shard.shape);
    tensor.storage = file_ + "#" + path;
    tensor.storage_numel = CheckedCount(shard.shape);
    Chunk chunk;
    chunk.box = Box::Whole(shard.shape);
    chunk.shard = shard_;
    made_.emplace_back(Entry{tensor.storage, Slot::kParam, dtype, shard.shape, {std::move(chunk)}}, std::move(shard.expr));
    return Value(std::move(tensor));
  }

  void Finish() {
    std::ranges::sort(made_, {}, [](const auto& pair) -> const std::string& { return pair.first.name; });
    for (auto& [entry, expr] : made_) {
      out_.catalog.entries.push_back(std::move(entry));
      out_.exprs.push_back(std::move(expr));
    }
    out_.catalog.side_files = std::move(global_.catalog.side_files);
    out_.stages = std::move(global_.stages);
    out_.unit_name = std::move(global_.unit_name);
    out_.random_states = global_.random_states;
    out_.left_out = std::move(global_.left_out);
    out_.notices = std::move(global_.notices);
    out_.load_line = std::move(global_.load_line);
  }

  TargetState global_;
  const layout::ParallelLayout& layout_;
  const bool distributed_;
  const std::optional<LegacyRankPlace> only_;
  Value common_, args_;
  std::int64_t layers_ = 0;
  LayerSpec spec_ = LayerSpec::kTransformerEngine;
  bool tied_ = false;
  std::optional<LegacyParts> parts_;        // of global_, once it is in order
  std::map<std::pair<std::int32_t, std::int64_t>, expr::Expr> layer_exprs_;
  std::map<std::int32_t, ChunksByRank> chunks_;
  TargetState out_;
  std::vector<std::pair<Entry, expr::Expr>> made_;
  std::string file_;                        // of the rank at hand
  RankPlace rank_;
  int shard_ = 0;
};

}  // namespace

Result<TargetState> ToLegacy(TargetState global, const layout::ParallelLayout& layout, bool distributed, const std::optional<LegacyRankPlace>& only) {
  const auto common = global.catalog.objects.find("common");
  bool with_optimizer = false;
  for (const Entry& entry : global.catalog.entries) with_optimizer = with_optimizer || ParseTensorKey(entry.name).kind != TensorKey::Kind::kModel;
  if (common != global.catalog.objects.end()) {
    if (std::optional<StoredArgs> stored = ReadStoredArgs(global.catalog)) {
      stored->args.Set("ckpt_format", Value("torch"));
      stored->args.Set("use_dist_ckpt", Value(false));
      stored->args.Set("use_distributed_optimizer", Value(distributed && with_optimizer));
      if (global.random_states == 0) stored->args.Set("no_save_rng", Value(true));
      // Under this form such a run would look for files of its data-parallel ranks.
      if (stored->args.Find("use_layer_wise_distributed_optimizer") != nullptr) stored->args.Set("use_layer_wise_distributed_optimizer", Value(false));
      common->second.Set("args", MakeNamespace(std::move(stored->args)));
    }
  }
  CROSSDOCK_ASSIGN_OR_RETURN(TargetState out, Converter(std::move(global), layout, distributed, only).Run());
  const bool no_random_state = out.random_states == 0 && out.unit_name != "release";
  if (!out.load_line.empty()) out.load_line.front() = LegacyLoadLine(std::move(out.load_line.front()), {distributed, no_random_state, false});
  return out;
}

Result<bool> UsesDistributedOptimizer(const TargetOptions& options, const Catalog& source, const TargetState& global) {
  const bool muon = std::ranges::any_of(global.catalog.entries, [](const Entry& entry) { return ParseTensorKey(entry.name).slot == Slot::kMuonMu; });
  if (const auto set = options.set_args.find("use_distributed_optimizer"); set != options.set_args.end()) {
    const Value value = ParseArgument(set->second);
    const bool asked = value.as_bool() != nullptr && *value.as_bool();
    if (!asked || !muon) return asked;
    return MakeError(ErrorCode::kUnsupported, "Muon's state has no form in the distributed optimizer's file")
        .WithFound("--set use_distributed_optimizer=True")
        .WithHint("leave it out: the plain optimizer's form is written");
  }
  const std::optional<StoredArgs> stored = ReadStoredArgs(source);
  return !muon && stored && stored->args.GetBool("use_distributed_optimizer").value_or(false);
}

}  // namespace crossdock::dialects::mcore
