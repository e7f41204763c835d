// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_view.h"

#include <algorithm>
#include <map>

#include "dialects/mcore/args.h"
#include "dialects/mcore/common_state.h"
#include "dialects/mcore/cut_table.h"
#include "dialects/mcore/extra_state.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/legacy_distributed.h"
#include "dialects/mcore/legacy_experts.h"
#include "dialects/mcore/legacy_model.h"
#include "dialects/mcore/legacy_names.h"
#include "dialects/mcore/legacy_ranks.h"
#include "dialects/mcore/legacy_sections.h"
#include "dialects/mcore/legacy_stacks.h"
#include "dialects/mcore/legacy_state.h"
#include "dialects/mcore/legacy_towers.h"
#include "dialects/mcore/random_state.h"
#include "dialects/mcore/registration_order.h"
#include "dialects/mcore/view_catalog.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;
using Whole = WholeParameter;

class Merger {
 public:
  Merger(const Catalog& source, const ViewOptions& options, LegacyRanks ranks) : source_(source), options_(options), ranks_(std::move(ranks)) {}

  Result<GlobalView> Run() {
    view_.identity = false;
    CROSSDOCK_RETURN_IF_ERROR(CheckReadable());
    for (const LegacyRank& rank : ranks_.ranks) {
      CROSSDOCK_ASSIGN_OR_RETURN(LegacyModel shard, ReadLegacyModel(source_, rank));
      extra_states_ += shard.extra_states;
      if (IsByTorchDcp(source_)) PutInOrder(&shard);
      shards_.push_back(std::move(shard));
    }
    FindLargerModel();
    CROSSDOCK_ASSIGN_OR_RETURN(first_layers_, FirstLayers(ranks_, shards_, &layers_));
    FindKind();
    used_.resize(source_.entries.size(), false);
    ReadStates();
    for (std::size_t chunk = 0; chunk < shards_.front().chunks.size(); ++chunk) {
      for (int stage = 0; stage < ranks_.pp; ++stage) CROSSDOCK_RETURN_IF_ERROR(Join(chunk, stage));
    }
    if (embedding_.empty()) copies_of_embedding_.clear();
    for (const std::vector<const LegacyTensor*>& parts : copies_of_embedding_) {
      for (std::size_t t = 0; t < parts.size(); ++t) view_.repeated.push_back({embedding_[t]->entry, parts[t]->entry});
    }
    CROSSDOCK_RETURN_IF_ERROR(StackLayersOf(whole_, {layers_, NumbersLayers(), muon_ ? OptimizerForm::kPlain : OptimizerForm::kDistributed}, &view_));
    Catalogue();
    return std::move(view_);
  }

 private:
  [[nodiscard]] bool Flag(const char* name, bool otherwise) const { return ranks_.args.GetBool(name).value_or(otherwise); }

  /// "language_model." began the names of all models before Megatron-Core; today those of a language model beside a tower.
  void FindLargerModel() {
    const auto each = [&](const auto& visit) {
      for (LegacyModel& shard : shards_) {
        for (std::vector<LegacyTensor>& chunk : shard.chunks) std::ranges::for_each(chunk, visit);
      }
    };
    bool larger = false;
    each([&](const LegacyTensor& tensor) { larger = larger || IsOfLargerModel(tensor.name); });
    if (larger) each([](LegacyTensor& tensor) { tensor.meaning = ParseLegacyName(tensor.name, true); });
  }

  /// The optimizer's numbers count in the order of registration, which DCP keeps only by the way.
  void PutInOrder(LegacyModel* shard) const {
    for (std::vector<LegacyTensor>& chunk : shard->chunks) {
      std::vector<std::string> names;
      for (const LegacyTensor& tensor : chunk) names.push_back(tensor.name);
      const Result<std::vector<std::string>> ordered = InRegistrationOrder(std::move(names), LayerSpecOf(ranks_.args));
      if (!ordered) continue;  // that of the file, then
      std::map<std::string_view, std::size_t> place;
      for (const std::string& name : *ordered) place.emplace(name, place.size());
      std::ranges::sort(chunk, {}, [&](const LegacyTensor& tensor) { return place.at(tensor.name); });
    }
  }

