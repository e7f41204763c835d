// SPDX-License-Identifier: Apache-2.0
/// A plain DCP is read as full state: its keys are renamed to `param/<hub>` and `optim/<slot>/<hub>`, and the rest of the
/// work (sizes, what is missing or unknown, tied heads) is the same.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "dialects/hf/claim.h"
#include "base/digits.h"
#include "dialects/hf/dcp_keys.h"
#include "dialects/hf/dcp_settings.h"
#include "dialects/hf/full_state.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/muon_group.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::size_t kKeysShown = 3;

std::string SomeKeys(const Catalog& source) {
  std::string out;
  for (std::size_t i = 0; i < std::min(source.entries.size(), kKeysShown); ++i) out += fmt::format("{}`{}`", i == 0 ? "" : ", ", Printable(source.entries[i].name));
  return out.empty() ? "no tensor" : out;
}

/// Megatron's own module names: another dialect, whatever wrote the directory.
Status RefuseMegatronNames(const Catalog& source) {
  const auto megatron = std::ranges::find_if(source.entries, [](const Entry& entry) {
    const std::string_view name = entry.name;
    return name.find("decoder.layers.") != std::string_view::npos && name.find(".self_attention.") != std::string_view::npos;
  });
  if (megatron == source.entries.end()) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, "a Megatron model in a plain DCP directory that is none of its trainer's (no `checkpoint_version` beside `model`): this version does not read it")
      .WithPath(source.root)
      .WithTensor(megatron->name)
      .WithExpected("Hugging Face names")
      .WithHint("load it with Megatron and save it with `--ckpt-format torch_dist`");
}

class View {
 public:
  View(const Catalog& source, const ReadOptions& options, bool no_optim) : source_(source), options_(options), no_optim_(no_optim) {}

