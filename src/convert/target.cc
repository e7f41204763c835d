// SPDX-License-Identifier: Apache-2.0
#include "convert/target.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <thread>

#include "base/check.h"
#include "convert/config_family.h"
#include "convert/convert_source.h"
#include "convert/fp8_options.h"
#include "convert/kinds.h"
#include "convert/layout_options.h"
#include "convert/paths.h"
#include "convert/tunix_target.h"
#include "crossdock/nearest.h"
#include "dialects/hf/dcp_keys.h"
#include "dialects/hf/full_state.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/maxtext/maxtext_dialect.h"
#include "dialects/maxtext/state_tree.h"
#include "dialects/mcore/args.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/legacy_names.h"
#include "dialects/mcore/legacy_target.h"
#include "dialects/mcore/mcore_dialect.h"
#include "dialects/mcore/random_state.h"
#include "dialects/mcore/target_unit.h"
#include "dialects/tunix/carry.h"
#include "dialects/tunix/write_step.h"
#include "formats/dcp/dcp.h"
#include "formats/mp_rank/mp_rank.h"
#include "formats/orbax/orbax.h"
#include "formats/safetensors/safetensors.h"
#include "plan/planner.h"

namespace crossdock::convert {
namespace {

using formats::Kind;

/// Who may be named by --for. Those that no version of ours writes for are refused by name.
struct ConsumerSpec {
  std::string_view name;
  bool written_for;
};
constexpr std::array kConsumers = {ConsumerSpec{"megatron-lm", true},    ConsumerSpec{"megatron-bridge", true}, ConsumerSpec{"loongforge", false},
                                   ConsumerSpec{"maxtext", false},       ConsumerSpec{"maxtext-linen", false},   ConsumerSpec{"ling3", true}};
constexpr std::int64_t kOldestMegatronMinor = 12;  ///< 0.12: the oldest that the tests run

/// "0.19" and "0.19.2" as {0, 19}; nothing for what is no version.
std::optional<std::pair<std::int64_t, std::int64_t>> ParseVersion(std::string_view text) {
  std::array<std::int64_t, 4> numbers{};
  std::size_t count = 0;
  for (const char* at = text.data(); count < numbers.size(); ++at) {
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), numbers[count]);
    if (error != std::errc() || numbers[count] < 0) return std::nullopt;
    ++count;
    at = end;
    if (at == text.data() + text.size()) return std::pair(numbers[0], count > 1 ? numbers[1] : -1);
    if (*at != '.') return std::nullopt;
  }
  return std::nullopt;
}

