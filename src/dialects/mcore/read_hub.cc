// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/names.h"
#include "dialects/hf/claim.h"
#include "dialects/hf/hub_copies.h"
#include "dialects/mcore/config_source.h"
#include "dialects/mcore/interleaved_rotary.h"
#include "dialects/mcore/inventory.h"
#include "dialects/mcore/kept_dtypes.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/fsdp_view.h"
#include "dialects/mcore/legacy_ranks.h"
#include "dialects/mcore/load_line.h"
#include "dialects/mcore/mcore_dialect.h"
#include "dialects/mcore/target_unit.h"
#include "dialects/mcore/training_state.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;
using family::DialectTensor;

constexpr std::string_view kHfFolder = "hf/";
constexpr std::string_view kTokenizerFolder = "tokenizer/";

/// Turns the claimed tensors of one catalog into hub tensors; problems are gathered and told together.
class Claims {
 public:
  Claims(const Catalog& catalog, const Inventory& inventory, const ChosenConfig& chosen)
      : catalog_(catalog), inventory_(inventory), chosen_(chosen), kept_(ReadKeptDTypes(catalog)) {}

  /// The tensors; what repeats others goes to `copies`.
  Result<std::vector<HubTensor>> Run(const family::Binding& binding, const ReadOptions& options, std::vector<LeftOut>* left_out, std::vector<HubCopy>* copies) {
    slots_ = SlotsPresent();
    for (const DialectTensor& tensor : binding.tensors) CROSSDOCK_RETURN_IF_ERROR(One(binding, tensor));
    CROSSDOCK_RETURN_IF_ERROR(JoinParts(binding));
    if (!options.allow_missing_tensors) CROSSDOCK_RETURN_IF_ERROR(ReportMissing());
    CROSSDOCK_RETURN_IF_ERROR(ReportUnknown(options.allow_unknown_tensors, left_out));
    std::sort(hub_.begin(), hub_.end(), [](const HubTensor& a, const HubTensor& b) { return std::tie(a.name, a.slot) < std::tie(b.name, b.slot); });
    *copies = std::move(repeats_);
    return std::move(hub_);
  }

 private:
  std::vector<Slot> SlotsPresent() const {
    std::vector<Slot> slots;
    for (const Slot slot : kAllSlots) {
      const auto has = [&](const auto& item) { return item.second[static_cast<std::size_t>(slot)] >= 0; };
      if (slot == Slot::kParam || std::any_of(inventory_.tensors.begin(), inventory_.tensors.end(), has)) slots.push_back(slot);
    }
    return slots;
  }

  Status CheckShape(const DialectTensor& tensor, const Entry& entry) const {
    Shape wanted = tensor.shape;
    if (tensor.padded_rows && !entry.shape.empty()) wanted[0] = entry.shape[0];  // slots may be padded otherwise
    if (entry.shape == wanted) return OkStatus();
    Error error = MakeError(ErrorCode::kCorrupt, fmt::format("the tensor does not have the shape that {} says", chosen_.origin))
                      .WithTensor(entry.name)
                      .WithExpected(ToString(wanted))
                      .WithFound(ToString(entry.shape));
    if (entry.shape.size() == 1 && wanted.size() > 1 && entry.name != tensor.name) {
      error.code = ErrorCode::kUnsupported;
      error.message = "the optimizer state is stored as flat shards without their shape (Megatron-Core before 0.5), which this version does not read";
      error.hint = "--no-optim leaves the optimizer state behind";
      return error;
    }
    const std::string settings = SettingsBehind(chosen_, inventory_, tensor.name, wanted, entry.shape);
    if (!settings.empty()) error.expected += fmt::format(" from {}", settings);
    error.hint = fmt::format("correct {}, or take the checkpoint from where it was saved", chosen_.origin);
    return error;
  }