  Result<HubState> Read() {
    CROSSDOCK_RETURN_IF_ERROR(RefuseMegatronNames(source_));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> hub_names, NamesOfFamily(source_, options_));
    const NameIndex names(hub_names);
    CROSSDOCK_RETURN_IF_ERROR(ChoosePrefix(names));
    sgd_ = HasSgd(source_);
    Rename(names);
    CROSSDOCK_RETURN_IF_ERROR(FillObjects());
    CROSSDOCK_ASSIGN_OR_RETURN(HubState hub, ReadFullState(view_, options_));
    CROSSDOCK_RETURN_IF_ERROR(BackToSource(&hub));
    CROSSDOCK_RETURN_IF_ERROR(Complete(names, &hub));
    return hub;
  }

 private:
  /// The level of the state dict that holds the model: where most names of the family stand.
  Status ChoosePrefix(const NameIndex& names) {
    for (const bool shortened : {false, true}) {
      std::map<std::string, std::int64_t> counts;
      for (const Entry& entry : source_.entries) {
        if (ParseStateKey(entry.name)) continue;
        if (const auto found = names.Find(entry.name, shortened)) ++counts[found->prefix];
      }
      if (counts.empty()) continue;
      shortened_ = shortened;
      const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
      const auto rivals = std::ranges::count_if(counts, [&](const auto& c) { return c.second == most->second; });
      if (rivals > 1) return Ambiguous(counts, most->second);
      prefix_ = most->first;
      return OkStatus();
    }
    const bool optimizer = std::ranges::any_of(source_.entries, [](const Entry& entry) { return ParseStateKey(entry.name).has_value(); });
    return MakeError(ErrorCode::kIncomplete, optimizer ? "the directory holds optimizer state but no weights"
                                                       : "no key of the checkpoint is a weight of the family that the configuration names")
        .WithPath(source_.root)
        .WithExpected("keys that end in Hugging Face names, e.g. `model." + std::string(kEmbedding) + "`")
        .WithFound(SomeKeys(source_))
        .WithHint(optimizer ? "give the directory of the model; save both in one directory to carry the optimizer state"
                            : "another family's rules: --family or --rules; a model under names of its own must be saved under Hugging Face names");
  }

  Status Ambiguous(const std::map<std::string, std::int64_t>& counts, std::int64_t most) const {
    std::string found;
    for (const auto& [prefix, count] : counts) {
      if (count == most) found += fmt::format("{}`{}`", found.empty() ? "" : ", ", Printable(prefix));
    }
    return MakeError(ErrorCode::kUnsupported, "several sets of weights lie in one checkpoint").WithPath(source_.root)
        .WithExpected("one set").WithFound("the same names under " + found)
        .WithHint("save one of them alone");
  }

  static Slot SlotOf(StateKind kind) { return kind == StateKind::kMomentum ? Slot::kMuonMu : kind == StateKind::kMu ? Slot::kAdamMu : Slot::kAdamNu; }

  std::string NewName(const Entry& entry, const NameIndex& names) {
    if (const auto state = ParseStateKey(entry.name); state && state->kind != StateKind::kStep && !(sgd_ && state->kind == StateKind::kMomentum)) {
      if (OnlyDigits(state->name)) ++by_number_;
      if (const auto found = names.Find(state->name, true)) {
        ++states_;
        state_prefix_ = state->prefix;
        return FullStateName(SlotOf(state->kind), found->hub);
      }
      return {};
    }
    const auto found = names.Find(entry.name, shortened_);
    if (!found || found->prefix != prefix_) return {};
    if (entry.name != prefix_ + found->hub && !found->shortened) ++wrapped_;
    if (found->shortened) ++unprefixed_;
    return FullStateName(Slot::kParam, found->hub);
  }

  /// What is no weight and no state although it is a tensor: counters, random states, state that is left on purpose.
  std::string_view ReasonToLeave(const Entry& entry, const NameIndex& names) const {
    const auto state = ParseStateKey(entry.name);
    if (no_optim_ && (state || names.IsStateOfParameter(entry.name))) return "left behind by --no-optim";
    if (state && OnlyDigits(state->name)) return "optimizer state by number: which parameter it belongs to is not stored";
    const bool below_model = entry.name.starts_with(prefix_) && !prefix_.empty();
    if (!below_model && (!IsFloating(entry.dtype) || entry.shape.empty())) return "neither weight nor optimizer state (random state, counters)";
    return {};
  }

  void Rename(const NameIndex& names) {
    std::vector<std::pair<std::string, std::int32_t>> named;
    for (std::size_t i = 0; i < source_.entries.size(); ++i) {
      const Entry& entry = source_.entries[i];
      std::string name = NewName(entry, names);
      if (name.empty()) {
        if (const std::string_view reason = ReasonToLeave(entry, names); !reason.empty()) {
          const auto bytes = ByteSize(entry.dtype, entry.shape);
          AddLeftOut(&left_out_, entry.name, std::string(reason), bytes ? *bytes : 0);
          continue;
        }
        name = entry.name;
      }
      named.emplace_back(std::move(name), static_cast<std::int32_t>(i));
    }
    std::ranges::sort(named);
    for (auto& [name, index] : named) {
      const Entry& entry = source_.entries[static_cast<std::size_t>(index)];
      view_.entries.push_back({name, Slot::kParam, entry.dtype, entry.shape, {}});
      origin_.push_back(index);
    }
  }

  Status FillObjects() {
    const auto twice = std::ranges::adjacent_find(view_.entries, {}, &Entry::name);
    if (twice != view_.entries.end()) {
      return MakeError(ErrorCode::kUnsupported, "two keys of the checkpoint mean the same tensor").WithPath(source_.root).WithTensor(twice->name)
          .WithHint("two optimizers or two copies of the model lie in one directory: save one of them alone");
    }
    view_.format = source_.format;
    view_.root = source_.root;
    view_.notices = source_.notices;
    view_.side_files = source_.side_files;
    if (const auto config = source_.objects.find("config.json"); config != source_.objects.end()) view_.objects["config.json"] = config->second;
    Value metadata = Value::MakeDict();
    metadata.Set("format", Value(kFullStateFormat));
    view_.objects["__metadata__"] = std::move(metadata);
    return OkStatus();
  }

  /// Leaves count entries of the renamed catalog; the source's own are meant.
  Status BackToSource(HubState* hub) const {
    for (HubTensor& tensor : hub->tensors) {
      CROSSDOCK_ASSIGN_OR_RETURN(tensor.expr, expr::Substitute(tensor.expr, [&](int leaf) -> Result<expr::Expr> {
        const std::int32_t index = origin_[static_cast<std::size_t>(leaf)];
        const Entry& entry = source_.entries[static_cast<std::size_t>(index)];
        return expr::Leaf(index, entry.dtype, entry.shape);
      }));
    }
    for (LeftOut& left : hub->left_out) {
      if (const std::int32_t at = view_.Find(left.name); at >= 0) left.name = source_.entries[static_cast<std::size_t>(origin_[static_cast<std::size_t>(at)])].name;
    }
    for (HubCopy& copy : hub->copies) {
      for (std::int32_t* entry : {&copy.entry, &copy.original}) {
        if (*entry >= 0) *entry = origin_[static_cast<std::size_t>(*entry)];
      }
    }
    if (hub->tied) {
      hub->tied = TiedPair{origin_[static_cast<std::size_t>(hub->tied->embedding)], origin_[static_cast<std::size_t>(hub->tied->head)]};
    }
    return OkStatus();
  }

  Status Complete(const NameIndex& names, HubState* hub) {
    hub->counters = ReadRootCounters(source_);
    if (!hub->counters.step) hub->counters.step = source_.step;
    if (!no_optim_) {
      CROSSDOCK_ASSIGN_OR_RETURN(hub->counters.adam_count, ReadAdamStep(source_));
      if (states_ == 0) hub->counters.adam_count.reset();
      if (ValueList groups = ReadParamGroups(source_, names); !groups.empty() && states_ > 0) {
        hub->extras.Set("param_groups", Value::MakeList(std::move(groups)));
        hub->extras_words = "torch";
      }
      if (hub->optimizer == "muon") CompleteMuon(hub);
      if (by_number_ > 0) {
        hub->optimizer_refusal = "it is stored by the parameters' numbers (optimizer.state_dict()), not by their names; save it with torch.distributed.checkpoint.state_dict.get_state_dict";
      }
    }
    for (LeftOut& left : left_out_) hub->left_out.push_back(std::move(left));
    LeaveObjects(hub);
    hub->notices.push_back(fmt::format("the weights are taken to be the keys {}{}", prefix_.empty() ? "at the root" : fmt::format("under `{}`", Printable(prefix_)),
                                       states_ == 0 ? std::string() : fmt::format(", their optimizer state those under `{}state.`", Printable(state_prefix_))));
    if (wrapped_ > 0) hub->notices.push_back(fmt::format("{} names hold a wrapper's word (`module`, `_orig_mod`, ...), which is removed", wrapped_));
    if (unprefixed_ > 0) hub->notices.push_back(fmt::format("{} names lack the prefix `model.`, which is added", unprefixed_));
    hub->load_hint = "torch.distributed.checkpoint.load(state_dict, checkpoint_id=\"" + Printable(source_.root, 4096) + "\")";
    return OkStatus();
  }

  /// torch.optim.Muon averages, `buf.lerp_(grad, 1 - momentum)`, and counts no steps; others that call their state the same do either.
  void CompleteMuon(HubState* hub) const {
    const Value* groups = hub->extras.Find("param_groups");
    const ValueList* list = groups == nullptr ? nullptr : groups->as_sequence();
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const Value& group = (*list)[i];
      if (!IsMuonGroup(group)) continue;
      if (group.Find("ns_coefficients") != nullptr) hub->muon_momentum = "ema";
      hub->muon_beta = group.GetFloat("momentum");
    }
    hub->counters.muon_count = hub->counters.adam_count;
    hub->notices.push_back("PyTorch's Muon counts no steps; it steps together with Adam, whose count is taken");
  }

  /// Bytes items that no counter and no setting came from: schedulers, data loaders, random states.
  void LeaveObjects(HubState* hub) const {
    for (const ObjectRef& ref : source_.object_refs) {
      const auto state = ParseStateKey(ref.name);
      const bool used = ParseGroupKey(ref.name) || (state && state->kind == StateKind::kStep) || IsRootCounter(ref.name);
      if (!used) AddLeftOut(&hub->left_out, ref.name, "an object of the training script", ref.bytes.length);
    }
  }

  const Catalog& source_;
  const ReadOptions& options_;
  bool no_optim_;
  bool sgd_ = false;      // momentum_buffer is SGD's, a plain sum of gradients and no state of Muon's
  std::string prefix_, state_prefix_;
  bool shortened_ = false;
  std::int64_t wrapped_ = 0, unprefixed_ = 0, states_ = 0, by_number_ = 0;
  Catalog view_;
  std::vector<std::int32_t> origin_;   // of each entry of view_: its index in the source
  std::vector<LeftOut> left_out_;
};

}  // namespace

Result<HubState> ReadDcp(const Catalog& source, const ReadOptions& options, bool no_optim) {
  return View(source, options, no_optim).Read();
}

}  // namespace crossdock::dialects::hf
