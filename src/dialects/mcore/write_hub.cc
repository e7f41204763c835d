// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dialects/hf/hub_target.h"
#include "dialects/hf/rope.h"
#include "dialects/mcore/common_state.h"
#include "dialects/mcore/config_source.h"
#include "dialects/mcore/extra_state.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/load_line.h"
#include "dialects/mcore/mcore_dialect.h"
#include "dialects/mcore/random_state.h"
#include "dialects/mcore/target_tensors.h"
#include "dialects/mcore/target_unit.h"
#include "dialects/mcore/tensor_parallel.h"
#include "family/text_config.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::dialects::mcore {
namespace {

HeadCounts CountsOf(const HubState& hub) {
  const auto letter = [&](const char* name) {
    const auto found = hub.model.letters.find(name);
    return found == hub.model.letters.end() ? std::int64_t{0} : found->second;
  };
  return {letter("q"), letter("k"), letter("f")};
}

/// Whole experts go to the expert ranks; each expert's rows to its tensor-parallel ranks.
Status CheckExpertParallel(const HubState& hub, const layout::ParallelLayout& layout) {
  const auto experts = hub.model.letters.find("experts");
  if (experts == hub.model.letters.end()) {
    if (layout.ep == 1 && (layout.etp == 0 || layout.etp == layout.tp)) return OkStatus();
    return MakeError(ErrorCode::kUsage, fmt::format("the family {} has no experts to divide", hub.family->name))
        .WithExpected("no --ep and --etp")
        .WithFound(fmt::format("--ep {}, --etp {}", layout.ep, layout.expert_tp()));
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckExpertsDivide(experts->second, layout.ep));
  const auto rows = hub.model.letters.find("m");
  if (rows != hub.model.letters.end() && rows->second % layout.expert_tp() != 0) {
    return MakeError(ErrorCode::kUsage, "the rows of an expert do not divide among its tensor-parallel ranks")
        .WithExpected(fmt::format("--etp to be a divisor of {}", rows->second))
        .WithFound(fmt::format("--etp {}", layout.expert_tp()));
  }
  return OkStatus();
}

/// A gated delta net is divided by whole key heads; LoongForge holds it whole on every rank.
Status CheckGatedDelta(const HubState& hub, const std::string& consumer, int tp) {
  const auto heads = hub.model.letters.find("nk");
  if (heads == hub.model.letters.end() || consumer == "loongforge" || heads->second % tp == 0) return OkStatus();
  return MakeError(ErrorCode::kUsage, "the key heads of the gated delta net do not divide among the tensor-parallel ranks")
      .WithExpected(fmt::format("--tp to be a divisor of {}", heads->second))
      .WithFound(fmt::format("--tp {}", tp));
}

/// As for the letters of a family; more would make a plan of rows that nobody stores.
constexpr std::int64_t kMaxRows = std::int64_t{1} << 31U;

struct Vocabulary {
  std::int64_t size = 0;
  std::int64_t padded = 0;
  bool kept = false;  ///< as many rows as the source stores
};

/// Megatron takes a stored padded_vocab_size as it is, if it divides by TP: the run's own number then stays, unless Megatron computed
/// it for another tensor-parallel size. A run of the target's size computes its own.
bool KeepsPadding(const HubState& hub, std::int64_t size, const TargetOptions& options) {
  if (!hub.padded_vocab || options.vocab_divisor || *hub.padded_vocab < size || *hub.padded_vocab % options.layout.tp != 0) return false;
  const std::int64_t tp = hub.layout.GetInt("tp").value_or(options.layout.tp);
  return tp == options.layout.tp || !WereComputed(*hub.padded_vocab, size, VocabDivisorOf(hub, options), tp);
}

Result<Vocabulary> PadVocabulary(const HubState& hub, const TargetOptions& options) {
  const auto letter = hub.model.letters.find("v");
  Vocabulary vocabulary{letter == hub.model.letters.end() ? 0 : letter->second, 0};
  if (options.padded_vocab) {
    vocabulary.padded = *options.padded_vocab;
  } else if (KeepsPadding(hub, vocabulary.size, options)) {
    vocabulary.padded = *hub.padded_vocab;
    vocabulary.kept = true;
  } else {
    const std::int64_t divisor = VocabDivisorOf(hub, options);
    const std::optional<std::int64_t> padded = PaddedVocabulary(vocabulary.size, divisor, options.layout.tp);
    if (!padded) {
      return MakeError(ErrorCode::kUsage, "--make-vocab-size-divisible-by makes no sense").WithFound(fmt::format("{}", divisor));
    }
    vocabulary.padded = *padded;
  }
  if (vocabulary.padded > kMaxRows) {
    return MakeError(ErrorCode::kUsage, "the padded vocabulary is larger than any model's")
        .WithExpected(fmt::format("at most {} rows", kMaxRows))
        .WithFound(fmt::format("{}", vocabulary.padded));
  }
  if (vocabulary.padded < vocabulary.size) {
    return MakeError(ErrorCode::kUsage, "the padded vocabulary is smaller than the vocabulary")
        .WithExpected(fmt::format("--padded-vocab-size of at least {}", vocabulary.size))
        .WithFound(fmt::format("{}", vocabulary.padded));
  }
  if (vocabulary.padded % options.layout.tp != 0) {
    return MakeError(ErrorCode::kUsage, "the padded vocabulary does not divide by the tensor-parallel size")
        .WithExpected(fmt::format("a multiple of {}", options.layout.tp))
        .WithFound(fmt::format("{}", vocabulary.padded));
  }
  return vocabulary;
}

/// Whose names the family's rules give: Megatron-LM's own, or those of what builds its larger models.
Result<std::string> ChooseConsumer(const HubState& hub, const TargetOptions& options) {
  const std::vector<std::string> own = {"megatron-lm"};
  const std::vector<std::string>& known = hub.family->consumers.empty() ? own : hub.family->consumers;
  if (options.consumer.empty()) return known.front();
  if (std::find(known.begin(), known.end(), options.consumer) != known.end()) return options.consumer;
  // Megatron-Bridge builds Megatron-Core's own modules where it has none of its own.
  if (options.consumer == kBridgeConsumer && std::find(known.begin(), known.end(), own.front()) != known.end()) return own.front();
  return MakeError(ErrorCode::kUnsupported, fmt::format("this version does not write Megatron checkpoints of the family {} for {}", hub.family->name, Printable(options.consumer)))
      .WithExpected(fmt::format("--for {}", fmt::join(known, " or ")));
}

/// A tower is cut as its trainer cuts it, and only where that says how its optimizer state is called is that written.
Status CheckTowerLayout(const HubState& hub, const family::Binding& binding, const TargetOptions& options, const std::string& consumer) {
  const layout::ParallelLayout& layout = options.layout;
  const bool tower = std::ranges::any_of(binding.tensors, [](const family::DialectTensor& tensor) { return IsVision(tensor.name); });
  if (layout.encoder_tp > 0 && !tower) {
    return MakeError(ErrorCode::kUsage, fmt::format("`--encoder-tp` divides a vision tower, which the family {} does not have", hub.family->name)).WithHint("leave --encoder-tp out");
  }
  if (consumer != "loongforge") {
    if (layout.encoder_tp == 0 || layout.encoder_tp == layout.tp) return OkStatus();
    return MakeError(ErrorCode::kUnsupported, fmt::format("{} cuts a vision tower as it cuts the decoder", consumer))
        .WithExpected(fmt::format("--encoder-tp {}", layout.tp))
        .WithFound(fmt::format("--encoder-tp {}", layout.encoder_tp));
  }
  if (layout.tp % layout.tower_tp() != 0) {
    return MakeError(ErrorCode::kUsage, "LoongForge hands the parts of a vision tower to the decoder's tensor-parallel ranks in turn")
        .WithExpected(fmt::format("--encoder-tp to be a divisor of --tp {}", layout.tp))
        .WithFound(fmt::format("--encoder-tp {}", layout.encoder_tp));
  }
  const auto heads = hub.model.letters.find("vq");
  if (heads != hub.model.letters.end() && heads->second % layout.tower_tp() != 0) {
    return MakeError(ErrorCode::kUsage, fmt::format("the {} heads of the vision tower do not divide among {} ranks", heads->second, layout.tower_tp()))
        .WithHint("choose another --encoder-tp");
  }
  const bool state = std::ranges::any_of(hub.tensors, [](const HubTensor& tensor) { return tensor.slot != Slot::kParam && tensor.slot != Slot::kMaster; });
  if (!state) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, "the optimizer state of LoongForge's vision-language models is not written by this version")
      .WithHint("--no-optim leaves it behind; --for megatron-bridge holds it, where the family has that form");
}

}  // namespace