Status FillConsumer(const Source& source, Kind to, const ConvertOptions& options, dialects::TargetOptions* out) {
  if (formats::IsOrbax(to)) {  // the dialect knows whom it writes for
    const std::size_t version = options.consumer.find('@');
    out->consumer = options.consumer.substr(0, version);
    if (version != std::string::npos) out->consumer_version = options.consumer.substr(version + 1);
    return OkStatus();
  }
  const std::vector<std::string> none;
  const std::vector<std::string>& own = source.hub.family != nullptr ? source.hub.family->consumers : none;
  const std::size_t at = options.consumer.find('@');
  out->consumer = options.consumer.substr(0, at);
  if (at != std::string::npos) out->consumer_version = options.consumer.substr(at + 1);
  if (out->consumer.empty() && at == std::string::npos && !WritesMegatron(to)) return OkStatus();
  if (out->consumer.empty() && at == std::string::npos) {  // as the source has it, else the family's first
    out->consumer = own.empty() ? "megatron-lm" : source.hub.layout.GetString("names").value_or(own.front());
    if (!own.empty() && std::ranges::find(own, out->consumer) == own.end()) out->consumer = own.front();
  }
  const auto refuse = [&](ErrorCode code, std::string message) {
    return MakeError(code, std::move(message))
        .WithExpected(own.empty() ? "`megatron-lm`, or with a version `megatron-lm@0.19`, or `megatron-bridge`" : fmt::format("`{}`", fmt::join(own, "` or `")))
        .WithFound(fmt::format("`{}`", Printable(options.consumer)));
  };
  const auto* spec = std::ranges::find(kConsumers, std::string_view(out->consumer), &ConsumerSpec::name);
  if (spec == kConsumers.end()) {
    std::vector<std::string_view> known;
    for (const ConsumerSpec& one : kConsumers) known.push_back(one.name);
    return refuse(ErrorCode::kUsage, "`--for` takes a consumer, with an optional @VERSION").WithHint(DidYouMean(out->consumer, known));
  }
  if (!WritesMegatron(to) && out->consumer != dialects::hf::kLingConsumer) {
    return MakeError(ErrorCode::kUsage, fmt::format("`--for {}` means nothing for a target of format `{}`", Printable(options.consumer), formats::KindName(to)))
        .WithHint("leave it out: it names what loads a Megatron or MaxText checkpoint");
  }
  const bool bridge = out->consumer == dialects::mcore::kBridgeConsumer;
  const bool named = std::ranges::find(own, out->consumer) != own.end();
  if (!spec->written_for && !named) return refuse(ErrorCode::kUnsupported, fmt::format("`--for {}` is not available in this version", out->consumer));
  if (at == std::string::npos) return OkStatus();
  const auto version = ParseVersion(out->consumer_version);
  if (!version) return refuse(ErrorCode::kUsage, "`--for` takes a consumer, with an optional @VERSION");
  if (named || bridge || out->consumer == dialects::hf::kLingConsumer) return refuse(ErrorCode::kUnsupported, fmt::format("versions of {} are not told apart", out->consumer)).WithHint("leave the version out");
  // What is written for Megatron-LM is one form for all its versions since then: common.pt and its copy in the data files.
  if (*version >= std::pair<std::int64_t, std::int64_t>(0, kOldestMegatronMinor)) return OkStatus();
  return refuse(ErrorCode::kUnsupported, fmt::format("Megatron-LM before 0.{} is not written for", kOldestMegatronMinor))
      .WithHint(fmt::format("leave the version out: the result suits 0.{} and all later ones", kOldestMegatronMinor));
}

/// A pattern that matches nothing is a typing error, and would let a cast touch what must stay.
Status CheckKept(const Source& source, const ConvertOptions& options) {
  if (!options.keep_dtype.empty() && !options.dtype) {
    return MakeError(ErrorCode::kUsage, "`--keep-dtype` names what a cast leaves alone, and nothing is cast")
        .WithFound(fmt::format("`--keep-dtype {}` without `--dtype`", Printable(options.keep_dtype.front())))
        .WithHint("add `--dtype bf16`, `fp16` or `fp32`, or leave `--keep-dtype` out: every tensor keeps its dtype then");
  }
  for (const std::string& pattern : options.keep_dtype) {
    const auto matches = [&](const dialects::HubTensor& t) { return ::fnmatch(pattern.c_str(), t.name.c_str(), 0) == 0; };
    if (std::ranges::any_of(source.hub.tensors, matches)) continue;
    return MakeError(ErrorCode::kUsage, "`--keep-dtype` matches no tensor")
        .WithFound(fmt::format("`{}`", Printable(pattern)))
        .WithHint("patterns are matched against whole Hugging Face names, e.g. `--keep-dtype '*norm*'`");
  }
  return OkStatus();
}

/// What a MaxText source was told for itself is no argument of the target.
bool IsForSource(const Source& source, const std::string& argument) { return formats::IsOrbax(source.found.kind) && (argument == "rope_type" || (argument == "lora_alpha" && !source.also_read.empty())); }

/// What a conversion of Muon's momentum was told, and no target but Megatron's and PyTorch's stores.
bool IsForMomentum(const Source& source, Kind to, const std::string& argument) { return source.momentum && !WritesMegatron(to) && to != Kind::kDcp && argument == "muon_momentum"; }