  /// The way back from a stored tensor to one of its hub tensors, over leaf 0. `inverse`: that of the tensor as the family has it.
  Result<Expr> Back(const Expr& inverse, const DialectTensor& tensor, const Shape& hub_shape, const Entry& entry) const {
    if (entry.shape == tensor.shape) return inverse;
    if (entry.shape[0] < hub_shape[0]) {
      return MakeError(ErrorCode::kCorrupt, "the tensor has fewer rows than the vocabulary")
          .WithTensor(entry.name)
          .WithExpected(fmt::format("at least {}", hub_shape[0]))
          .WithFound(ToString(entry.shape));
    }
    return expr::Slice(expr::Leaf(0, DType::kF32, entry.shape), Box::Whole(hub_shape));
  }

  std::map<std::string, SlotEntries>::const_iterator Stored(const std::string& name) const {
    auto found = inventory_.tensors.find(name);
    if (found != inventory_.tensors.end()) return found;
    for (const std::string& other : OtherSpellings(name)) {
      found = inventory_.tensors.find(other);
      if (found != inventory_.tensors.end()) break;
    }
    return found;
  }

  Status One(const family::Binding& binding, const DialectTensor& tensor) {
    const auto stored = Stored(tensor.name);
    if (stored == inventory_.tensors.end() || stored->second[0] < 0) missing_.push_back(tensor.name);
    if (stored == inventory_.tensors.end()) return OkStatus();
    claimed_.insert(stored->first);
    CROSSDOCK_ASSIGN_OR_RETURN(const auto inverses, expr::Inverses(tensor.forward));
    for (const Slot slot : slots_) {
      const std::int32_t index = stored->second[static_cast<std::size_t>(slot)];
      if (index < 0) continue;
      const Entry& entry = catalog_.entries[static_cast<std::size_t>(index)];
      CROSSDOCK_RETURN_IF_ERROR(CheckShape(tensor, entry));
      if (tensor.repeats) {
        CROSSDOCK_RETURN_IF_ERROR(Repeat(binding, tensor, slot, index));
        continue;
      }
      for (const std::int32_t ordinal : tensor.hub) {
        const std::int32_t at = family::HubOf(binding, ordinal);
        const family::HubTensor& hub = binding.hub[static_cast<std::size_t>(at)];
        Result<Expr> made = Make(inverses.at(ordinal), tensor, hub, slot, index);
        if (!made) return std::move(std::move(made).error()).WithTensor(entry.name);
        if (ordinal == at) {
          hub_.push_back({hub.name, slot, (*made)->dtype, hub.shape, *made});
        } else {
          parts_[{at, slot}][binding.parts[static_cast<std::size_t>(ordinal - family::kFirstPart)].at] = *std::move(made);
        }
      }
    }
    const bool buffer = std::all_of(tensor.hub.begin(), tensor.hub.end(), [&](std::int32_t ordinal) {
      return family::FitsAny(chosen_.family->buffers, family::HubNameOf(binding, ordinal));
    });
    return buffer || tensor.repeats ? OkStatus() : CheckSlots(tensor, stored->second);
  }

  /// A tensor that holds another one's values again is compared with it, not carried.
  Status Repeat(const family::Binding& binding, const DialectTensor& tensor, Slot slot, std::int32_t index) {
    if (slot != Slot::kParam) {
      return MakeError(ErrorCode::kUnsupported, "a tensor that repeats another one has optimizer state of its own").WithTensor(tensor.name)
          .WithHint("--no-optim leaves the optimizer state behind");
    }
    const auto original = std::ranges::find_if(binding.tensors, [&](const DialectTensor& other) { return !other.repeats && other.hub == tensor.hub; });
    if (original == binding.tensors.end()) return OkStatus();
    const auto stored = Stored(original->name);
    const std::int32_t entry = stored == inventory_.tensors.end() ? -1 : stored->second[0];
    const std::string& name = family::HubNameOf(binding, tensor.hub.front());
    repeats_.push_back({name, name, index, entry});
    return OkStatus();
  }

  /// Hub tensors of which Megatron keeps parts. One that lacks a part is missing, which is told.
  Status JoinParts(const family::Binding& binding) {
    for (const auto& [place, parts] : parts_) {
      CROSSDOCK_ASSIGN_OR_RETURN(const Expr joined, family::FromParts(binding, place.first, parts));
      if (joined == nullptr) continue;
      const family::HubTensor& hub = binding.hub[static_cast<std::size_t>(place.first)];
      hub_.push_back({hub.name, place.second, joined->dtype, hub.shape, expr::Simplify(joined)});
    }
    return OkStatus();
  }

