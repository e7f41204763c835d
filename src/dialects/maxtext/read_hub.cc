// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/names.h"
#include "dialects/hf/extras.h"
#include "dialects/hf/hub_copies.h"
#include "dialects/maxtext/config_source.h"
#include "dialects/maxtext/inventory.h"
#include "dialects/maxtext/maxtext_dialect.h"
#include "dialects/maxtext/step_words.h"
#include "dialects/maxtext/tree_binding.h"

namespace crossdock::dialects::maxtext {
namespace {

using expr::Expr;
using family::DialectTensor;

constexpr std::string_view kHfFolder = "hf/";

/// The shape that a stored array of this tensor has, whose vocabulary may be padded.
Shape Padded(const DialectTensor& tensor, const Shape& stored) {
  Shape wanted = tensor.shape;
  const int axis = VocabularyAxis(tensor.name);
  if (axis >= 0 && stored.size() == wanted.size()) {
    const auto at = static_cast<std::size_t>(axis);
    wanted[at] = std::max(wanted[at], stored[at]);
  }
  return wanted;
}

/// Turns the claimed arrays of one catalog into hub tensors; problems are gathered and told together.
class Claims {
 public:
  Claims(const Catalog& catalog, const Inventory& inventory, const ChosenConfig& chosen, const TreeBinding& binding)
      : catalog_(catalog), inventory_(inventory), chosen_(chosen), binding_(binding) {
    for (const DialectTensor& bias : binding.biases) biases_[bias.name] = &bias;
  }

  Result<std::vector<HubTensor>> Run(const ReadOptions& options, std::vector<LeftOut>* left_out) {
    for (const auto& [name, slots] : inventory_.tensors) {
      for (std::size_t slot = 1; slot < slots.size(); ++slot) has_state_ = has_state_ || slots[slot] >= 0;
    }
    for (const DialectTensor& tensor : binding_.tensors) {
      const auto bias = biases_.find(tensor.name);
      CROSSDOCK_RETURN_IF_ERROR(bias == biases_.end() ? One(tensor, left_out) : Bias(tensor, *bias->second, left_out));
    }
    CROSSDOCK_RETURN_IF_ERROR(JoinAll());
    if (!options.allow_missing_tensors) CROSSDOCK_RETURN_IF_ERROR(ReportMissing());
    CROSSDOCK_RETURN_IF_ERROR(ReportUnknown(options.allow_unknown_tensors, left_out));
    std::sort(hub_.begin(), hub_.end(), [](const HubTensor& a, const HubTensor& b) { return std::tie(a.name, a.slot) < std::tie(b.name, b.slot); });
    return std::move(hub_);
  }

 private:
  const Entry& EntryAt(std::int32_t index) const { return catalog_.entries[static_cast<std::size_t>(index)]; }

  Status CheckShape(const DialectTensor& tensor, const Entry& entry) const {
    const Shape wanted = Padded(tensor, entry.shape);
    if (entry.shape == wanted) return OkStatus();
    return MakeError(ErrorCode::kCorrupt, fmt::format("the array does not have the shape that {} says", chosen_.origin))
        .WithTensor(entry.name)
        .WithExpected(ToString(wanted))
        .WithFound(ToString(entry.shape))
        .WithHint(tensor.stack_axis >= 0 ? "correct the configuration, or name the axis of scanned layers with --scan-axis N" : "correct the configuration");
  }

  /// One stored array as its hub tensors.
  Status Take(const DialectTensor& tensor, Slot slot, std::int32_t index) {
    const Entry& entry = EntryAt(index);
    CROSSDOCK_RETURN_IF_ERROR(CheckShape(tensor, entry));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto inverses, expr::Inverses(tensor.forward));
    for (const std::int32_t ordinal : tensor.hub) {
      const std::int32_t at = family::HubOf(binding_.numbered, ordinal);
      const family::HubTensor& hub = binding_.numbered.hub[static_cast<std::size_t>(at)];
      Result<Expr> made = Back(inverses.at(ordinal), tensor, slot, index);
      if (!made) return std::move(std::move(made).error()).WithTensor(entry.name);
      if (ordinal == at) {
        hub_.push_back({hub.name, slot, entry.dtype, hub.shape, *std::move(made)});
      } else {
        const family::HubPart& part = binding_.numbered.parts[static_cast<std::size_t>(ordinal - family::kFirstPart)];
        parts_[{at, slot}][part.at] = *std::move(made);
      }
    }
    return OkStatus();
  }