Result<dialects::TargetOptions> MakeTargetOptions(const Source& source, Kind to, const ConvertOptions& options) {
  dialects::TargetOptions out;
  out.layout = LayoutOf(options.layout);
  if (options.dtype) out.dtype = DTypeOf(*options.dtype);
  CROSSDOCK_RETURN_IF_ERROR(CheckKept(source, options));
  out.keep_dtype = options.keep_dtype;
  CROSSDOCK_RETURN_IF_ERROR(FillConsumer(source, to, options, &out));
  out.iteration = options.iteration;
  out.release = options.release;
  out.vocab_divisor = options.vocab_divisor;
  out.padded_vocab = options.padded_vocab;
  for (const auto& [key, value] : options.set_args) {
    if (!IsForSource(source, key) && !IsForMomentum(source, to, key)) out.set_args[key] = value;
  }
  if (formats::IsOrbax(to)) {
    // A trainer goes on with the layers that the model has.
    const bool as_source = source.tunix.has_value() || (to == Kind::kTunix && source.found.kind == Kind::kMaxText);
    out.scan_layers = options.scan_layers.value_or(!as_source || source.hub.layout.GetString("layers") == "scanned");
    out.scan_axis = options.scan_axis.value_or(1);
    out.zstd_level = options.zstd_level.value_or(1);
    if (options.opt_type) out.set_args["opt_type"] = *options.opt_type == "adam" ? "adamw" : *options.opt_type;
  }
  out.max_shard_bytes = options.max_shard_bytes;
  out.params_from_master = options.params_from == "master";
  out.no_rng = options.no_rng;
  out.random = source.hub.random;
  if (IsMegatron(source.found.kind) && !options.no_rng && (WritesMegatron(to) || to == Kind::kFullState)) {
    out.random = dialects::mcore::ReadRandomStates(source.seen(), [&](const ObjectRef& ref) { return source.reader->LoadObject(ref); });
  }
  out.experts = options.experts;
  CROSSDOCK_ASSIGN_OR_RETURN(out.fp8, Fp8OptionsOf(options, to, source.hub));
  if (source.reference) {
    // What a checkpoint of ours carries along is its own; what the user names must fit it.
    if (options.hf_template) {
      CROSSDOCK_RETURN_IF_ERROR(CheckTemplateFamily(*source.reference, source.hub, options.family.has_value() || options.rules.has_value()));
    }
    out.template_config = source.reference->config;
    out.template_order = source.reference->order;
    out.template_shapes = source.reference->shapes;
    out.template_side_files = source.reference->side_files;
  }
  return out;
}

/// --for ling3 is a form of full-state: one file.
Status CheckLing(Kind to, const ConvertOptions& options) {
  if (options.consumer != dialects::hf::kLingConsumer) return OkStatus();
  if (to != Kind::kFullState) {
    return MakeError(ErrorCode::kUsage, fmt::format("`--for ling3` means nothing for a target of format `{}`", formats::KindName(to))).WithHint("it is a form of `--to full-state`");
  }
  if (options.max_shard_bytes == ConvertOptions().max_shard_bytes) return OkStatus();
  return MakeError(ErrorCode::kUsage, "the full state that `--for ling3` asks for is one file").WithHint("leave `--max-shard-size` out");
}