  /// What is computed with is computed in F32. It stays in F32, where all digits have room, unless the tensor was in a narrower type
  /// before this tool wrote it (KeptDTypes).
  Result<Expr> Make(const Expr& inverse, const DialectTensor& tensor, const family::HubTensor& hub, Slot slot, std::int32_t index) const {
    const Entry& entry = catalog_.entries[static_cast<std::size_t>(index)];
    CROSSDOCK_ASSIGN_OR_RETURN(const Expr back, Back(inverse, tensor, hub.shape, entry));
    CROSSDOCK_ASSIGN_OR_RETURN(const Expr for_slot, expr::ForSlot(back, slot));
    const bool computed = expr::HasArithmetic(for_slot);
    CROSSDOCK_ASSIGN_OR_RETURN(Expr placed, expr::Substitute(for_slot, [&](int) -> Result<Expr> {
      return expr::Cast(expr::Leaf(index, entry.dtype, entry.shape), computed ? DType::kF32 : entry.dtype);
    }));
    if (const auto kept = kept_.find(hub.name); kept != kept_.end() && computed && slot == Slot::kParam && entry.dtype == DType::kF32) {
      CROSSDOCK_ASSIGN_OR_RETURN(placed, expr::Cast(std::move(placed), kept->second));
    }
    return expr::Simplify(placed);
  }

  /// Every parameter has Adam's two moments or Muon's momentum, once there is an optimizer at all.
  Status CheckSlots(const DialectTensor& tensor, const SlotEntries& entries) {
    if (!HasMoments()) return OkStatus();
    const auto has = [&](Slot slot) { return entries[static_cast<std::size_t>(slot)] >= 0; };
    if (!(has(Slot::kAdamMu) && has(Slot::kAdamNu)) && !has(Slot::kMuonMu)) missing_state_.push_back(tensor.name);
    return OkStatus();
  }

  bool HasMoments() const {
    return std::any_of(slots_.begin(), slots_.end(), [](Slot slot) { return slot == Slot::kAdamMu || slot == Slot::kAdamNu || slot == Slot::kMuonMu; });
  }

  Status ReportMissing() const {
    if (!missing_.empty()) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("{} tensors of the family {} are missing", missing_.size(), chosen_.family->name))
          .WithTensor(missing_.front())
          .WithExpected(SomeNames(missing_))
          .WithFound(fmt::format("{} model tensors, {}", inventory_.tensors.size(), inventory_.stacked ? "layers along an axis" : "layers by number"))
          .WithHint("if the family is another one, name it with --family");
    }
    if (!missing_state_.empty()) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("{} tensors have no complete optimizer state", missing_state_.size()))
          .WithTensor(missing_state_.front())
          .WithExpected(fmt::format("exp_avg and exp_avg_sq, or momentum_buffer, for {}", SomeNames(missing_state_)))
          .WithHint("--no-optim leaves the optimizer state behind");
    }
    return OkStatus();
  }

  Status ReportUnknown(bool allow, std::vector<LeftOut>* left_out) const {
    std::vector<std::string> unknown;
    for (const auto& [key, slots] : inventory_.tensors) {
      if (!claimed_.contains(key)) unknown.push_back(key);
    }
    if (unknown.empty()) return OkStatus();
    if (!allow) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("{} tensors are claimed by no rule of the family {}", unknown.size(), chosen_.family->name))
          .WithTensor(unknown.front())
          .WithFound(SomeNames(unknown))
          .WithHint("if the family is another one, name it with --family; --allow unknown-tensors leaves them behind");
    }
    for (const std::string& key : unknown) {
      LeftOut left{key, "claimed by no rule (--allow unknown-tensors)", 0, 0};
      for (const std::int32_t index : inventory_.tensors.at(key)) {
        if (index < 0) continue;
        const Entry& entry = catalog_.entries[static_cast<std::size_t>(index)];
        const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
        ++left.count;
        left.bytes += bytes ? *bytes : 0;
      }
      left_out->push_back(std::move(left));
    }
    return OkStatus();
  }

  const Catalog& catalog_;
  const Inventory& inventory_;
  const ChosenConfig& chosen_;
  const std::map<std::string, DType> kept_;
  std::map<std::pair<std::int32_t, Slot>, std::map<std::int64_t, Expr>> parts_;   ///< of hub tensors, by their number
  std::vector<Slot> slots_;
  std::vector<HubTensor> hub_;
  std::vector<HubCopy> repeats_;
  std::set<std::string> claimed_;
  std::vector<std::string> missing_;
  std::vector<std::string> missing_state_;
};