Result<TargetState> WriteHub(const HubState& hub, const TargetOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string consumer, ChooseConsumer(hub, options));
  CROSSDOCK_RETURN_IF_ERROR(hf::CheckOptimizerCarried(hub));
  CROSSDOCK_RETURN_IF_ERROR(CheckTensorParallel(CountsOf(hub), options.layout.tp));
  CROSSDOCK_RETURN_IF_ERROR(CheckExpertParallel(hub, options.layout));
  CROSSDOCK_RETURN_IF_ERROR(CheckGatedDelta(hub, consumer, options.layout.tp));
  const auto layers = hub.model.letters.find("layers");
  if (layers == hub.model.letters.end()) return MakeError(ErrorCode::kUsage, fmt::format("the family {} has no letter named layers", hub.family->name));
  CROSSDOCK_ASSIGN_OR_RETURN(const layout::StageMap stages, layout::MakeStageMap(options.layout, layers->second));
  CROSSDOCK_ASSIGN_OR_RETURN(const Vocabulary vocabulary, PadVocabulary(hub, options));

  family::BindOptions bind;
  bind.dialect = "mcore";
  bind.stacked_layers = hub.model.Homogeneous() && !hub.model.kinds.contains("full");  // as the run will, whose moe_layer_freq or linear_attention_freq is then a list
  bind.padded_vocab = vocabulary.padded;
  bind.consumer = consumer;
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding binding, family::Bind(*hub.family, hub.model, bind));
  CROSSDOCK_RETURN_IF_ERROR(CheckTowerLayout(hub, binding, options, consumer));
  CROSSDOCK_ASSIGN_OR_RETURN(TargetTensors tensors, MakeTargetTensors(hub, binding, stages, options));

  TargetState target;
  target.stages = stages;
  CROSSDOCK_ASSIGN_OR_RETURN(const TargetUnit unit, ChooseUnit(options, hub.counters.step));
  CROSSDOCK_ASSIGN_OR_RETURN(CommonResult common, MakeCommon({&hub, &options, &stages, tensors.params_dtype, vocabulary.size, vocabulary.padded, tensors.with_optimizer, tensors.with_muon, unit.iteration}));
  target.unit_name = unit.name;
  target.notices = std::move(tensors.notices);
  if (hub.config.words == "hf" && hf::ReadRope(family::TextConfig(*hub.family, hub.config).values).type == "dynamic") {
    target.notices.push_back("the model's rotary scaling is \"dynamic\": Megatron has none, and its plain frequencies are the model's own up to max_position_embeddings");
  }
  if (consumer != "megatron-lm") target.notices.push_back(fmt::format("tensor names and cuts are those of {} (--for)", consumer));
  if (std::optional<std::string> notice = GatedAttentionNotice(*hub.family, consumer)) target.notices.push_back(*std::move(notice));
  for (std::string& notice : common.notices) target.notices.push_back(std::move(notice));
  if (vocabulary.padded > vocabulary.size) {
    target.notices.push_back(vocabulary.kept
                                 ? fmt::format("the vocabulary keeps the source's {} rows; those from {} on are padding and become zeros", vocabulary.padded, vocabulary.size)
                                 : fmt::format("the vocabulary is padded from {} to {} rows with zeros", vocabulary.size, vocabulary.padded));
  }
  if (unit.release && tensors.with_optimizer) {
    target.notices.push_back("Megatron loads no optimizer state from a directory called release: give --iteration N to continue with it");
  }
  target.left_out = std::move(tensors.left_out);
  Catalog& catalog = target.catalog;
  catalog.format = "dcp";
  catalog.step = unit.iteration;
  catalog.entries = std::move(tensors.entries);
  target.exprs = std::move(tensors.exprs);
  catalog.objects = EmptyExtraStates(catalog.entries, layers->second);
  PlaceRandomStates(options, &target);
  if (target.random_states > 0) {
    common.args.Set("no_save_rng", Value(false));
    common.common.Set("args", MakeNamespace(common.args));
  }
  KeepDTypes(tensors.kept_dtypes, &common.common);
  catalog.objects["common"] = std::move(common.common);
  catalog.objects["metadata.json"] = BackendMetadata();
  CROSSDOCK_RETURN_IF_ERROR(hf::AddHfFolder(hub, options, tensors.params_dtype, &target));
  catalog.side_files.push_back(Tracker(unit));
  target.load_line = {LoadLine("TARGET", "TARGET/" + target.unit_name, StoredStateOf(catalog, unit.release))};
  return target;
}

}  // namespace crossdock::dialects::mcore
