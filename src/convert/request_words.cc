// SPDX-License-Identifier: Apache-2.0
#include "convert/request_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "crossdock/convert.h"
#include "io/storage.h"

namespace crossdock::convert {
namespace {

class Words {
 public:
  void Say(const char* option, const std::string& value) { words_.push_back(fmt::format("{} {}", option, Printable(value, 4096))); }
  void Say(const char* option, std::int64_t value) { words_.push_back(fmt::format("{} {}", option, value)); }
  template <typename T>
  void Say(const char* option, const std::optional<T>& value) {
    if (value) Say(option, *value);
  }
  template <typename T>
  void Unless(const char* option, const T& value, const T& usual) {
    if (value != usual) Say(option, value);
  }
  void Flag(const char* option, bool given) {
    if (given) words_.emplace_back(option);
  }
  std::vector<std::string> Take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

void SayLayout(const LayoutOptions& layout, Words* words) {
  const LayoutOptions usual;
  words->Unless("--tp", std::int64_t{layout.tp}, std::int64_t{usual.tp});
  words->Unless("--pp", std::int64_t{layout.pp}, std::int64_t{usual.pp});
  if (!layout.pipeline_layers.empty()) words->Say("--pipeline-layers", fmt::format("{}", fmt::join(layout.pipeline_layers, ",")));
  words->Say("--first-stage-layers", layout.first_stage_layers);
  words->Say("--last-stage-layers", layout.last_stage_layers);
  words->Unless("--vpp", std::int64_t{layout.vpp}, std::int64_t{usual.vpp});
  words->Say("--num-layers-per-virtual-pipeline-stage", layout.layers_per_virtual_stage);
  words->Unless("--pipeline-layout", layout.pipeline_layout, usual.pipeline_layout);
  words->Flag("--account-for-embedding", layout.account_for_embedding);
  words->Flag("--account-for-loss", layout.account_for_loss);
}

/// Not the device: it gives the same bytes. Nor what is only checked.
void SayFp8(const Fp8Request& fp8, Words* words) {
  words->Flag("--fp8", fp8.strategy && fp8.strategy->empty());
  if (fp8.strategy && !fp8.strategy->empty()) words->Say("--fp8", *fp8.strategy);
  if (fp8.block) words->Say("--fp8-block-size", fmt::format("{} {}", fp8.block->first, fp8.block->second));
  words->Say("--scale-fmt", fp8.scale_format);
  words->Say("--fp8-format", fp8.format);
  words->Say("--fp8-arith", fp8.arithmetic);
  for (const std::string& pattern : fp8.skip) words->Say("--fp8-skip", pattern);
  for (const std::string& pattern : fp8.only) words->Say("--fp8-only", pattern);
}

}  // namespace

std::vector<std::string> RequestWords(const ConvertOptions& options) {
  const ConvertOptions usual;
  Words words;
  words.Say("source", io::AbsolutePath(options.source));
  if (options.step) words.Say("--step", StepWord(*options.step));
  words.Say("--to", options.to);
  SayLayout(options.layout, &words);
  for (const auto& [key, value] : options.set_args) words.Say("--set", fmt::format("{}={}", key, value));
  words.Say("--hf-template", options.hf_template);
  words.Say("--tokenizer-model", options.tokenizer);
  words.Say("--family", options.family);
  words.Say("--rules", options.rules);
  words.Say("--dtype", options.dtype);
  for (const std::string& pattern : options.keep_dtype) words.Say("--keep-dtype", pattern);
  words.Flag("--no-optim", options.no_optim);
  words.Flag("--no-rng", options.no_rng);
  words.Unless("--params-from", options.params_from, usual.params_from);
  words.Unless("--mtp", options.mtp, usual.mtp);
  words.Unless("--experts", options.experts, usual.experts);
  words.Unless("--for", options.consumer, usual.consumer);
  words.Say("--iteration", options.iteration);
  words.Flag("--release", options.release);
  words.Say("--make-vocab-size-divisible-by", options.vocab_divisor);
  words.Say("--padded-vocab-size", options.padded_vocab);
  words.Flag("--scan-layers", options.scan_layers == true);
  words.Flag("--no-scan-layers", options.scan_layers == false);
  words.Say("--scan-axis", options.scan_axis);
  words.Say("--lora-base", options.lora_base);
  words.Say("--opt-type", options.opt_type);
  if (options.zstd_level) words.Say("--compression", *options.zstd_level == 0 ? std::string("none") : fmt::format("zstd:{}", *options.zstd_level));
  words.Flag("--no-commit-marker", options.no_commit_marker);
  words.Say("--tunix-template", options.tunix_template);
  words.Unless("--muon-momentum", options.muon_momentum, usual.muon_momentum);
  SayFp8(options.fp8, &words);
  words.Unless("--max-shard-size", options.max_shard_bytes, usual.max_shard_bytes);
  words.Unless("--memory", options.memory, usual.memory);
  for (const std::string& what : options.allow) words.Say("--allow", what);
  words.Say("version", VersionString());
  return words.Take();
}

}  // namespace crossdock::convert