/// Options that only one kind of target can honour are refused for the others: no option does nothing.
Status CheckApplies(const Source& source, Kind to, const ConvertOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(CheckLing(to, options));
  if (!options.experts.empty() && to != Kind::kHf && to != Kind::kDcp) {
    return MakeError(ErrorCode::kUsage, fmt::format("`--experts` means nothing for a target of format `{}`", formats::KindName(to)))
        .WithHint("it says how experts are stored under Hugging Face names: `--to hf` or `--to dcp`");
  }
  const bool maxtext = formats::IsOrbax(to);
  if (to == Kind::kTunix && !options.consumer.empty()) {
    return MakeError(ErrorCode::kUsage, "`--for` means nothing for a target of format `tunix`").WithHint("`--tunix-template DIR` tells which trainer is to load it");
  }
  if (to != Kind::kTunix && options.tunix_template) {
    return MakeError(ErrorCode::kUsage, fmt::format("`--tunix-template` means nothing for a target of format `{}`", formats::KindName(to))).WithHint("leave it out, or write with `--to tunix`");
  }
  const char* scans = options.scan_layers ? "`--scan-layers`" : options.scan_axis && !formats::IsOrbax(source.found.kind) ? "`--scan-axis`" : nullptr;
  if (scans == nullptr && options.opt_type) scans = "`--opt-type`";
  if (scans == nullptr && options.zstd_level) scans = "`--compression`";
  if (scans == nullptr && options.no_commit_marker) scans = "`--no-commit-marker`";
  if (scans != nullptr && !maxtext) {
    return MakeError(ErrorCode::kUsage, fmt::format("{} means nothing for a target of format `{}`", scans, formats::KindName(to)))
        .WithHint("leave it out, or write with `--to maxtext`");
  }
  if (WritesMegatron(to)) return OkStatus();
  const char* option = nullptr;
  const auto other = [&](const auto& pair) { return !IsForSource(source, pair.first) && !IsForMomentum(source, to, pair.first); };
  if (AsksForLayout(options.layout)) {
    option = "a parallel layout (`--tp`, `--pp`, ...)";
  } else if (options.iteration && !maxtext) {
    option = "`--iteration`";
  } else if (options.release) {
    option = "`--release`";
  } else if (options.padded_vocab && !maxtext) {
    option = "`--padded-vocab-size`";
  } else if (options.vocab_divisor) {
    option = "`--make-vocab-size-divisible-by`";
  } else if (std::ranges::any_of(options.set_args, other) && to != Kind::kDcp && !maxtext) {
    option = "`--set`";
  }
  if (option == nullptr) return OkStatus();
  return MakeError(ErrorCode::kUsage, fmt::format("{} means nothing for a target of format `{}`", option, formats::KindName(to)))
      .WithHint("leave it out, or write with `--to megatron`");
}

Result<dialects::TargetState> ReshardSeen(const Source& source, const dialects::TargetOptions& options) {
  if (!source.view->optimizer_refusal.empty()) {
    return MakeError(ErrorCode::kUnsupported, "the optimizer state cannot be carried: " + source.view->optimizer_refusal)
        .WithHint("leave the state behind with --no-optim");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::TargetState state, dialects::mcore::Reshard(source.seen(), options));
  for (expr::Expr& expr : state.exprs) {
    CROSSDOCK_ASSIGN_OR_RETURN(expr, source.view->OverSource(expr));
  }
  return state;
}

Result<dialects::TargetState> Arrange(const Source& source, Kind to, const ConvertOptions& options,
                                      const dialects::TargetOptions& target_options, bool reshard) {
  if (to == Kind::kTunix) return ArrangeTunix(source, options, target_options, reshard);
  if (reshard && source.tunix) return dialects::tunix::CarryToMaxText(*source.tunix, target_options, options.no_optim);
  if (reshard) return ReshardSeen(source, target_options);
  switch (to) {
    case Kind::kMegatron: return dialects::mcore::WriteHub(source.hub, target_options);
    case Kind::kFullState: return dialects::hf::WriteFullState(source.hub, target_options);
    case Kind::kDcp: return dialects::hf::WriteDcp(source.hub, target_options);
    case Kind::kMaxText: return dialects::maxtext::WriteHub(source.hub, target_options);
    default: break;
  }
  if (options.require_optim) {
    return MakeError(ErrorCode::kUnsupported, "a target of format `hf` holds no optimizer state, which `--require-optim` asks for")
        .WithHint("write `--to full-state`, `--to dcp` or `--to megatron`");
  }
  return dialects::hf::WriteHub(source.hub, target_options);
}

/// As Arrange; for the legacy form what it makes is cut into each rank's files.
Result<dialects::TargetState> ArrangeFor(const Source& source, Kind to, const ConvertOptions& options,
                                         const dialects::TargetOptions& target_options, bool reshard,
                                         const std::optional<dialects::mcore::LegacyRankPlace>& only) {
  if (to != Kind::kMegatronLegacy) return Arrange(source, to, options, target_options, reshard);
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::TargetState global, Arrange(source, Kind::kMegatron, options, target_options, reshard));
  CROSSDOCK_ASSIGN_OR_RETURN(const bool distributed, dialects::mcore::UsesDistributedOptimizer(target_options, source.seen(), global));
  return dialects::mcore::ToLegacy(std::move(global), target_options.layout, distributed, only);
}

