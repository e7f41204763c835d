// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/checked_math.h"
#include "dialects/hf/hub_target.h"
#include "dialects/mcore/common_state.h"
#include "dialects/mcore/extra_state.h"
#include "dialects/mcore/load_line.h"
#include "dialects/mcore/mcore_dialect.h"
#include "dialects/mcore/target_tensors.h"
#include "dialects/mcore/target_unit.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::dialects::mcore {
namespace {

/// TP sizes that the heads, groups and the MLP's width allow. Megatron lets TP be a divisor or a multiple of the groups:
/// beyond them a row cut falls inside a group, and the global tensor stays the same.
bool TpFits(std::int64_t tp, std::int64_t q, std::int64_t k, std::int64_t f) {
  return q % tp == 0 && (k % tp == 0 || tp % k == 0) && f % tp == 0;
}

Status CheckTensorParallel(const HubState& hub, int tp) {
  if (tp < 1) return MakeError(ErrorCode::kUsage, "--tp must be at least 1").WithFound(fmt::format("{}", tp));
  const auto letter = [&](const char* name) {
    const auto found = hub.letters.find(name);
    return found == hub.letters.end() ? std::int64_t{0} : found->second;
  };
  const std::int64_t q = letter("q");
  const std::int64_t k = letter("k");
  const std::int64_t f = letter("f");
  if (q == 0 || k == 0 || f == 0 || TpFits(tp, q, k, f)) return OkStatus();
  std::vector<std::int64_t> allowed;
  for (std::int64_t t = 1; t <= q; ++t) {
    if (TpFits(t, q, k, f)) allowed.push_back(t);
  }
  return MakeError(ErrorCode::kUsage, "the model cannot be divided among that many tensor-parallel ranks")
      .WithExpected(fmt::format("--tp of {}", fmt::join(allowed, ", ")))
      .WithFound(fmt::format("--tp {} for num_attention_heads {}, num_key_value_heads {}, intermediate_size {}", tp, q, k, f));
}

struct Vocabulary {
  std::int64_t size = 0;
  std::int64_t padded = 0;
};

Result<Vocabulary> PadVocabulary(const HubState& hub, const TargetOptions& options) {
  const auto letter = hub.letters.find("v");
  Vocabulary vocabulary{letter == hub.letters.end() ? 0 : letter->second, 0};
  if (options.padded_vocab) {
    vocabulary.padded = *options.padded_vocab;
  } else {
    const std::optional<std::int64_t> unit = CheckedMul(options.vocab_divisor, options.layout.tp);
    if (options.vocab_divisor < 1 || !unit || *unit > (std::int64_t{1} << 31U)) {
      return MakeError(ErrorCode::kUsage, "--make-vocab-size-divisible-by makes no sense").WithFound(fmt::format("{}", options.vocab_divisor));
    }
    vocabulary.padded = RoundUp(vocabulary.size, *unit);
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

Status CheckConsumer(const TargetOptions& options) {
  if (options.consumer.empty() || options.consumer == "megatron-lm") return OkStatus();
  return MakeError(ErrorCode::kUnsupported, fmt::format("this version does not write Megatron checkpoints for {}", Printable(options.consumer)))
      .WithExpected("--for megatron-lm");
}

/// ITER/hf/: config.json, tokenizer and what else travels with the model, so that the way back is complete.
Status AddHfFolder(const HubState& hub, const TargetOptions& options, DType params_dtype, TargetState* target) {
  TargetState folder;
  CROSSDOCK_RETURN_IF_ERROR(hf::AddConfigAndSideFiles(hub, options, params_dtype, &folder));
  for (SideFile& file : folder.catalog.side_files) {
    file.path = "hf/" + file.path;
    target->catalog.side_files.push_back(std::move(file));
  }
  for (std::string& notice : folder.notices) target->notices.push_back(std::move(notice));
  return OkStatus();
}

}  // namespace

Result<TargetState> WriteHub(const HubState& hub, const TargetOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(CheckConsumer(options));
  if (!hub.optimizer_refusal.empty()) {
    return MakeError(ErrorCode::kUnsupported, "the source's optimizer state cannot be carried: " + hub.optimizer_refusal)
        .WithHint("--no-optim writes the parameters alone");
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckTensorParallel(hub, options.layout.tp));
  const auto layers = hub.letters.find("layers");
  if (layers == hub.letters.end()) return MakeError(ErrorCode::kUsage, fmt::format("the family {} has no letter named layers", hub.family->name));
  CROSSDOCK_ASSIGN_OR_RETURN(const layout::StageMap stages, layout::MakeStageMap(options.layout, layers->second));
  CROSSDOCK_ASSIGN_OR_RETURN(const Vocabulary vocabulary, PadVocabulary(hub, options));

  family::BindOptions bind;
  bind.dialect = "mcore";
  bind.padded_vocab = vocabulary.padded;
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding binding, family::Bind(*hub.family, hub.letters, hub.conditions, bind));
  CROSSDOCK_ASSIGN_OR_RETURN(TargetTensors tensors, MakeTargetTensors(hub, binding, stages, options));

  TargetState target;
  CROSSDOCK_ASSIGN_OR_RETURN(const TargetUnit unit, ChooseUnit(options, hub.counters.step));
  CROSSDOCK_ASSIGN_OR_RETURN(CommonResult common, MakeCommon({&hub, &options, tensors.params_dtype, vocabulary.size, vocabulary.padded, tensors.with_optimizer, unit.iteration}));
  target.unit_name = unit.name;
  target.notices = std::move(tensors.notices);
  for (std::string& notice : common.notices) target.notices.push_back(std::move(notice));
  if (vocabulary.padded > vocabulary.size) {
    target.notices.push_back(fmt::format("the vocabulary is padded from {} to {} rows with zeros", vocabulary.size, vocabulary.padded));
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
  catalog.objects["common"] = std::move(common.common);
  catalog.objects["metadata.json"] = BackendMetadata();
  CROSSDOCK_RETURN_IF_ERROR(AddHfFolder(hub, options, tensors.params_dtype, &target));
  catalog.side_files.push_back(Tracker(unit));
  const bool weights_only = !tensors.with_optimizer && !unit.release;
  target.load_line = {fmt::format("--load TARGET {}{}{}{}", LoadFlags(common.args), common.optimizer_flags.empty() ? "" : " ", common.optimizer_flags,
                                  weights_only ? " --no-load-optim" : "")};
  return target;
}

}  // namespace crossdock::dialects::mcore
