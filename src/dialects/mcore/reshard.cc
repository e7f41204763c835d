// SPDX-License-Identifier: Apache-2.0
/// Megatron to Megatron: tensors stay as they are, only the chunks change, by the generic cut table; what the table does
/// not know is replicated, which every loader can read.
#include <algorithm>
#include <set>

#include "dialects/mcore/args.h"
#include "dialects/mcore/common_state.h"
#include "dialects/mcore/cut_table.h"
#include "dialects/mcore/extra_state.h"
#include "dialects/mcore/inventory.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/known_args.h"
#include "dialects/mcore/layout_args.h"
#include "dialects/mcore/load_line.h"
#include "dialects/mcore/mcore_dialect.h"
#include "dialects/mcore/random_state.h"
#include "dialects/mcore/target_tensors.h"
#include "dialects/mcore/target_unit.h"
#include "dialects/mcore/tensor_parallel.h"
#include "dialects/mcore/training_state.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

class Resharder {
 public:
  Resharder(const Catalog& source, const TargetOptions& options) : source_(source), options_(options), stored_(ReadStoredArgs(source)) {}

  Result<TargetState> Run() {
    CROSSDOCK_RETURN_IF_ERROR(CheckTensorParallel(Counts(), options_.layout.tp));
    if (options_.layout.encoder_tp > 0) {
      return MakeError(ErrorCode::kUnsupported, "Megatron to Megatron keeps a vision tower in whole tensors, which any division loads")
          .WithFound(fmt::format("--encoder-tp {}", options_.layout.encoder_tp))
          .WithHint("leave --encoder-tp out");
    }
    CROSSDOCK_RETURN_IF_ERROR(FindLayers());
    FindVocabulary();
    CROSSDOCK_ASSIGN_OR_RETURN(stages_, layout::MakeStageMap(options_.layout, std::max<std::int64_t>(layers_, 1)));
    CROSSDOCK_RETURN_IF_ERROR(CheckBuckets());
    for (std::size_t i = 0; i < source_.entries.size(); ++i) CROSSDOCK_RETURN_IF_ERROR(AddEntry(static_cast<std::int32_t>(i)));
    Objects();
    target_.stages = stages_;
    PlaceRandomStates(options_, &target_);
    CROSSDOCK_RETURN_IF_ERROR(Common());
    for (const SideFile& file : source_.side_files) {
      if (file.role == SideFile::Role::kSide) target_.catalog.side_files.push_back(file);
    }
    target_.load_line = {LoadLine("TARGET", "TARGET/" + unit_.name, StoredStateOf(target_.catalog, unit_.release))};
    target_.catalog.side_files.push_back(Tracker(unit_));
    target_.catalog.format = "dcp";
    return std::move(target_);
  }

 private:
  /// The rows of a fused QKV may divide where its heads do not: then Megatron builds no model that could load them.
  HeadCounts Counts() const {
    if (!stored_ || stored_->args.GetBool("multi_latent_attention").value_or(false)) return {};
    const Value& args = stored_->args;
    const std::int64_t heads = args.GetInt("num_attention_heads").value_or(0);
    const bool grouped = args.GetBool("group_query_attention").value_or(true);
    return {heads, grouped ? args.GetInt("num_query_groups").value_or(heads) : heads, 0};
  }

  /// The number of decoder layers, from what is stored.
  Status FindLayers() {
    for (const Entry& entry : source_.entries) {
      const TensorKey key = ParseTensorKey(entry.name);
      if (const std::optional<std::int64_t> number = LayerNumber(key.model_key)) layers_ = std::max(layers_, *number + 1);
      if (key.kind == TensorKey::Kind::kModel && HasLayerAxis(key.model_key) && !entry.shape.empty()) layers_ = std::max(layers_, entry.shape[0]);
    }
    if (layers_ > (std::int64_t{1} << 20U)) return MakeError(ErrorCode::kCorrupt, "the keys number more layers than any model has").WithFound(fmt::format("{}", layers_));
    return OkStatus();
  }