/// A cast that loses digits was asked for with --dtype; a rule that scales or offsets loses them unasked.
/// MaxText's own checkpoints are scaled so by its converters: what is not in F32 is said in the summary, and was asked for.
Status CheckExact(const Source& source, Kind to, const dialects::TargetState& state, const ConvertOptions& options) {
  if (Allows(options, "inexact") || formats::IsOrbax(to) || formats::IsOrbax(source.found.kind)) return OkStatus();
  std::int64_t count = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < state.exprs.size(); ++i) {
    if (!expr::RoundsValues(state.exprs[i])) continue;
    // That the momentum changes its convention is asked for, or recorded by both sides; the summary says how.
    if (source.momentum && source.momentum->scaled > 0 && SlotOfTarget(state.catalog.entries[i]) == Slot::kMuonMu) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, "the rules scale or offset values: they are rounded, and the way back gives others in the last place")
      .WithTensor(state.catalog.entries[first].name)
      .WithFound(fmt::format("{} such {}", count, count == 1 ? "tensor" : "tensors"))
      .WithHint("`--allow inexact` goes on; the summary counts them");
}

/// What the dialect wants written into the headers of safetensors files.
formats::safetensors::WriterOptions SafetensorsOptions(const Source& source, Kind to, const ConvertOptions& options,
                                                       const dialects::TargetState& state) {
  const Catalog& catalog = state.catalog;
  formats::safetensors::WriterOptions out;
  out.max_shard_bytes = options.consumer == dialects::hf::kLingConsumer ? std::numeric_limits<std::int64_t>::max() : options.max_shard_bytes;
  out.order = source.reference && !source.reference->order.empty() ? source.reference->order : source.hub.order;
  if (!state.scale_of.empty()) {
    out.order = state.order;
    out.follows = state.scale_of;
    out.always_index = true;  // loaders of FP8 read scales by it
  }
  if (to == Kind::kFullState) {
    // All slots of a parameter lie together, in the order of the parameters.
    std::vector<std::string> order;
    for (const std::string& name : out.order) {
      order.push_back("param/" + name);
      for (Slot slot : kAllSlots) {
        if (slot != Slot::kParam) order.push_back(fmt::format("optim/{}/{}", SlotName(slot), name));
      }
    }
    out.order = std::move(order);
  }
  const auto metadata = catalog.objects.find("__metadata__");
  if (metadata == catalog.objects.end()) return out;
  const Value::Dict* dict = metadata->second.as_dict();
  if (dict == nullptr) return out;
  out.metadata.clear();
  for (const auto& [key, value] : dict->items) {
    if (key.as_string() != nullptr && value.as_string() != nullptr) out.metadata.emplace_back(*key.as_string(), *value.as_string());
  }
  return out;
}

/// The writer may put entries in an order of its own: expressions follow by name.
std::vector<expr::Expr> Reorder(const std::vector<std::string>& before, std::vector<expr::Expr> exprs, const Catalog& placed) {
  CROSSDOCK_CHECK(before.size() == exprs.size() && before.size() == placed.entries.size());
  std::map<std::string_view, std::size_t> at;
  for (std::size_t i = 0; i < before.size(); ++i) at[before[i]] = i;
  std::vector<expr::Expr> out;
  out.reserve(exprs.size());
  for (const Entry& entry : placed.entries) {
    const auto found = at.find(entry.name);
    CROSSDOCK_CHECK(found != at.end());
    out.push_back(exprs[found->second]);
  }
  return out;
}

}  // namespace

bool Allows(const ConvertOptions& options, std::string_view what) { return std::ranges::find(options.allow, what) != options.allow.end(); }

int ThreadCount(int wanted) {
  if (wanted > 0) return wanted;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
}