  /// A file whose QKV rows lie in another order looks the same as one of today.
  Status CheckReadable() const {
    const Value& file = *ranks_.ranks.front().file;
    const double version = file.GetFloat("checkpoint_version").value_or(0);
    if (version >= 2) return OkStatus();
    return MakeError(ErrorCode::kUnsupported, "the checkpoint's version orders the rows of query, key and value as Megatron-LM did before 2021")
        .WithPath(ranks_.ranks.front().dir)
        .WithExpected("checkpoint_version 2.0 or newer")
        .WithFound(file.Find("checkpoint_version") == nullptr ? "none, which means 0" : fmt::format("{}", version))
        .WithHint("load and save it once with a Megatron-LM that converts old versions");
  }

  /// torch_dist calls the norms of Megatron's own layers as TransformerEngine's, in layers with experts too; but not those of
  /// multi-latent attention (gpt_layer_specs.py). TransformerEngine's own layers have them apart only where nothing else is meant.
  void FindKind() {
    bool experts = false;
    bool latent = Flag("multi_latent_attention", false);
    for (const LegacyModel& shard : shards_) {
      for (const std::vector<LegacyTensor>& chunk : shard.chunks) {
        for (const LegacyTensor& tensor : chunk) {
          experts = experts || tensor.meaning.of_experts();
          latent = latent || tensor.meaning.key.find(".linear_kv_up_proj.") != std::string::npos;
        }
      }
    }
    fuse_norms_ = !latent && (!experts || LayerSpecOf(ranks_.args) == LayerSpec::kLocal);
  }

  [[nodiscard]] std::string KeyOf(const LegacyTensor& tensor, std::int64_t first_layer) const {
    const LegacyName& meaning = tensor.meaning;
    if (!meaning.layer) return meaning.prefix + meaning.key;
    return fmt::format("{}decoder.layers.{}.{}", meaning.prefix, first_layer + *meaning.layer, fuse_norms_ ? WithFusedNorms(meaning.key) : meaning.key);
  }