  /// A vocabulary whose rows Megatron computed for one tensor-parallel size has those of the target's; any other keeps its rows.
  void FindVocabulary() {
    if (!stored_) return;
    const std::int64_t size = stored_->args.GetInt("vocab_size").value_or(0);
    const Result<layout::ParallelLayout> wrote = LayoutOfArgs(stored_->args);
    if (size < 1 || !wrote || wrote->tp == options_.layout.tp) return;
    const std::int64_t divisor = stored_->args.GetInt("make_vocab_size_divisible_by").value_or(kVocabDivisor);
    const auto embedding = std::ranges::find_if(source_.entries, [](const Entry& entry) { return WithinLanguageModel(entry.name) == kEmbeddingKey; });
    if (embedding == source_.entries.end() || embedding->shape.empty() || !WereComputed(embedding->shape[0], size, divisor, wrote->tp)) return;
    rows_ = PaddedVocabulary(size, divisor, options_.layout.tp);
    if (rows_ == embedding->shape[0]) rows_.reset();
    if (!rows_) return;
    stored_rows_ = embedding->shape[0];
    target_.notices.push_back(fmt::format("the vocabulary has {} rows, as Megatron pads it for {} tensor-parallel ranks, and not {}, as for {}: --padded-vocab-size {} keeps those", *rows_,
                                          options_.layout.tp, stored_rows_, wrote->tp, stored_rows_));
  }

  /// The entry with the target's number of rows: padding is taken off, or zeros are added.
  Result<expr::Expr> WithRows(std::int32_t index, const TensorKey& key, Entry* entry) const {
    expr::Expr leaf = expr::Leaf(index, entry->dtype, entry->shape);
    const std::string_view name = WithinLanguageModel(key.model_key);
    const bool of_vocabulary = name == kEmbeddingKey || name == kHeadKey;
    if (!rows_ || !of_vocabulary || key.kind == TensorKey::Kind::kBucket || entry->shape.empty() || entry->shape[0] != stored_rows_) return leaf;
    entry->shape[0] = *rows_;
    if (*rows_ < stored_rows_) return expr::Slice(std::move(leaf), Box::Whole(entry->shape));
    return expr::Pad(std::move(leaf), Dims::Filled(entry->shape.size(), 0), entry->shape);
  }

  /// Whether the run that wrote had the very division that is asked for, however either said it.
  bool SameLayout() const {
    if (!stored_) return false;
    const Result<layout::ParallelLayout> wrote = LayoutOfArgs(stored_->args);
    if (!wrote || wrote->tp != options_.layout.tp || wrote->ep != options_.layout.ep || wrote->expert_tp() != options_.layout.expert_tp()) return false;
    const Result<layout::StageMap> stages = layout::MakeStageMap(*wrote, std::max<std::int64_t>(layers_, 1));
    return stages && stages->pp == stages_.pp && stages->chunks == stages_.chunks;
  }

  /// Flat buckets keep the order of the run that wrote them: under another layout they mean nothing.
  Status CheckBuckets() const {
    if (SameLayout()) return OkStatus();
    for (const Entry& entry : source_.entries) {
      if (ParseTensorKey(entry.name).kind != TensorKey::Kind::kBucket) continue;
      return MakeError(ErrorCode::kUnsupported, "the optimizer state is stored as dp_reshardable, which holds under one layout only")
          .WithTensor(entry.name)
          .WithHint("save the run again with --dist-ckpt-optim-fully-reshardable, or leave the state behind with --no-optim");
    }
    return OkStatus();
  }

  bool Gated() const { return !stored_ || HasGatedMlp(stored_->args); }

  /// The parts of a tensor, one box a tensor-parallel rank (two for gated halves).
  Result<std::vector<std::pair<int, Box>>> TensorParallelBoxes(const Entry& entry, const TensorKey& key, int lead) const {
    const Box whole = Box::Whole(entry.shape);
    const std::optional<Cut> cut = IsVision(key.model_key) ? std::nullopt : FindCut(key.model_key);  // a tower's layers are not told by their ends
    std::vector<std::pair<int, Box>> parts;
    if (!cut || key.kind == TensorKey::Kind::kBucket || entry.shape.size() <= static_cast<std::size_t>(lead + cut->axis)) {
      parts.emplace_back(0, whole);
      return parts;
    }
    if (cut->experts && cut->axis == 0) {
      CROSSDOCK_RETURN_IF_ERROR(AddExperts(entry, whole, static_cast<std::size_t>(lead), 0, parts));
      return parts;
    }
    const auto axis = static_cast<std::size_t>(lead + cut->axis);
    const int halves = cut->halves && Gated() ? 2 : 1;
    const std::int64_t size = entry.shape[axis];
    const int ranks = cut->experts ? options_.layout.expert_tp() : options_.layout.tp;
    const std::int64_t pieces = static_cast<std::int64_t>(ranks) * halves;
    if (size % pieces != 0) {
      return MakeError(ErrorCode::kUsage, fmt::format("the tensor cannot be divided among {} tensor-parallel ranks", ranks))
          .WithTensor(entry.name)
          .WithExpected(fmt::format("a multiple of {} on axis {}", pieces, axis))
          .WithFound(ToString(entry.shape));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (int half = 0; half < halves; ++half) {
        Box box = whole;
        box.sizes[axis] = size / pieces;
        box.offsets[axis] = (half * static_cast<std::int64_t>(ranks) + rank) * box.sizes[axis];
        if (cut->experts) {
          CROSSDOCK_RETURN_IF_ERROR(AddExperts(entry, box, static_cast<std::size_t>(lead), rank, parts));
        } else {
          parts.emplace_back(rank, std::move(box));
        }
      }
    }
    return parts;
  }