Slot SlotOfTarget(const Entry& entry) {
  if (entry.slot != Slot::kParam) return entry.slot;
  const std::string_view name = entry.name;
  if (const std::optional<Slot> slot = dialects::mcore::LegacySlot(name)) return *slot;
  if (name.starts_with("opt_state.")) return dialects::maxtext::ParseTreeKey(name).slot;
  if (name.starts_with(dialects::tunix::kStateItem)) return dialects::tunix::SlotOf(name);
  constexpr std::string_view kOptim = "optim/";
  if (name.starts_with(kOptim)) {
    const std::string_view rest = name.substr(kOptim.size());
    return SlotFromName(rest.substr(0, rest.find('/'))).value_or(Slot::kParam);
  }
  if (const auto state = dialects::hf::ParseStateKey(name)) {  // plain DCP
    return state->kind == dialects::hf::StateKind::kMu ? Slot::kAdamMu : state->kind == dialects::hf::StateKind::kNu ? Slot::kAdamNu : Slot::kParam;
  }
  if (name.find("optimizer") == std::string_view::npos) return Slot::kParam;  // nearly every name: it is not taken apart
  return dialects::mcore::ParseTensorKey(name).slot.value_or(Slot::kParam);
}

bool IsVocabularyKey(std::string_view key) { return key == "embedding.word_embeddings.weight" || key == "output_layer.weight"; }

bool VocabularyDivides(const Catalog& catalog, int tp) {
  return std::ranges::all_of(catalog.entries, [&](const Entry& entry) {
    const bool rows = IsVocabularyKey(dialects::mcore::WithinLanguageModel(entry.name));
    return !rows || entry.shape.empty() || entry.shape[0] % tp == 0;
  });
}

namespace {

/// A run whose experts are divided keeps a second optimizer for them, and the common state says so: another number of them is
/// written anew, by the family's rules.
bool KeepsOptimizers(const Source& source, const ConvertOptions& options) {
  if (source.hub.optimizer.empty() || !source.hub.model.letters.contains("experts")) return true;
  return (source.hub.layout.GetInt("ep").value_or(1) > 1) == (options.layout.ep > 1);
}

/// Another consumer's names, or another division of a vision tower, are made by the family's rules.
bool KeepsTower(const Source& source, const ConvertOptions& options) {
  if (source.hub.family == nullptr || source.hub.family->consumers.empty()) return true;
  return options.layout.encoder_tp == 0 && (options.consumer.empty() || source.hub.layout.GetString("names") == options.consumer);
}

}  // namespace

namespace {

/// Nothing was asked for that changes more than the levels around the arrays.
bool CanCarry(const Source& source, const ConvertOptions& options) {
  // A wrapper around the optimizer is told by nobody but the hub.
  const auto wrapped = [](const Entry& entry) { return entry.name.starts_with("opt_state.inner_state."); };
  if (!source.tunix && std::ranges::any_of(source.reader->catalog().entries, wrapped)) return false;
  const bool as_stored = !options.scan_layers || (*options.scan_layers == (source.hub.layout.GetString("layers") == "scanned"));
  const bool named = !options.opt_type || (source.tunix && (*options.opt_type == "adam_pax") == (source.tunix->optimizer == dialects::maxtext::OptimizerKind::kAdamPax));
  return as_stored && named && !options.scan_axis && !options.dtype && !options.family && !options.rules && !options.hf_template && options.mtp == "keep" &&
         options.params_from == "model" && !options.tokenizer && !options.padded_vocab && options.set_args.empty() && options.muon_momentum.empty() &&
         !options.consumer.starts_with("maxtext-linen");
}

}  // namespace

namespace {

/// What a legacy target alone can choose; any other argument is set, or refused, by the family's rules.
bool SetsOnlyTheForm(Kind to, const ConvertOptions& options) {
  return std::ranges::all_of(options.set_args, [&](const auto& pair) { return to == Kind::kMegatronLegacy && pair.first == "use_distributed_optimizer"; });
}

/// Megatron-Bridge stores no arguments: where a family is known, its rules make them of the model.
bool StoresArguments(const Source& source) {
  if (source.hub.family == nullptr) return true;  // nothing else carries it
  const auto stored = dialects::mcore::ReadStoredArgs(source.seen());
  return stored && stored->origin != dialects::mcore::kRunConfig;
}

}  // namespace