/// ITER/hf/ as a Hugging Face directory's own files; else what Megatron keeps of a tokenizer.
std::vector<SideFile> HubSideFiles(const Catalog& catalog) {
  std::vector<SideFile> files;
  for (const std::string_view folder : {kHfFolder, kTokenizerFolder}) {
    for (const SideFile& file : catalog.side_files) {
      if (!file.path.starts_with(folder)) continue;
      SideFile copy = file;
      copy.path.erase(0, folder.size());
      if (!copy.path.empty()) files.push_back(std::move(copy));
    }
    if (!files.empty()) break;
  }
  return files;
}

std::string OptimizerName(const std::vector<HubTensor>& tensors) {
  std::string name;
  for (const HubTensor& tensor : tensors) {
    if (tensor.slot == Slot::kMuonMu) return "muon";
    if (tensor.slot == Slot::kAdamMu) name = "adam";
  }
  return name;
}

/// The embedding is the one tensor that every family has: without it nothing can be named, only carried along.
Status CheckHoldsModel(const Catalog& source, const Inventory& inventory) {
  if (inventory.embedding_rows != 0) return OkStatus();
  const bool empty = inventory.tensors.empty();
  return MakeError(empty ? ErrorCode::kIncomplete : ErrorCode::kUnsupported,
                   empty ? "the checkpoint holds no model tensors" : "the checkpoint holds no embedding, which every family has")
      .WithTensor("embedding.word_embeddings.weight")
      .WithFound(fmt::format("{} tensors, {} of them of a model", source.entries.size(), inventory.tensors.size()))
      .WithHint("the save was not finished, or this is not the checkpoint of a whole model: choose another step or path");
}

/// The arguments' own numbers: a run whose vocabulary does not fit into its padded one has not been.
Status CheckPadding(const Inventory& inventory, ChosenConfig* chosen) {
  if (!chosen->stored) return OkStatus();
  const std::optional<std::int64_t> padded = chosen->stored->args.GetInt("padded_vocab_size");
  const std::optional<std::int64_t> size = chosen->stored->args.GetInt("vocab_size");
  if (padded && size && *padded < *size) {
    return MakeError(ErrorCode::kCorrupt, "the arguments name a padded vocabulary that is smaller than the vocabulary")
        .WithPath(chosen->stored->origin)
        .WithExpected(fmt::format("padded_vocab_size of at least {}", *size))
        .WithFound(fmt::format("{}", *padded));
  }
  if (padded && inventory.embedding_rows != 0 && *padded != inventory.embedding_rows) {
    chosen->notices.push_back(fmt::format("padded_vocab_size is {} in {}, but {} rows are stored: the rows count", *padded, chosen->stored->origin, inventory.embedding_rows));
  }
  return OkStatus();
}

Status CheckVocabulary(const Inventory& inventory, const ChosenConfig& chosen) {
  const auto vocabulary = chosen.model.letters.find("v");
  if (vocabulary == chosen.model.letters.end() || inventory.embedding_rows == 0 || vocabulary->second <= inventory.embedding_rows) return OkStatus();
  return MakeError(ErrorCode::kCorrupt, fmt::format("{} names a larger vocabulary than the checkpoint stores", chosen.origin))
      .WithTensor("embedding.word_embeddings.weight")
      .WithExpected(fmt::format("at least {} rows", vocabulary->second))
      .WithFound(fmt::format("{}", inventory.embedding_rows));
}

}  // namespace