  /// One box an expert; expert rank r holds the r-th part of them.
  Status AddExperts(const Entry& entry, const Box& box, std::size_t axis, int tensor_rank, std::vector<std::pair<int, Box>>& parts) const {
    const std::int64_t experts = entry.shape[axis];
    if (Status divides = CheckExpertsDivide(experts, options_.layout.ep); !divides) return std::move(std::move(divides).error()).WithTensor(entry.name);
    for (std::int64_t e = 0; e < experts; ++e) {
      Box one = box;
      one.offsets[axis] = e;
      one.sizes[axis] = 1;
      parts.emplace_back(options_.layout.expert_rank(e, experts, tensor_rank), std::move(one));
    }
    return OkStatus();
  }

  Status AddEntry(std::int32_t index) {
    Entry entry = source_.entries[static_cast<std::size_t>(index)];
    const TensorKey key = ParseTensorKey(entry.name);
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr expr, WithRows(index, key, &entry));
    Entry out{entry.name, entry.slot, entry.dtype, entry.shape, {}};
    if (key.kind == TensorKey::Kind::kBucket) {
      out.chunks = entry.chunks;  // the pieces are part of the meaning
      for (Chunk& chunk : out.chunks) chunk = Chunk{chunk.box, -1, {}, ChunkEncoding::kRaw, 0};
    } else {
      const bool stacked = HasLayerAxis(key.model_key) && !entry.shape.empty() && entry.shape[0] == layers_;
      CROSSDOCK_ASSIGN_OR_RETURN(const auto parts, TensorParallelBoxes(entry, key, stacked ? 1 : 0));
      for (const auto& [rank, box] : parts) AddChunks(key, box, rank, stacked, out.chunks);
    }
    target_.catalog.entries.push_back(std::move(out));
    target_.exprs.push_back(std::move(expr));
    return OkStatus();
  }

  void AddChunks(const TensorKey& key, const Box& box, int rank, bool stacked, std::vector<Chunk>& chunks) const {
    const auto add = [&](Box part, int stage) {
      Chunk chunk;
      chunk.box = std::move(part);
      chunk.shard = stage * options_.layout.ranks_per_stage() + rank;
      chunks.push_back(std::move(chunk));
    };
    if (!stacked) {
      const std::optional<std::int64_t> number = LayerNumber(key.model_key);
      add(box, number ? stages_.StageOf(*number) : StageOfTopLevel(key.model_key, stages_));
      return;
    }
    const bool by_layer = box.rank() > 2;
    for (const layout::StageMap::ModelChunk& held : stages_.chunks) {
      const std::int64_t step = by_layer ? 1 : held.count;
      for (std::int64_t at = held.first; at < held.first + held.count; at += step) {
        Box part = box;
        part.offsets[0] = at;
        part.sizes[0] = step;
        add(std::move(part), held.stage);
      }
    }
  }

  void LeaveOut(const std::string& name, const std::string& reason, std::int64_t bytes) {
    for (LeftOut& left : target_.left_out) {
      if (left.reason != reason) continue;
      ++left.count;
      left.bytes += bytes;
      return;
    }
    target_.left_out.push_back({name, reason, 1, bytes});
  }

  /// Objects that the caller loaded are kept; of the others, empty extra states are made anew and the rest is named.
  void Objects() {
    constexpr const char* kOfTheRun = "belongs to the run that wrote it";
    std::set<std::string> loaded;
    for (const auto& [name, value] : source_.objects) {
      constexpr std::string_view kObject = "object:";
      if (!name.starts_with(kObject)) continue;
      const std::string key = name.substr(kObject.size());
      loaded.insert(key);
      const ObjectKind kind = ClassifyObject(key);
      if (kind == ObjectKind::kCommon || kind == ObjectKind::kRng) continue;
      if (kind == ObjectKind::kRerun) {
        LeaveOut(key, kOfTheRun, 0);
      } else {
        target_.catalog.objects[name] = value;
      }
    }
    for (const ObjectRef& ref : source_.object_refs) {
      if (loaded.contains(ref.name)) continue;
      const ObjectKind kind = ClassifyObject(ref.name);
      if (kind == ObjectKind::kExtraState) {
        target_.catalog.objects["object:" + ref.name] = EmptyExtraState();
        ++remade_;
      } else if (kind == ObjectKind::kRerun) {
        LeaveOut(ref.name, kOfTheRun, ref.bytes.length);
      } else if (kind != ObjectKind::kCommon && kind != ObjectKind::kRng) {
        LeaveOut(ref.name, "an object that no rule knows", ref.bytes.length);
      }
    }
    CompleteExtraStates();
    if (remade_ > 0) target_.notices.push_back(fmt::format("{} _extra_state objects are written empty, as without FP8", remade_));
  }

  /// An older TransformerEngine kept none for its norms, which that of today asks for. Where a checkpoint has none at all, Megatron's
  /// own layers wrote it, and none is asked for.
  void CompleteExtraStates() {
    const auto is_extra = [](const auto& item) { return ClassifyObject(item.first) == ObjectKind::kExtraState; };
    if (std::none_of(target_.catalog.objects.begin(), target_.catalog.objects.end(), is_extra)) return;
    for (auto& [name, value] : EmptyExtraStates(target_.catalog.entries, layers_)) {
      if (target_.catalog.objects.emplace(name, std::move(value)).second) ++remade_;
    }
  }

  /// Those that are stored. Of a run_config.yaml, those that Megatron-LM knows, and what train_state.pt counts.
  Result<Value> Arguments(Value* common) const {
    if (stored_->origin != kRunConfig) return stored_->args;
    Value args = Value::MakeDict();
    for (const auto& [key, value] : stored_->args.as_dict()->items) {
      if (const std::string* name = key.as_string(); name != nullptr && IsMegatronArgument(*name)) args.Set(*name, value);
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const Counters counters, ReadCounters(source_, &args, false));
    args.Set("consumed_train_samples", Value(counters.consumed_train_samples.value_or(0)));
    const Value extras = ReadExtras(source_, &args);
    if (const Value* run = extras.Find("args")) {
      for (const auto& [key, value] : run->as_dict()->items) args.Set(*key.as_string(), value);
    }
    constexpr const char* kOperations = "num_floating_point_operations_so_far";
    if (const Value* operations = extras.Find(kOperations)) common->Set(kOperations, *operations);
    args.Set("ckpt_format", Value("torch_dist"));
    return args;
  }

  Status Common() {
    const Value* stored = CommonState(source_);
    Value common = stored != nullptr ? *stored : Value::MakeDict();
    std::optional<std::int64_t> step = common.GetInt("iteration") ? common.GetInt("iteration") : source_.step;
    if (IsRelease(source_)) step.reset();
    if (std::optional<std::string> notice = IterationNotice(source_)) target_.notices.push_back(*std::move(notice));
    CROSSDOCK_ASSIGN_OR_RETURN(unit_, ChooseUnit(options_, step));
    target_.unit_name = unit_.name;
    target_.catalog.step = unit_.iteration;
    common.Set("iteration", Value(unit_.iteration));
    if (stored_) {
      CROSSDOCK_ASSIGN_OR_RETURN(Value args, Arguments(&common));
      SetParallelArgs(options_.layout, stages_, &args);
      if (rows_) args.Set("padded_vocab_size", Value(*rows_));
      args.Set("iteration", Value(unit_.iteration));
      if (target_.random_states == 0) args.Set("no_save_rng", Value(true));  // else a run of this layout asks for random state
      common.Set("args", MakeNamespace(args));
    }
    target_.catalog.objects["common"] = std::move(common);
    for (const char* name : {"run_config.yaml", "train_state.pt"}) {
      if (const auto found = source_.objects.find(name); found != source_.objects.end()) {
        LeaveOut(name, "Megatron-Bridge's own files; what they say stands in the arguments that are written", 0);
      }
    }
    target_.catalog.objects["metadata.json"] = BackendMetadata();
    return OkStatus();
  }

  const Catalog& source_;
  const TargetOptions& options_;
  const std::optional<StoredArgs> stored_;
  std::int64_t layers_ = 0;
  layout::StageMap stages_;
  TargetUnit unit_;
  std::optional<std::int64_t> rows_;          // of the vocabulary, where they change
  std::int64_t stored_rows_ = 0;
  std::int64_t remade_ = 0;
  TargetState target_;
};

}  // namespace

Result<TargetState> Reshard(const Catalog& source, const TargetOptions& options) { return Resharder(source, options).Run(); }

}  // namespace crossdock::dialects::mcore