bool CanReshard(const Source& source, Kind to, const ConvertOptions& options) {
  const bool levels_alone = source.tunix ? formats::IsOrbax(to) : source.found.kind == Kind::kMaxText && to == Kind::kTunix;
  if (source.tunix || levels_alone) return levels_alone && CanCarry(source, options);
  return IsMegatron(source.found.kind) && WritesMegatron(to) && !options.dtype && !options.family && !options.rules &&
         !options.hf_template && !options.no_optim && options.mtp == "keep" && options.params_from == "model" && !options.tokenizer &&
         !options.padded_vocab && !options.vocab_divisor && KeepsTower(source, options) &&
         VocabularyDivides(source.seen(), options.layout.tp) && KeepsOptimizers(source, options) && SetsOnlyTheForm(to, options) && StoresArguments(source);
}

namespace {

/// `to`: the canonical path of what is replaced as a whole.
Status CheckTemplateApart(const Source& source, const std::string& target_root, const std::string& to) {
  if (!source.reference) return OkStatus();
  const std::string reference = Canonical(source.reference->dir);
  if ((source.reference->file_alone || !Inside(to, reference)) && !Inside(reference, to)) return OkStatus();
  return MakeError(ErrorCode::kUsage, "template and target must lie apart: nothing is ever written into a template")
      .WithPath(target_root)
      .WithFound(fmt::format("the template at `{}`", Printable(reference, 4096)))
      .WithHint("name another target");
}

}  // namespace

Status CheckApart(const Source& source, const std::string& target_root, const std::string& unit) {
  const std::string from = Canonical(source.found.path);
  const std::string to = Canonical(unit);
  const bool same_word = Canonical(source.label) == Canonical(target_root);
  const std::string other = source.also_read.empty() ? from : Canonical(source.also_read);
  if (!same_word && !Inside(to, from) && !Inside(from, to) && !Inside(to, other) && !Inside(other, to)) return CheckTemplateApart(source, target_root, to);
  return MakeError(ErrorCode::kUsage, "source and target must lie apart: nothing is ever written into a source")
      .WithPath(target_root)
      .WithFound(fmt::format("the source at `{}`", Printable(from, 4096)))
      .WithHint("name another target");
}

Status CheckReportApart(const Source& source, const std::string& report) {
  const std::string from = Canonical(source.found.path);
  if (!Inside(Canonical(report), from)) return OkStatus();
  return MakeError(ErrorCode::kUsage, "a report must lie apart from the source: nothing is ever written into a source")
      .WithPath(report)
      .WithFound(fmt::format("the source at `{}`", Printable(from, 4096)))
      .WithHint("name a file elsewhere");
}

Status CheckManifestApart(const Target& target, const std::string& manifest) {
  if (target.unit.empty() || !Inside(Canonical(manifest), Canonical(target.unit))) return OkStatus();
  return MakeError(ErrorCode::kUsage, "the manifest is written before the target is, and cannot lie in it")
      .WithPath(manifest)
      .WithFound(fmt::format("the target at `{}`", Printable(target.unit, 4096)))
      .WithHint("name a file beside the target");
}

std::vector<FileRef> Target::AllFiles() const {
  std::map<std::string, FileRef> files;
  for (const FileRef& file : placement.catalog.files) files[file.path] = file;
  for (const FileRef& file : writer->MetadataFiles()) files[file.path] = file;
  for (const SideFile& file : placement.catalog.side_files) {
    const std::int64_t size = file.bytes ? static_cast<std::int64_t>(file.bytes->size()) : file.size;
    files[file.path] = FileRef{file.path, {size, 0, 0}};
  }
  std::vector<FileRef> out;
  for (auto& [path, file] : files) out.push_back(std::move(file));
  return out;
}