  /// Hub tensors that lie here in several arrays. One that lacks a part is missing, which was told.
  Status JoinAll() {
    for (const auto& [place, parts] : parts_) {
      CROSSDOCK_ASSIGN_OR_RETURN(const Expr joined, family::FromParts(binding_.numbered, place.first, parts));
      if (joined == nullptr) continue;
      const family::HubTensor& hub = binding_.numbered.hub[static_cast<std::size_t>(place.first)];
      hub_.push_back({hub.name, place.second, joined->dtype, hub.shape, expr::Simplify(joined)});
    }
    return OkStatus();
  }

  Result<Expr> Back(const Expr& inverse, const DialectTensor& tensor, Slot slot, std::int32_t index) const {
    const Entry& entry = EntryAt(index);
    CROSSDOCK_ASSIGN_OR_RETURN(const Expr for_slot, expr::ForSlot(inverse, slot));
    CROSSDOCK_ASSIGN_OR_RETURN(const Expr placed, expr::Substitute(for_slot, [&](int) -> Result<Expr> {
      Expr leaf = expr::Leaf(index, entry.dtype, entry.shape);
      if (entry.shape == tensor.shape) return leaf;
      return expr::Slice(std::move(leaf), Box::Whole(tensor.shape));  // the vocabulary's padding stays behind
    }));
    return expr::Simplify(placed);
  }

  /// Rows beyond the vocabulary: their content proves nothing, for training moves padding too.
  void TellPadding(const DialectTensor& tensor, const Entry& entry, std::vector<LeftOut>* left_out) const {
    const int axis = VocabularyAxis(tensor.name);
    if (axis < 0 || entry.shape == tensor.shape) return;
    const std::int64_t rows = entry.shape[static_cast<std::size_t>(axis)] - tensor.shape[static_cast<std::size_t>(axis)];
    left_out->push_back({entry.name, fmt::format("{} rows beyond the model's vocabulary of {}", rows, tensor.shape[static_cast<std::size_t>(axis)]), 1,
                         rows * (CheckedCount(entry.shape) / entry.shape[static_cast<std::size_t>(axis)]) * ElementSize(entry.dtype)});
  }

  Status One(const DialectTensor& tensor, std::vector<LeftOut>* left_out) {
    const auto stored = inventory_.tensors.find(tensor.name);
    if (stored == inventory_.tensors.end() || stored->second[0] < 0) missing_.push_back(tensor.name);
    if (stored == inventory_.tensors.end()) return OkStatus();
    claimed_.insert(tensor.name);
    for (const Slot slot : kAllSlots) {
      const std::int32_t index = stored->second[static_cast<std::size_t>(slot)];
      if (index < 0) continue;
      CROSSDOCK_RETURN_IF_ERROR(Take(tensor, slot, index));
      if (slot == Slot::kParam) TellPadding(tensor, EntryAt(index), left_out);
    }
    const auto has = [&](Slot slot) { return stored->second[static_cast<std::size_t>(slot)] >= 0; };
    if (has_state_ && !(has(Slot::kAdamMu) && has(Slot::kAdamNu)) && !has(Slot::kMuonMu)) without_state_.push_back(tensor.name);
    return OkStatus();
  }

  /// A routed bias: a variable of its own where there is one, else a parameter, whose moments mean nothing.
  Status Bias(const DialectTensor& tensor, const DialectTensor& bias, std::vector<LeftOut>* left_out) {
    const auto variable = inventory_.variables.find(tensor.name);
    const auto stored = inventory_.tensors.find(tensor.name);
    if (stored != inventory_.tensors.end()) {
      claimed_.insert(tensor.name);
      for (std::size_t slot = 1; slot < stored->second.size(); ++slot) {
        if (stored->second[slot] < 0) continue;
        const Entry& entry = EntryAt(stored->second[slot]);
        const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
        left_out->push_back({entry.name, "moments of a routed bias: it has no gradient", 1, bytes ? *bytes : 0});
      }
    }
    if (variable != inventory_.variables.end()) return claimed_.insert(tensor.name), Take(bias, Slot::kParam, variable->second);
    if (stored == inventory_.tensors.end() || stored->second[0] < 0) return missing_.push_back(tensor.name), OkStatus();
    const std::int32_t index = stored->second[0];
    return Take(EntryAt(index).shape == tensor.shape ? tensor : bias, Slot::kParam, index);
  }

