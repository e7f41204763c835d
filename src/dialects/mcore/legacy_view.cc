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
#include "dialects/mcore/legacy_model.h"
#include "dialects/mcore/legacy_state.h"
#include "dialects/mcore/view_catalog.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;

constexpr std::string_view kEmbedding = "embedding.word_embeddings.weight";
constexpr std::string_view kHead = "output_layer.weight";

/// Of one parameter: its tensors by slot, whole.
struct Whole {
  SlotExprs slots;
  std::string dir;           ///< where it was found, for messages
};

class Merger {
 public:
  Merger(const Catalog& source, const ViewOptions& options, LegacyRanks ranks) : source_(source), options_(options), ranks_(std::move(ranks)) {}

  Result<GlobalView> Run() {
    view_.identity = false;
    CROSSDOCK_RETURN_IF_ERROR(CheckReadable());
    for (const LegacyRank& rank : ranks_.ranks) {
      CROSSDOCK_ASSIGN_OR_RETURN(LegacyModel shard, ReadLegacyModel(source_, rank));
      extra_states_ += shard.extra_states;
      shards_.push_back(std::move(shard));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(first_layers_, FirstLayers(ranks_, shards_, &layers_));
    ReadStates();
    for (std::size_t chunk = 0; chunk < shards_.front().chunks.size(); ++chunk) {
      for (int stage = 0; stage < ranks_.pp; ++stage) CROSSDOCK_RETURN_IF_ERROR(Join(chunk, stage));
    }
    CROSSDOCK_RETURN_IF_ERROR(Emit());
    Catalogue();
    return std::move(view_);
  }

 private:
  [[nodiscard]] bool Flag(const char* name, bool otherwise) const { return ranks_.args.GetBool(name).value_or(otherwise); }

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

  /// All ranks' optimizer states, or none and the reason.
  void ReadStates() {
    if (options_.no_optim || !HasLegacyOptimizer(ranks_.ranks.front())) return;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const bool distributed = ranks_.ranks[i].distributed != nullptr;
      Result<LegacyState> state = distributed ? ReadDistributedOptimizer(source_, ranks_, ranks_.ranks[i], shards_[i])
                                              : ReadLegacyOptimizer(source_, ranks_.ranks[i], shards_[i]);
      if (!state) {
        view_.optimizer_refusal = Reason(state.error());
        states_.clear();
        return;
      }
      view_.prove_masters = view_.prove_masters || distributed;
      states_.push_back(*std::move(state));
    }
  }

  /// One stage's part of a model chunk: every parameter from its tensor ranks.
  Status Join(std::size_t chunk, int stage) {
    const auto at = static_cast<std::size_t>(stage) * static_cast<std::size_t>(ranks_.tp);
    const std::int64_t first_layer = first_layers_[chunk * static_cast<std::size_t>(ranks_.pp) + static_cast<std::size_t>(stage)];
    std::vector<std::map<std::string_view, const LegacyTensor*>> by_name(static_cast<std::size_t>(ranks_.tp));
    for (std::size_t t = 0; t < by_name.size(); ++t) {
      for (const LegacyTensor& tensor : shards_[at + t].chunks[chunk]) by_name[t][tensor.name] = &tensor;
    }
    for (const LegacyTensor& tensor : shards_[at].chunks[chunk]) {
      std::vector<const LegacyTensor*> parts;
      for (const auto& names : by_name) parts.push_back(names.at(tensor.name));  // the names were compared
      const Status joined = JoinOne(parts, at, first_layer);
      if (!joined) {
        Error error = joined.error();
        if (error.path.empty()) error.path = ranks_.ranks[at].dir;
        if (error.tensor.empty()) error.tensor = tensor.name;
        return error;
      }
    }
    return OkStatus();
  }

  Status JoinOne(const std::vector<const LegacyTensor*>& parts, std::size_t first_rank, std::int64_t first_layer) {
    const LegacyTensor& tensor = *parts.front();
    std::string key = tensor.meaning.key;
    if (tensor.meaning.layer) key = fmt::format("decoder.layers.{}.{}", first_layer + *tensor.meaning.layer, key);
    old_names_ = old_names_ || tensor.meaning.old;
    if (key.find("mlp.experts.") != std::string::npos) {
      return MakeError(ErrorCode::kUnsupported, "the checkpoint holds a mixture of experts, whose legacy files this version does not put together")
          .WithHint("save it again with --ckpt-format torch_dist");
    }
    const std::optional<Cut> cut = FindCut(key);
    if (ranks_.tp > 1 && !cut && !IsReplicated(key)) {
      return MakeError(ErrorCode::kUnsupported, "no rule says how tensor-parallel ranks divide this parameter")
          .WithHint("save it again with --tensor-model-parallel-size 1 or with --ckpt-format torch_dist");
    }
    Whole whole;
    whole.dir = ranks_.ranks[first_rank].dir;
    for (const Slot slot : kAllSlots) {
      CROSSDOCK_ASSIGN_OR_RETURN(whole.slots[static_cast<std::size_t>(slot)], JoinSlot(parts, slot, first_rank, cut));
    }
    if (IsCopy(tensor, key)) return Copy(parts);
    if (key == kEmbedding && whole_.contains(key)) return Copy(parts);
    if (key == kEmbedding) embedding_ = parts;
    const auto [place, fresh] = whole_.emplace(key, std::move(whole));
    if (fresh) return OkStatus();
    return MakeError(ErrorCode::kCorrupt, "two stages hold the same parameter").WithTensor(key).WithFound(fmt::format("{} and {}", place->second.dir, ranks_.ranks[first_rank].dir));
  }