Result<dialects::TargetState> ArrangeTarget(const Source& source, Kind kind, const ConvertOptions& options,
                                            const std::optional<dialects::mcore::LegacyRankPlace>& only) {
  CROSSDOCK_CHECK(!only || kind == Kind::kMegatronLegacy);
  CROSSDOCK_RETURN_IF_ERROR(CheckApplies(source, kind, options));
  if (source.hub.config.words == "maxtext" && !formats::IsOrbax(kind) && !source.reference) {
    return MakeError(ErrorCode::kIncomplete, "a MaxText checkpoint stores no configuration, which the target must have")
        .WithPath(source.found.path)
        .WithExpected("the model's config.json")
        .WithHint("give it with `--hf-template DIR`");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const dialects::TargetOptions target_options, MakeTargetOptions(source, kind, options));
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::TargetState state, ArrangeFor(source, kind, options, target_options, CanReshard(source, kind, options), only));
  CROSSDOCK_RETURN_IF_ERROR(CheckExact(source, kind, state, options));
  if (WritesMegatron(kind) && IsMegatron(source.found.kind) && !CanReshard(source, kind, options) && source.seen().objects.contains(dialects::mcore::kRunConfig)) {
    state.left_out.push_back({dialects::mcore::kRunConfig, "Megatron-Bridge's own; what it says stands in the arguments that are written", 1, 0});
  }
  return state;
}

namespace {

/// What concerns files alone: a run in memory is arranged as a legacy tree, and has none.
Status CheckFiles(Kind to, const ConvertOptions& options) {
  if (options.max_shard_bytes != ConvertOptions().max_shard_bytes && (WritesMegatron(to) || formats::IsOrbax(to))) {
    return MakeError(ErrorCode::kUsage, fmt::format("`--max-shard-size` means nothing for a target of format `{}`", formats::KindName(to)))
        .WithHint("leave it out: it divides the files of `--to hf`, `--to full-state` and `--to dcp`");
  }
  if (to != Kind::kMegatronLegacy || !options.consumer.starts_with(dialects::mcore::kBridgeConsumer)) return OkStatus();
  return MakeError(ErrorCode::kUsage, "Megatron-Bridge reads no checkpoint in the legacy form").WithFound(fmt::format("`--for {}`", Printable(options.consumer))).WithHint("write `--to megatron`");
}

}  // namespace

Result<Target> PlaceTarget(const Source& source, const ConvertOptions& options) {
  Target target;
  CROSSDOCK_ASSIGN_OR_RETURN(target.kind, ParseTargetKind(options.to));
  CROSSDOCK_RETURN_IF_ERROR(CheckFiles(target.kind, options));
  CROSSDOCK_ASSIGN_OR_RETURN(target.state, ArrangeTarget(source, target.kind, options));
  target.resharded = CanReshard(source, target.kind, options);
  target.root = options.target;
  target.unit = target.state.unit_name.empty() ? options.target : io::JoinPath(options.target, target.state.unit_name);

  Catalog& catalog = target.state.catalog;
  if (options.no_commit_marker) catalog.objects["orbax"].Set("commit_marker", Value(false));
  if (target.kind == Kind::kMegatron) {
    target.writer = formats::MakeDcpWriter();
  } else if (target.kind == Kind::kMegatronLegacy) {
    target.writer = formats::mp_rank::MakeMpRankWriter();
  } else if (target.kind == Kind::kMaxText) {
    target.writer = formats::orbax::MakeOrbaxWriter();
  } else if (target.kind == Kind::kTunix) {
    target.writer = formats::orbax::MakeOrbaxStepWriter();
  } else if (target.kind == Kind::kDcp) {
    target.writer = formats::MakeDcpWriter(formats::DcpFlavour::kPlain);
  } else {
    target.writer = formats::safetensors::MakeSafetensorsWriter(SafetensorsOptions(source, target.kind, options, target.state));
  }
  std::vector<std::string> names;
  for (const Entry& entry : catalog.entries) names.push_back(entry.name);
  CROSSDOCK_ASSIGN_OR_RETURN(target.placement, target.writer->LayOut(std::move(catalog)));
  target.exprs = Reorder(names, std::move(target.state.exprs), target.placement.catalog);

  target.threads = ThreadCount(options.threads);
  return target;
}

Result<Target> PrepareTarget(const Source& source, const ConvertOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(Target target, PlaceTarget(source, options));
  plan::PlanOptions plan_options;
  plan_options.memory = options.memory;
  plan_options.threads = target.threads;
  plan_options.contiguous_outputs = target.placement.wants_crc32;
  CROSSDOCK_ASSIGN_OR_RETURN(target.plan, plan::MakePlan(source.reader->catalog(), target.placement.catalog, target.exprs, plan_options));
  return target;
}

}  // namespace crossdock::convert