  Status ReportMissing() const {
    if (!missing_.empty()) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("{} arrays of the family {} are missing", missing_.size(), chosen_.family->name))
          .WithTensor("params.params." + missing_.front())
          .WithExpected(SomeNames(missing_))
          .WithFound(fmt::format("{} parameters, layers {}", inventory_.tensors.size(), inventory_.scanned ? "scanned" : "by number"))
          .WithHint("if the family is another one, name it with --family");
    }
    if (!without_state_.empty()) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("{} parameters have no complete optimizer state", without_state_.size()))
          .WithTensor(without_state_.front())
          .WithExpected(fmt::format("mu and nu, or Muon's mu, of {}", SomeNames(without_state_)))
          .WithHint("--no-optim leaves the optimizer state behind");
    }
    return OkStatus();
  }

  Status ReportUnknown(bool allow, std::vector<LeftOut>* left_out) const {
    std::vector<std::string> unknown = inventory_.unknown;
    for (const auto& [name, slots] : inventory_.tensors) {
      if (!claimed_.contains(name)) unknown.push_back("params.params." + name);
    }
    for (const auto& [name, index] : inventory_.variables) {
      if (!claimed_.contains(name)) unknown.push_back(EntryAt(index).name);
    }
    if (unknown.empty()) return OkStatus();
    if (!allow) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("{} arrays are claimed by no rule of the family {}", unknown.size(), chosen_.family->name))
          .WithTensor(unknown.front())
          .WithFound(SomeNames(unknown))
          .WithHint("if the family is another one, name it with --family; --allow unknown-tensors leaves them behind");
    }
    for (const std::string& name : unknown) {
      const std::int32_t at = catalog_.Find(name);
      const Result<std::int64_t> bytes = at < 0 ? Result<std::int64_t>(std::int64_t{0}) : ByteSize(EntryAt(at).dtype, EntryAt(at).shape);
      left_out->push_back({name, "claimed by no rule (--allow unknown-tensors)", 1, bytes ? *bytes : 0});
    }
    return OkStatus();
  }

  const Catalog& catalog_;
  const Inventory& inventory_;
  const ChosenConfig& chosen_;
  const TreeBinding& binding_;
  std::map<std::string, const DialectTensor*> biases_;
  bool has_state_ = false;
  std::vector<HubTensor> hub_;
  std::map<std::pair<std::int32_t, Slot>, std::map<std::int64_t, Expr>> parts_;   ///< of hub tensors, by their number
  std::set<std::string> claimed_;
  std::vector<std::string> missing_;
  std::vector<std::string> without_state_;
};

/// Every parameter that is there has the shape that the binding says.
bool Fits(const Catalog& catalog, const Inventory& inventory, const TreeBinding& binding) {
  return std::all_of(binding.tensors.begin(), binding.tensors.end(), [&](const DialectTensor& tensor) {
    const auto stored = inventory.tensors.find(tensor.name);
    if (stored == inventory.tensors.end() || stored->second[0] < 0) return true;
    const Shape& shape = catalog.entries[static_cast<std::size_t>(stored->second[0])].shape;
    const auto bias = std::find_if(binding.biases.begin(), binding.biases.end(), [&](const DialectTensor& b) { return b.name == tensor.name; });
    return shape == Padded(tensor, shape) || (bias != binding.biases.end() && shape == bias->shape);
  });
}

/// The axis of scanned layers is a setting of the run that nothing records: the first that the shapes fit, 1 before others.
Result<TreeBinding> BindAsStored(const Catalog& catalog, const Inventory& inventory, const ChosenConfig& chosen, const ReadOptions& options,
                                 std::vector<std::string>* notices) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Cycle cycle, CycleOf(*chosen.family, chosen.model));
  if (!inventory.mixed.empty() && cycle.alone == 0) {
    return MakeError(ErrorCode::kUnsupported, fmt::format("some layers are scanned and others are not; the family {} has no rules for such a model", chosen.family->name))
        .WithFound(inventory.mixed);
  }
  const std::vector<int> axes = options.scan_axis ? std::vector<int>{*options.scan_axis} : inventory.scanned ? std::vector<int>{1, 0, 2, 3} : std::vector<int>{1};
  for (const int axis : axes) {
    CROSSDOCK_ASSIGN_OR_RETURN(TreeBinding binding, BindTree(*chosen.family, chosen.model, {inventory.scanned, axis}));
    if (!Fits(catalog, inventory, binding)) continue;
    if (axis != 1 && !options.scan_axis) notices->push_back(fmt::format("scanned layers lie along axis {}, as the shapes say", axis));
    return binding;
  }
  return BindTree(*chosen.family, chosen.model, {inventory.scanned, axes.front()});
}