Result<HubState> ReadHub(const Catalog& source, const ReadOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(Inventory inventory, TakeInventory(source, options.no_optim));
  CROSSDOCK_ASSIGN_OR_RETURN(ChosenConfig chosen, ChooseConfig(source, options, inventory));
  CROSSDOCK_RETURN_IF_ERROR(CheckHoldsModel(source, inventory));
  CROSSDOCK_RETURN_IF_ERROR(CheckVocabulary(inventory, chosen));
  CROSSDOCK_RETURN_IF_ERROR(CheckPadding(inventory, &chosen));
  const family::BindOptions bind = BindOptionsOf(inventory, *chosen.family);
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding binding, family::Bind(*chosen.family, chosen.model, bind));

  HubState hub;
  hub.notices = std::move(chosen.notices);
  hub.left_out = std::move(inventory.left_out);
  if (std::optional<std::string> notice = GatedAttentionNotice(*chosen.family, bind.consumer)) hub.notices.push_back(*std::move(notice));
  CROSSDOCK_ASSIGN_OR_RETURN(hub.tensors, Claims(source, inventory, chosen).Run(binding, options, &hub.left_out, &hub.copies));
  for (const family::HubTensor& tensor : binding.hub) hub.order.push_back(tensor.name);
  hf::AddUnstoredCopies(binding, chosen.model, &hub);
  hub.optimizer = OptimizerName(hub.tensors);
  hub.padded_vocab = inventory.embedding_rows;
  hub.optimizer_refusal = inventory.optimizer_refusal;

  const Value* args = chosen.stored ? &chosen.stored->args : nullptr;
  CROSSDOCK_ASSIGN_OR_RETURN(hub.counters, ReadCounters(source, args, !hub.optimizer.empty()));
  if (hub.optimizer == "muon" && !hub.counters.muon_count && hub.counters.adam_count) {
    hub.counters.muon_count = hub.counters.adam_count;
    hub.notices.push_back(fmt::format("Megatron's Muon counts no steps; it steps together with Adam, whose count, {}, is taken", *hub.counters.muon_count));
  }
  if (hub.optimizer == "muon") hub.muon_momentum = "ema";  // emerging-optimizers: momentum_buffer.lerp_(grad, 1 - momentum)
  hub.extras = ReadExtras(source, args);
  if (hub.optimizer.empty()) hub.extras.Erase("param_groups");
  hub.extras_words = "mcore";
  hub.layout = ReadLayout(source, args);
  hub.layout.Set("layers", Value(inventory.stacked ? "along the first axis" : "numbered"));
  if (!chosen.family->consumers.empty()) hub.layout.Set("names", Value(bind.consumer.empty() ? chosen.family->consumers.front() : bind.consumer));
  hub.side_files = HubSideFiles(source);
  hub.load_hint = LoadLine(source.root, source.root, StoredStateOf(source, IsRelease(source)));
  if (IsLegacy(source)) {
    const auto says = [&](const char* name) { return args != nullptr && args->GetBool(name).value_or(false); };
    hub.load_hint = LegacyLoadLine(std::move(hub.load_hint), {says("use_distributed_optimizer"), says("no_save_rng") && !IsRelease(source), IsByTorchDcp(source)});
  }
  if (IsMegatronFsdp(source)) hub.load_hint += " --use-megatron-fsdp --ckpt-format fsdp_dtensor";
  if (std::optional<std::string> notice = IterationNotice(source)) hub.notices.push_back(*std::move(notice));
  const bool hub_has_pairs = chosen.family->States("rotary_interleaved");
  if (args != nullptr && IsInterleaved(*args) && !hub_has_pairs) {
    CROSSDOCK_RETURN_IF_ERROR(UndoInterleaving(*args, &hub.tensors));
    if (chosen.config.words == "mcore") chosen.config.values.Set("rotary_interleaved", Value(false));
    hub.notices.emplace_back("the checkpoint was trained with rotary_interleaved: the rows of q and k are taken in the hub's order, pairs apart");
  }
  hub.family = chosen.family;
  hub.config = std::move(chosen.config);
  hub.model = std::move(chosen.model);
  return hub;
}

}  // namespace crossdock::dialects::mcore