  /// Null when no rank has the slot.
  Result<Expr> JoinSlot(const std::vector<const LegacyTensor*>& parts, Slot slot, std::size_t first_rank, const std::optional<Cut>& cut) const {
    std::vector<Expr> exprs;
    for (std::size_t t = 0; t < parts.size(); ++t) {
      const std::int32_t index = parts[t]->entry;
      const Entry& entry = source_.entries[static_cast<std::size_t>(index)];
      if (slot == Slot::kParam) {
        exprs.push_back(expr::Leaf(index, entry.dtype, entry.shape));
        continue;
      }
      if (states_.empty()) return Expr();
      const auto& params = states_[first_rank + t].params;
      const auto state = params.find(index);
      const Expr found = state == params.end() ? Expr() : state->second[static_cast<std::size_t>(slot)];
      if (found != nullptr) exprs.push_back(found);
    }
    if (exprs.empty()) return Expr();
    if (exprs.size() != parts.size()) {
      return MakeError(ErrorCode::kCorrupt, fmt::format("some tensor-parallel ranks have the state {} of this parameter and others do not", SlotName(slot)));
    }
    return JoinRanks(exprs, cut, Flag("swiglu", true));
  }

  /// A tied model keeps the embedding a second time on its last stage, as the head.
  bool IsCopy(const LegacyTensor& tensor, const std::string& key) const {
    if (tensor.meaning.head_copy) return true;
    return key == kHead && !ranks_.args.as_dict()->items.empty() && TiesEmbeddings(ranks_.args);
  }

  Status Copy(const std::vector<const LegacyTensor*>& parts) {
    if (embedding_.size() != parts.size()) {
      return MakeError(ErrorCode::kCorrupt, "the head of a tied model has no embedding that it copies").WithExpected(std::string(kEmbedding));
    }
    for (std::size_t t = 0; t < parts.size(); ++t) view_.copies.push_back({embedding_[t]->entry, parts[t]->entry});
    return OkStatus();
  }

  /// Layers along an axis where all have the same parameters, else by number.
  Status Emit() {
    std::map<std::string, std::vector<const Whole*>> stacks;  // by what follows the number
    for (const auto& [key, whole] : whole_) {
      const std::optional<std::int64_t> layer = LayerNumber(key);
      if (!layer) continue;
      // A name may carry a number that no stage counts (`language_model.decoder.layers.7...`).
      if (*layer >= layers_) {
        return MakeError(ErrorCode::kCorrupt, "a parameter's layer is beyond the model's")
            .WithTensor(key)
            .WithExpected(fmt::format("fewer than {}", layers_))
            .WithFound(fmt::format("{}", *layer));
      }
      std::vector<const Whole*>& stack = stacks[key.substr(key.find('.', std::string_view("decoder.layers.").size()) + 1)];
      stack.resize(static_cast<std::size_t>(layers_), nullptr);
      stack[static_cast<std::size_t>(*layer)] = &whole;
    }
    const bool stacked = std::ranges::all_of(stacks, [](const auto& item) { return Alike(item.second); });
    for (const auto& [key, whole] : whole_) {
      if (stacked && LayerNumber(key)) continue;
      for (const Slot slot : kAllSlots) Add(key, slot, whole.slots[static_cast<std::size_t>(slot)]);
    }
    for (auto& [rest, stack] : stacks) {
      if (!stacked) break;
      for (const Slot slot : kAllSlots) {
        std::vector<Expr> layers;
        for (const Whole* whole : stack) layers.push_back(whole->slots[static_cast<std::size_t>(slot)]);
        if (layers.front() == nullptr) continue;
        CROSSDOCK_ASSIGN_OR_RETURN(Expr whole, expr::Stack(layers, 0));
        Add("decoder.layers." + rest, slot, std::move(whole));
      }
    }
    return SortView(&view_);
  }

  static bool Alike(const std::vector<const Whole*>& stack) {
    return std::ranges::all_of(stack, [&](const Whole* whole) {
      if (whole == nullptr || stack.front() == nullptr) return false;
      for (std::size_t s = 0; s < kAllSlots.size(); ++s) {
        const Expr& a = stack.front()->slots[s];
        const Expr& b = whole->slots[s];
        if ((a == nullptr) != (b == nullptr) || (a != nullptr && (a->shape != b->shape || a->dtype != b->dtype))) return false;
      }
      return true;
    });
  }

  void Add(const std::string& key, Slot slot, Expr whole) {
    if (whole == nullptr) return;
    const std::string name = slot == Slot::kMuonMu ? "optimizer.state.momentum_buffer." + key : SlotKey(slot, key);
    view_.catalog.entries.push_back({name, Slot::kParam, whole->dtype, whole->shape, {}});
    view_.exprs.push_back(expr::Simplify(whole));
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
      LeftOut left{std::string(kHead), "the last stage's copy of the tied embedding, which stands for both", 0, 0};
      for (const TiedPair& pair : view_.copies) {
        const Entry& entry = source_.entries[static_cast<std::size_t>(pair.head)];
        const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
        ++left.count;
        left.bytes += bytes ? *bytes : 0;
      }
      view_.left_out.push_back(std::move(left));
    }
    if (old_names_) {
      view_.notices.emplace_back("the parameters have names of before Megatron-Core; they are read by what Megatron-LM's documentation says of them");
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
      DeclareFullyReshardable(&common);
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
  std::map<std::string, Whole> whole_;       // by torch_dist key, layers numbered
  std::vector<const LegacyTensor*> embedding_;
  std::int64_t extra_states_ = 0;
  bool old_names_ = false;
  GlobalView view_;
};

}  // namespace

Result<GlobalView> SeeLegacy(const Catalog& source, const ViewOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(LegacyRanks ranks, FindLegacyRanks(source));
  return Merger(source, options, std::move(ranks)).Run();
}

}  // namespace crossdock::dialects::mcore