/// The NNX form is optax's or MaxText's own Muon, which keep an exponential average; forks of the Linen form keep either. What a conversion
/// recorded goes before.
Status ReadMomentum(const Catalog& source, HubState* hub) {
  if (hub->optimizer != "muon") return OkStatus();
  const bool linen = std::any_of(source.entries.begin(), source.entries.end(), [](const Entry& entry) { return entry.name.starts_with("opt_state.inner_states.muon.inner_state.0.mu.params."); });
  hub->muon_momentum = linen ? "" : "ema";
  const auto metadata = source.objects.find("custom_metadata");
  const Value* carried = metadata == source.objects.end() ? nullptr : metadata->second.Find("crossdock");
  if (carried == nullptr) return OkStatus();
  hub->muon_beta = carried->GetFloat("muon_beta");
  const auto said = carried->GetString("muon_momentum");
  if (!said) return OkStatus();
  if (*said != "ema" && *said != "sum") {
    return MakeError(ErrorCode::kUnsupported, "a convention of Muon's momentum that is not known").WithTensor("custom_metadata.crossdock.muon_momentum").WithExpected("ema or sum").WithFound(Printable(*said));
  }
  hub->muon_momentum = *said;
  return OkStatus();
}

/// What a conversion left in the step's own metadata so that the way back is complete.
Status ReadCarried(const Catalog& source, HubState* hub) {
  const auto metadata = source.objects.find("custom_metadata");
  if (metadata != source.objects.end()) hub->step_metadata = WordsOfStep(metadata->second);
  const Value* carried = metadata == source.objects.end() ? nullptr : metadata->second.Find(kOwnWords);
  if (carried == nullptr) return OkStatus();
  if (const Value* levels = carried->Find(kLevelsWord)) hub->trainer_levels = *levels;
  hub->counters.consumed_train_samples = carried->GetInt("consumed_train_samples");
  if (const auto text = carried->GetString("extras")) {
    CROSSDOCK_ASSIGN_OR_RETURN(hf::Extras extras, hf::DecodeExtras(*text));
    hub->extras = std::move(extras.values);
    hub->extras_words = std::move(extras.words);
  }
  return OkStatus();
}

}  // namespace

Result<HubState> ReadHub(const Catalog& source, const ReadOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(Inventory inventory, TakeInventory(source, options.no_optim));
  CROSSDOCK_ASSIGN_OR_RETURN(ChosenConfig chosen, ChooseConfig(source, options, inventory));
  HubState hub;
  hub.notices = std::move(chosen.notices);
  CROSSDOCK_ASSIGN_OR_RETURN(const TreeBinding binding, BindAsStored(source, inventory, chosen, options, &hub.notices));
  hub.left_out = std::move(inventory.left_out);
  CROSSDOCK_ASSIGN_OR_RETURN(hub.tensors, Claims(source, inventory, chosen, binding).Run(options, &hub.left_out));
  for (const family::HubTensor& tensor : binding.numbered.hub) hub.order.push_back(tensor.name);
  hf::AddUnstoredCopies(binding.numbered, chosen.model, &hub);
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.slot == Slot::kMuonMu) hub.optimizer = "muon";
    if (tensor.slot == Slot::kAdamMu && hub.optimizer.empty()) hub.optimizer = "adam";
  }
  hub.counters = inventory.counters;
  hub.notices.insert(hub.notices.end(), inventory.notices.begin(), inventory.notices.end());
  CROSSDOCK_RETURN_IF_ERROR(ReadCarried(source, &hub));
  CROSSDOCK_RETURN_IF_ERROR(ReadMomentum(source, &hub));
  if (options.no_optim) hub.extras.Erase("param_groups");
  hub.layout.Set("layers", Value(inventory.scanned ? "scanned" : "numbered"));
  for (const SideFile& file : source.side_files) {
    if (!file.path.starts_with(kHfFolder)) continue;
    SideFile copy = file;
    copy.path.erase(0, kHfFolder.size());
    if (!copy.path.empty()) hub.side_files.push_back(std::move(copy));
  }
  hub.load_hint = fmt::format("load_{}_path={}/items", inventory.has_states ? "full_state" : "parameters", source.root);
  hub.family = chosen.family;
  hub.config = std::move(chosen.config);
  hub.model = std::move(chosen.model);
  return hub;
}

}  // namespace crossdock::dialects::maxtext