  /// All ranks' optimizer states, or none and the reason.
  void ReadStates() {
    if (options_.no_optim) return;
    if (!HasLegacyOptimizer(ranks_.ranks.front())) {
      const bool state = IsByTorchDcp(source_) && std::ranges::any_of(source_.entries, [](const Entry& entry) { return entry.name.starts_with("optimizer."); });
      if (state) view_.optimizer_refusal = "the optimizer's parameter groups are not stored, or could not be read";
      return;
    }
    // With expert parallelism not every rank that has a directory is the one of its kind that writes: some have no such file.
    const bool distributed = std::ranges::any_of(ranks_.ranks, [](const LegacyRank& rank) { return rank.distributed != nullptr; });
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      Result<LegacyState> state = distributed ? ReadDistributedOptimizer(source_, ranks_, ranks_.ranks[i], shards_[i])
                                              : ReadLegacyOptimizer(source_, ranks_.ranks[i], shards_[i]);
      if (!state) {
        view_.optimizer_refusal = Reason(state.error());
        states_.clear();
        return;
      }
      view_.prove_masters = view_.prove_masters || distributed || IsByTorchDcp(source_);
      states_.push_back(*std::move(state));
    }
    for (std::size_t i = 0; i < shards_.size() && distributed && ranks_.ep > 1; ++i) TakeFromOthers(i);
    const auto muons = [](const auto& held) { return held.second[static_cast<std::size_t>(Slot::kMuonMu)] != nullptr; };
    muon_ = std::ranges::any_of(states_, [&](const LegacyState& state) { return std::ranges::any_of(state.params, muons); });
  }

  /// The state of a parameter lies with one of the ranks that hold the same part of it: it is what the others have too.
  void TakeFromOthers(std::size_t to) {
    const LegacyRank& rank = ranks_.ranks[to];
    for (std::size_t from = 0; from < shards_.size(); ++from) {
      const LegacyRank& other = ranks_.ranks[from];
      if (from == to || other.pipeline != rank.pipeline || states_[from].params.empty()) continue;
      const bool dense = other.tensor == rank.tensor;
      const bool experts = other.expert == rank.expert && other.tensor % ranks_.etp == rank.tensor % ranks_.etp;
      for (std::size_t chunk = 0; (dense || experts) && chunk < shards_[to].chunks.size() && chunk < shards_[from].chunks.size(); ++chunk) {
        std::map<std::string_view, std::int32_t> entries;
        for (const LegacyTensor& tensor : shards_[from].chunks[chunk]) entries[tensor.name] = tensor.entry;
        for (const LegacyTensor& tensor : shards_[to].chunks[chunk]) {
          const bool same = tensor.meaning.of_experts() ? experts : dense;
          if (!same || states_[to].params.contains(tensor.entry) || !entries.contains(tensor.name)) continue;
          const auto held = states_[from].params.find(entries.at(tensor.name));
          if (held != states_[from].params.end()) states_[to].params[tensor.entry] = held->second;
        }
      }
    }
  }

  using ByName = std::map<std::string_view, const LegacyTensor*>;

  /// One stage's part of a model chunk: every parameter from its ranks.
  Status Join(std::size_t chunk, int stage) {
    const auto at = static_cast<std::size_t>(stage) * static_cast<std::size_t>(ranks_.tp);
    const std::int64_t first_layer = first_layers_[chunk * static_cast<std::size_t>(ranks_.pp) + static_cast<std::size_t>(stage)];
    std::map<std::size_t, ByName> by_name;   // by rank
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (ranks_.ranks[i].pipeline != stage) continue;
      for (const LegacyTensor& tensor : shards_[i].chunks[chunk]) by_name[i][tensor.name] = &tensor;
    }
    std::map<std::string, std::map<std::int64_t, const LegacyTensor*>> experts;   // by key, then local number
    for (const LegacyTensor& tensor : shards_[at].chunks[chunk]) {
      if (tensor.meaning.of_experts()) {
        experts[KeyOf(tensor, first_layer)][tensor.meaning.expert.value_or(0)] = &tensor;
        continue;
      }
      Result<Division> division = DivisionOf(tensor, KeyOf(tensor, first_layer), by_name[at]);
      if (!division) return Named(std::move(division).error(), at, tensor.name);
      std::vector<const LegacyTensor*> parts;
      for (int t = 0; t < division->ranks; ++t) parts.push_back(by_name[at + static_cast<std::size_t>(t)].at(tensor.name));  // the names were compared
      CROSSDOCK_RETURN_IF_ERROR(Named(JoinOne(parts, at, KeyOf(tensor, first_layer), *division), at, tensor.name));
    }
    for (const auto& [key, locals] : experts) {
      CROSSDOCK_RETURN_IF_ERROR(Named(JoinLayersExperts(key, locals, stage, by_name), at, locals.begin()->second->name));
    }
    return OkStatus();
  }

  Status Named(Status joined, std::size_t rank, const std::string& name) const {
    if (joined) return joined;
    Error error = joined.error();
    if (error.path.empty()) error.path = ranks_.ranks[rank].dir;
    if (error.tensor.empty()) error.tensor = name;
    return error;
  }

  /// One matrix of all experts of a layer, from all ranks that hold some of them.
  Status JoinLayersExperts(const std::string& key, const std::map<std::int64_t, const LegacyTensor*>& locals, int stage, const std::map<std::size_t, ByName>& by_name) {
    if (ranks_.experts.empty()) {
      return MakeError(ErrorCode::kUnsupported, "ranks with different parts of the same experts wrote the same file, of which one alone is left")
          .WithExpected("an expert_tensor_parallel_size that divides tensor_model_parallel_size")
          .WithFound(fmt::format("{} and {}", ranks_.etp, ranks_.tp))
          .WithHint("save the run again with --ckpt-format torch_dist");
    }
    const std::optional<Cut> cut = FindCut(key);
    if (!cut || !cut->experts) return MakeError(ErrorCode::kUnsupported, "no rule says how expert-parallel ranks divide this parameter").WithHint("save the run again with --ckpt-format torch_dist");
    ExpertParts parts;
    parts.memory = locals.begin()->second->meaning.all_experts;
    if (parts.memory) {
      parts.experts = ranks_.args.GetInt("num_experts").value_or(0) / ranks_.ep;
    } else if (locals.rbegin()->first != static_cast<std::int64_t>(locals.size()) - 1) {
      return MakeError(ErrorCode::kCorrupt, "the experts of a rank are not numbered from 0")
          .WithExpected(fmt::format("0 to {}", locals.size() - 1))
          .WithFound(fmt::format("{} to {}", locals.begin()->first, locals.rbegin()->first));
    }
    Whole whole;
    whole.dir = ranks_.ranks[static_cast<std::size_t>(stage) * static_cast<std::size_t>(ranks_.tp)].dir;
    for (const Slot slot : kAllSlots) {
      if (slot != Slot::kParam && states_.empty()) continue;
      std::size_t absent = 0, present = 0;
      parts.parts.assign(static_cast<std::size_t>(ranks_.ep), {});
      for (std::size_t e = 0; e < parts.parts.size(); ++e) {
        for (std::size_t t = 0; t < static_cast<std::size_t>(ranks_.etp); ++t) {
          const std::size_t place = (static_cast<std::size_t>(stage) * parts.parts.size() + e) * static_cast<std::size_t>(ranks_.etp) + t;
          const std::size_t rank = ranks_.experts[place];
          std::vector<Expr>& held = parts.parts[e].emplace_back();
          for (const auto& [number, tensor] : locals) {
            held.push_back(StoredOf(*by_name.at(rank).at(tensor->name), slot, rank));
            ++(held.back() == nullptr ? absent : present);
          }
        }
      }
      if (present == 0) continue;
      if (absent > 0) return MakeError(ErrorCode::kCorrupt, fmt::format("some experts have the state {} and others do not", SlotName(slot)));
      CROSSDOCK_ASSIGN_OR_RETURN(whole.slots[static_cast<std::size_t>(slot)], JoinExperts(parts, *cut, HasGatedMlp(ranks_.args)));
    }
    return Take(key, std::move(whole), static_cast<std::size_t>(stage) * static_cast<std::size_t>(ranks_.tp));
  }

  /// What a rank stores of a parameter; null when it has no such state.
  Expr StoredOf(const LegacyTensor& tensor, Slot slot, std::size_t rank) {
    const Entry& entry = source_.entries[static_cast<std::size_t>(tensor.entry)];
    if (slot == Slot::kParam) {
      used_[static_cast<std::size_t>(tensor.entry)] = true;
      return expr::Leaf(tensor.entry, entry.dtype, entry.shape);
    }
    if (states_.empty()) return nullptr;
    const auto& params = states_[rank].params;
    const auto state = params.find(tensor.entry);
    return state == params.end() ? Expr() : state->second[static_cast<std::size_t>(slot)];
  }

  Status Take(const std::string& key, Whole whole, std::size_t first_rank) {
    const auto [place, fresh] = whole_.emplace(key, std::move(whole));
    if (fresh) return OkStatus();
    return MakeError(ErrorCode::kCorrupt, "two stages hold the same parameter").WithTensor(key).WithFound(fmt::format("{} and {}", place->second.dir, ranks_.ranks[first_rank].dir));
  }

  /// Megatron's own layers divide the projections down to the latent space, TransformerEngine's do not: their rows tell.
  [[nodiscard]] std::optional<Cut> CutOf(const std::string& key, std::int32_t entry) const {
    const bool query = key.ends_with("self_attention.linear_q_down_proj.weight");
    if (!query && !key.ends_with("self_attention.linear_kv_down_proj.weight")) return FindCut(key);
    const std::optional<std::int64_t> rank = ranks_.args.GetInt(query ? "q_lora_rank" : "kv_lora_rank");
    const std::int64_t rotary = query ? 0 : ranks_.args.GetInt("qk_pos_emb_head_dim").value_or(0);
    const Shape& shape = source_.entries[static_cast<std::size_t>(entry)].shape;
    const bool divided = rank && !shape.empty() && shape[0] * ranks_.tp == *rank + rotary;
    return divided ? std::optional<Cut>(Cut{0}) : std::nullopt;
  }

  /// A parameter of which torch_dist keeps each section by itself.
  Status JoinSections(const std::vector<const LegacyTensor*>& parts, std::size_t first_rank, const std::string& key, const std::vector<Section>& sections) {
    for (std::size_t at = 0; at < sections.size(); ++at) {
      Whole whole;
      whole.dir = ranks_.ranks[first_rank].dir;
      for (const Slot slot : kAllSlots) {
        CROSSDOCK_ASSIGN_OR_RETURN(std::vector<Expr> held, HeldOf(parts, slot, first_rank));
        if (held.empty()) continue;
        for (Expr& one : held) {
          CROSSDOCK_ASSIGN_OR_RETURN(one, SectionOfRank(one, sections, at, ranks_.tp));
        }
        CROSSDOCK_ASSIGN_OR_RETURN(whole.slots[static_cast<std::size_t>(slot)], JoinRanks(held, Cut{0}, false));
      }
      CROSSDOCK_RETURN_IF_ERROR(Take(fmt::format("{}.{}", key, sections[at].name), std::move(whole), first_rank));
    }
    return OkStatus();
  }

  /// How the ranks of a stage hold a parameter.
  struct Division {
    int ranks = 1;               ///< the first so many have all of it; others hold the same again
    std::optional<Cut> cut;
    bool gated = false;          ///< rows of a gate lie above those of its other half
  };

  Result<Division> DivisionOf(const LegacyTensor& tensor, const std::string& key, const ByName& rank) const {
    if (!IsVision(key)) {
      Division division{ranks_.tp, CutOf(key, tensor.entry), HasGatedMlp(ranks_.args)};
      if (ranks_.tp == 1 || division.cut || IsReplicated(key) || !SectionsOf(key, ranks_.args).empty()) return division;
      return MakeError(ErrorCode::kUnsupported, "no rule says how tensor-parallel ranks divide this parameter")
          .WithHint("save it again with --tensor-model-parallel-size 1 or with --ckpt-format torch_dist");
    }
    Division division{ranks_.tp, FindTowerCut(key), false};
    if (RepeatsEmbedding(key)) return division;
    const auto shape = [&](const LegacyTensor& of) -> const Shape& { return source_.entries[static_cast<std::size_t>(of.entry)].shape; };
    const auto attention = std::ranges::find_if(rank, [](const auto& item) { return IsVision(item.first) && item.first.ends_with(".linear_qkv.weight"); });
    if (attention != rank.end()) {
      CROSSDOCK_ASSIGN_OR_RETURN(division.ranks, TowerRanks(shape(*attention->second), ranks_.tp));
    }
    // The rows of a gated layer are twice the columns of the one behind it.
    const std::size_t first = tensor.name.rfind(".linear_fc1.");
    const auto second = first == std::string::npos ? rank.end() : rank.find(tensor.name.substr(0, first) + ".linear_fc2.weight");
    division.gated = second != rank.end() && shape(*second->second).size() == 2 && !shape(tensor).empty() && shape(tensor)[0] == 2 * shape(*second->second)[1];
    return division;
  }

  Status JoinOne(const std::vector<const LegacyTensor*>& parts, std::size_t first_rank, const std::string& key, const Division& division) {
    const LegacyTensor& tensor = *parts.front();
    if (const std::vector<Section> sections = SectionsOf(key, ranks_.args); !sections.empty()) return JoinSections(parts, first_rank, key, sections);
    old_names_ = old_names_ || tensor.meaning.old;
    Whole whole;
    whole.dir = ranks_.ranks[first_rank].dir;
    for (const Slot slot : kAllSlots) {
      CROSSDOCK_ASSIGN_OR_RETURN(whole.slots[static_cast<std::size_t>(slot)], JoinSlot(parts, slot, first_rank, division));
    }
    const bool embedding = WithinLanguageModel(key) == kEmbeddingKey;
    if (IsCopy(tensor, key) || (embedding && whole_.contains(key))) return Copy(parts);
    if (embedding) embedding_ = parts;
    if (RepeatsEmbedding(key) && parts.size() > 1) copies_of_embedding_.push_back(parts);   // one that is not cut is compared as every repetition
    return Take(key, std::move(whole), first_rank);
  }

  /// What the tensor-parallel ranks hold of a slot; nothing when none has it.
  Result<std::vector<Expr>> HeldOf(const std::vector<const LegacyTensor*>& parts, Slot slot, std::size_t first_rank) {
    std::vector<Expr> exprs;
    for (std::size_t t = 0; t < parts.size(); ++t) {
      Expr found = StoredOf(*parts[t], slot, first_rank + t);
      if (found != nullptr) exprs.push_back(std::move(found));
    }
    if (exprs.empty() || exprs.size() == parts.size()) return exprs;
    return MakeError(ErrorCode::kCorrupt, fmt::format("some tensor-parallel ranks have the state {} of this parameter and others do not", SlotName(slot)));
  }

  /// Null when no rank has the slot.
  Result<Expr> JoinSlot(const std::vector<const LegacyTensor*>& parts, Slot slot, std::size_t first_rank, const Division& division) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<Expr> exprs, HeldOf(parts, slot, first_rank));
    if (exprs.empty()) return Expr();
    return JoinRanks(exprs, division.cut, division.gated);
  }

  /// A tied model keeps the embedding a second time on its last stage, as the head.
  bool IsCopy(const LegacyTensor& tensor, const std::string& key) const {
    if (tensor.meaning.head_copy) return true;
    return WithinLanguageModel(key) == kHeadKey && !ranks_.args.as_dict()->items.empty() && TiesEmbeddings(ranks_.args);
  }

  Status Copy(const std::vector<const LegacyTensor*>& parts) {
    if (embedding_.size() != parts.size()) {
      return MakeError(ErrorCode::kCorrupt, "the head of a tied model has no embedding that it copies").WithExpected(std::string(kEmbeddingKey));
    }
    for (std::size_t t = 0; t < parts.size(); ++t) view_.copies.push_back({embedding_[t]->entry, parts[t]->entry});
    return OkStatus();
  }

  /// Whether torch_dist of the same run has its layers by number however alike they are (transformer_block.py, `is_moe_layer_freq`).
  [[nodiscard]] bool NumbersLayers() const {
    if (const Value* linear = ranks_.args.Find("linear_attention_freq"); linear != nullptr && (linear->as_sequence() != nullptr || (linear->as_int() != nullptr && *linear->as_int() > 1))) return true;
    const Value* freq = ranks_.args.Find("moe_layer_freq");
    return ranks_.args.GetInt("num_experts") && freq != nullptr && (freq->as_sequence() != nullptr || (freq->as_int() != nullptr && *freq->as_int() > 1));
  }

  /// Everything beside the tensors, as torch_dist has it.
  void Catalogue() {
    Catalog& catalog = view_.catalog;
    catalog.format = source_.format;
    catalog.root = source_.root;
    catalog.step = source_.step;
    catalog.side_files = source_.side_files;
    for (const auto& [name, value] : source_.objects) {
      if (!name.starts_with("mp_rank_")) catalog.objects[name] = value;
    }
    if (extra_states_ > 0) {
      for (auto& [name, value] : EmptyExtraStates(catalog.entries, layers_)) catalog.objects[name] = std::move(value);
      view_.left_out.push_back({"_extra_state", "TransformerEngine's state of a module; made anew where a target wants it", extra_states_, 0});
    }
    catalog.objects["common"] = Common();
    if (!view_.copies.empty()) {
      LeftOut left{std::string(kHeadKey), "the last stage's copy of the tied embedding, which stands for both", 0, 0};
      for (const TiedPair& pair : view_.copies) {
        const Entry& entry = source_.entries[static_cast<std::size_t>(pair.head)];
        const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
        ++left.count;
        left.bytes += bytes ? *bytes : 0;
      }
      view_.left_out.push_back(std::move(left));
    }
    LeaveCopies();
    if (old_names_) {
      view_.notices.emplace_back("the parameters have names of before Megatron-Core; they are read by what Megatron-LM's documentation says of them");
    }
  }

  /// Weights that several ranks hold whole and of which one was taken.
  void LeaveCopies() {
    LeftOut left{"copies", "further ranks hold the same weights again", 0, 0};
    for (std::size_t i = 0; i < shards_.size() && ranks_.ep * ranks_.tp > 1; ++i) {
      for (const std::vector<LegacyTensor>& chunk : shards_[i].chunks) {
        for (const LegacyTensor& tensor : chunk) {
          const Entry& entry = source_.entries[static_cast<std::size_t>(tensor.entry)];
          const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
          if (used_[static_cast<std::size_t>(tensor.entry)]) continue;
          ++left.count;
          left.bytes += bytes ? *bytes : 0;
        }
      }
    }
    if (left.count > 0) view_.left_out.push_back(std::move(left));
  }

  /// As torch_dist has them, for a target of the same layout. Expert-parallel ranks have states of their own, for which that has no place.
  void ShowRandomStates() {
    if (ranks_.ep > 1) return;
    for (const LegacyRank& rank : ranks_.ranks) {
      const Value* state = rank.file->Find("rng_state");
      if (state != nullptr) view_.catalog.objects["object:" + RandomStateKey(rank.pipeline, ranks_.pp, rank.tensor, ranks_.tp)] = Value::MakeList({*state});
    }
  }

  /// The first rank's dict without tensors and without what belongs to ranks.
  Value Common() {
    Value common = Value::MakeDict();
    const LegacyRank& rank = ranks_.ranks.front();
    for (const auto& [key, value] : rank.file->as_dict()->items) {
      const std::string* name = key.as_string();
      if (name == nullptr || name->starts_with("model") || *name == "optimizer" || *name == "rerun_state_machine") continue;
      if (*name == "rng_state") {
        view_.left_out.push_back({*name, "random number generators belong to the ranks of the run that wrote them", static_cast<std::int64_t>(ranks_.ranks.size()), 0});
        ShowRandomStates();
        continue;
      }
      common.Set(*name, value);
    }
    if (!ranks_.args.as_dict()->items.empty()) {
      Value args = ranks_.args;
      args.Set("ckpt_format", Value("torch_dist"));  // what is seen, and what a run that takes these arguments must look for
      common.Set("args", MakeNamespace(std::move(args)));
    }
    const bool carried = std::ranges::any_of(states_, [](const LegacyState& s) { return !s.params.empty(); });
    if (carried) {
      common.Set("optimizer", CommonOptimizer(rank, states_.front().step));
      if (muon_) {
        common.Set("content_metadata", Value::MakeDict({{Value("singleton_local_shards"), Value(false)}, {Value("chained_optim_avoid_prefix"), Value(true)}}));
      } else {
        DeclareFullyReshardable(&common);
      }
    } else if (HasLegacyOptimizer(rank)) {
      std::string reason = options_.no_optim ? "left behind by --no-optim" : view_.optimizer_refusal.empty() ? "it holds no state yet" : view_.optimizer_refusal;
      view_.left_out.push_back({"optimizer state", std::move(reason), 1, 0});
    }
    return common;
  }

  const Catalog& source_;
  const ViewOptions options_;
  const LegacyRanks ranks_;
  std::vector<LegacyModel> shards_;          // one a rank
  std::vector<LegacyState> states_;          // one a rank, or none
  std::vector<std::int64_t> first_layers_;   // [chunk * pp + stage]
  std::int64_t layers_ = 0;
  WholeParameters whole_;
  std::vector<const LegacyTensor*> embedding_;
  std::vector<std::vector<const LegacyTensor*>> copies_of_embedding_;   // beside towers, cut as it is
  std::int64_t extra_states_ = 0;
  bool old_names_ = false;
  bool fuse_norms_ = true;
  bool muon_ = false;                        // some state is Muon's, whose optimizer is never the distributed one
  std::vector<bool> used_;                   // by entry of the source: some tensor of the view is made of it
  GlobalView view_;
};

}  // namespace

Result<GlobalView> SeeLegacy(const Catalog& source, const ViewOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(LegacyRanks ranks, FindLegacyRanks(source));
  return Merger(source, options, std::move(ranks)).Run();
}

}  // namespace crossdock::dialects::mcore
