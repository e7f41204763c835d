// SPDX-License-Identifier: Apache-2.0
#include "cli/option_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "crossdock/nearest.h"

namespace crossdock::cli {
namespace {

constexpr OptionSpec Flag(std::string_view name, std::string_view aliases, unsigned commands, std::string_view help) {
  return {name, aliases, Arity::kFlag, "", commands, help};
}
constexpr OptionSpec One(std::string_view name, std::string_view aliases, std::string_view value, unsigned commands,
                         std::string_view help) {
  return {name, aliases, Arity::kOne, value, commands, help};
}
constexpr OptionSpec Many(std::string_view name, std::string_view aliases, std::string_view value, unsigned commands,
                          std::string_view help) {
  return {name, aliases, Arity::kOne, value, commands, help, true};
}
constexpr OptionSpec kFp8 = {"fp8", "", Arity::kOptional, "[block|channel|tensor]", kConvert | kPlan | kManifest | kWatch,
                             "quantize weights to FP8: a scale a block (default; an FP8 source keeps its form), a row, a tensor; `--to hf`", false, "block channel tensor"};
constexpr OptionSpec kBlockSize = {"fp8-block-size", "block-size", Arity::kTwo, "R C", kQuantizing, "rows and columns of a block; default 128 128"};

constexpr std::array kTable = {
    // Where from, where to.
    One("source", "load-dir input-dir local-dir model-dir source-safetensor check-dir load", "PATH", kReading, ""),
    One("target", "save-dir output-dir target-dir output save", "PATH", kConverting | kVerify | kDemo, ""),
    One("megatron-path", "", "PATH", kTargeting | kInspect, ""),
    One("hf-path", "", "PATH", kTargeting | kInspect | kResumePlan, ""),
    One("hf-model", "hf-model-id hf-model-path", "DIR", kConverting, ""),
    One("to", "via", "FORMAT", kTargeting | kWatch, "format of the target: hf, full-state, megatron, megatron-legacy, dcp, maxtext, tunix"),
    One("from", "", "FORMAT", kReading, "what the source (verify: A) is; default: found from its content"),
    One("from-b", "", "FORMAT", kVerify, "what B is; default: found from its content"),
    One("saver", "", "NAME", kTargeting, ""),
    One("loader", "", "NAME", kTargeting, ""),
    One("model-type", "", "NAME", kTargeting, ""),
    One("model-size", "", "NAME", kTargeting, ""),
    One("checkpoint-type", "", "hf", kTargeting, ""),
    One("tokenizer-model", "tokenizer", "PATH", kConverting, "file or directory whose tokenizer files go into the target"),
    // The target's layout.
    One("tp", "tensor-parallel-size tensor-model-parallel-size target-tensor-parallel-size target-tensor-model-parallel-size",
        "N", kTargeting, "tensor parallel size of the target; default 1"),
    One("pp", "pipeline-parallel-size pipeline-model-parallel-size target-pipeline-parallel-size target-pipeline-model-parallel-size",
        "N", kTargeting, "pipeline parallel size of the target; default 1"),
    One("ep", "expert-parallel-size expert-model-parallel-size target-expert-parallel-size target-expert-model-parallel-size", "N", kTargeting,
        "expert-parallel size; default 1"),
    One("etp", "expert-tensor-parallel-size target-expert-tensor-parallel-size", "N", kTargeting, "tensor-parallel size of an expert; default: as --tp"),
    One("pipeline-layers", "custom-pipeline-layers", "10,11,11", kTargeting, "layers of each pipeline stage"),
    One("first-stage-layers", "decoder-first-pipeline-num-layers", "N", kTargeting, "layers of the first stage"),
    One("last-stage-layers", "decoder-last-pipeline-num-layers", "N", kTargeting, "layers of the last stage"),
    One("vpp", "num-virtual-stages-per-pipeline-rank target-num-virtual-stages-per-pipeline-rank virtual-pipeline-model-parallel-size", "N", kTargeting,
        "virtual pipeline stages of each stage; default 1"),
    One("encoder-tp", "encoder-tensor-model-parallel-size", "N", kTargeting, "tensor-parallel size of a vision tower; default: as --tp"),
    One("num-layers-per-virtual-pipeline-stage", "", "N", kTargeting, "the same, said in layers of a virtual stage"),
    One("pipeline-layout", "pipeline-model-parallel-layout", "STRING", kTargeting,
        "Megatron's layout string, one cell a virtual stage: 'Et*3|t*2|t*2|tL'"),
    Flag("account-for-embedding", "account-for-embedding-in-pipeline-split", kTargeting, "count the embedding as a layer when dividing"),
    Flag("account-for-loss", "account-for-loss-in-pipeline-split", kTargeting, "count the loss as a layer when dividing"),
    One("make-vocab-size-divisible-by", "", "N", kTargeting, "vocabulary padding in Megatron; default 128 (times TP)"),
    One("padded-vocab-size", "", "N", kTargeting, "rows of the vocabulary in Megatron or MaxText"),
    Flag("scan-layers", "", kTargeting, "MaxText: layers lie along an axis; the default"),
    Flag("no-scan-layers", "", kTargeting, "MaxText: each layer on its own"),
    One("scan-axis", "param-scan-axis", "N", kTargeting | kWatch, "MaxText: the axis of scanned layers; default 1, of a source what its shapes say"),
    One("tunix-template", "", "DIR", kTargeting, "Tunix: a checkpoint of the trainer that is to load the target, whose levels, settings and random streams are written"),
    One("opt-type", "", "adamw|adam_pax|muon", kTargeting, "MaxText: whose optimizer state is written; default adamw, muon where the source is"),
    One("compression", "", "none|zstd[:LEVEL]", kTargeting, "MaxText: how chunks are stored; default zstd:1"),
    Flag("no-commit-marker", "", kTargeting, "MaxText: leave out commit_success.txt, by which trees in buckets are known to be whole"),
    // What is carried, and how.
    One("dtype", "torch-dtype params-dtype export-dtype", "bf16|fp16|fp32", kConverting, "cast parameters; default: keep"),
    Flag("bf16", "", kConverting, ""),
    Flag("fp16", "", kConverting, ""),
    Flag("fp32", "", kConverting, ""),
    Many("keep-dtype", "", "PATTERN", kConverting, "tensors that no cast touches (repeatable)"),
    One("step", "ckpt-step", "N|release", (kReading & ~kWatch) | kResumePlan, "which step of a directory; default: the latest that is complete"),
    Flag("no-optim", "no-load-optim", kTargeting | kResumePlan, "leave the optimizer state behind"),
    Flag("no-rng", "no-load-rng", kTargeting | kResumePlan, "leave the random number state behind"),
    Flag("require-optim", "", kConvert | kPlan | kManifest, "fail when no optimizer state was carried"),
    One("params-from", "", "model|master", kConverting, "which copy becomes the parameters; default model"),
    One("mtp", "", "keep|drop|template", kConverting, "layers of multi-token prediction; template: missing ones from --hf-template; default keep"),
    One("experts", "", "single|fused", kTargeting | kWatch, "how experts are stored under Hugging Face names; default: as the template, else as released"),
    One("lora-base", "", "DIR", kConvert | kPlan | kManifest, "MaxText or Tunix step that the source's LoRA adapters are merged into (alpha: its metadata, or --set lora_alpha=N)"),
    One("muon-momentum", "", "ema|sum", kTargeting, "what Muon's momentum is in the source, or the target, that does not say it; where they differ it is converted"),
    Many("set", "", "ARG=VALUE", kTargeting, "an argument that the target must store and the source lacks (repeatable)"),
    One("hf-template", "origin-hf-dir hf-config", "DIR", kReading, "where config.json, tokenizer and names come from"),
    One("family", "model-name", "NAME", kReading, "override the detected family"),
    One("rules", "", "FILE", kReading | kFamilies, "a family file of your own"),
    One("for", "", "CONSUMER", kTargeting,
        "what loads the target: megatron-lm (default, with optional @VERSION), megatron-bridge, loongforge; maxtext (default, with optional @VERSION), maxtext-linen"),
    One("iteration", "", "N", kTargeting, "what the Megatron or MaxText checkpoint is called; default: the source's step"),
    Flag("release", "", kTargeting, "call the Megatron checkpoint `release`"),
    // FP8.
    kFp8,
    One("fp8-strategy", "strategy", "block|channel|tensor", kQuantizing, "the same, said with a value"),
    kBlockSize,
    One("scale-fmt", "", "ue8m0", kQuantizing, "scales are powers of two"),
    One("fp8-format", "", "native|compressed-tensors", kQuantizing, "how config.json declares it; default: native for blocks, else compressed-tensors"),
    One("fp8-arith", "", "reference|relax", kQuantizing, "whose arithmetic; default reference"),
    One("fp8-device", "", "cpu|cuda", kQuantizing, "what quantizes; default cpu"),
    Many("fp8-skip", "", "PATTERN", kQuantizing, "weights that stay as they are, beyond the defaults (repeatable)"),
    Many("fp8-only", "", "PATTERN", kQuantizing, "quantize only these of them (repeatable)"),
    One("check-tp", "", "N", kQuantizing, "name the weights that N tensor-parallel ranks of a serving stack could not divide"),
    One("max-shard-size", "", "SIZE", kConverting, "size of a Hugging Face shard; default 5GB"),
    One("fp8-max-shard-size-mb", "", "N", kConverting, ""),
    Many("allow", "", "WHAT", kReading, "go on in spite of: unknown-tensors, unscaled-fp8; converting also: missing-optimizer, nonfinite, inexact (repeatable)"),
    // How the work is done.
    One("memory", "", "SIZE", kConverting | kVerify, "bound of the buffers; default 512MiB"),
    One("threads", "max-workers", "N", kConverting, "default: the number of cores, at most 8"),
    Flag("force", "f", kConvert | kPlan | kQuantize, "replace an existing target"),
    Flag("resume", "", kConvert | kPlan | kQuantize, "go on with an interrupted run"),
    Flag("dry-run", "", kConvert | kQuantize, "print the plan, write nothing"),
    Flag("verify", "", kConvert | kQuantize | kWatch, "compare what was written with the source before it is put in place"),
    One("emit-manifest", "o", "FILE", kConvert | kPlan | kManifest, "write the mapping of every tensor"),
    Flag("manifest-only", "", kConvert, "write the mapping, convert nothing"),
    One("receipt", "", "FILE", kConvert | kQuantize, "write plan hash, version and a digest of every tensor"),
    // Comparing and looking.
    One("exact", "", "bit|close", kVerify, "what counts as equal; default bit"),
    One("report", "", "FILE", kVerify | kRoundtrip, "write the comparison as JSON"),
    One("out", "", "DIR", kRoundtrip, "where the round trip works; default: the current directory"),
    Flag("tensors", "", kInspect, "list every tensor"),
    One("full-state-path", "", "PATH", kResumePlan, "a checkpoint with optimizer state, loaded where the run has none of its own; default: LOAD_FULL_STATE_PATH"),
    One("consumed-train-samples-override", "", "N", kResumePlan, "the samples to go on from when the full state is loaded"),
    // Watching a run.
    Flag("once", "", kWatch, "export what is there and end"),
    One("interval", "", "SECONDS", kWatch, "between two looks at the run; default 10"),
    One("hook", "", "PKG.MOD.FN", kWatch, "a Python function called after each export: fn(args, hf_path, step, dtype=..., is_lora=False)"),
    One("hook-cmd", "", "COMMAND", kWatch, "a shell command run after each export, with EXPORT_HF_PATH, EXPORT_STEP and EXPORT_DTYPE"),
    One("python", "", "PROGRAM", kWatch, "the interpreter of --hook; default python3"),
    One("hook-timeout", "", "SECONDS", kWatch, "a hook that takes longer is ended; default 1800"),
    // Talk.
    One("progress", "", "auto|plain|json|off", kEvery, "progress on stderr; default auto: on a terminal only"),
    Flag("quiet", "q", kEvery, "nothing but errors; what was asked for (a plan, a list, --json) is still printed"),
    Flag("verbose", "v", kEvery, "notices as they come, and the tensor in work"),
    Flag("json", "", kEvery, "the result, or the error, as one JSON object on stdout"),
};

constexpr std::array kCommands = {
    CommandSpec{"convert", kConvert, "SOURCE TARGET --to FORMAT [options]", "convert a checkpoint"},
    CommandSpec{"inspect", kInspect, "PATH [--json] [--tensors]", "say what a checkpoint holds"},
    CommandSpec{"verify", kVerify, "A B [--exact bit|close] [--report FILE]", "compare two checkpoints of any formats"},
    CommandSpec{"roundtrip", kRoundtrip, "HF_DIR --via FORMAT [layout] [--out DIR] [--report FILE]",
                "convert there and back, and compare"},
    CommandSpec{"manifest", kManifest, "SOURCE [--to FORMAT] [-o FILE]", "print the mapping of every tensor"},
    CommandSpec{"plan", kPlan, "SOURCE TARGET --to FORMAT [options]", "the same as convert --dry-run"},
    CommandSpec{"quantize", kQuantize, "HF_DIR TARGET [--strategy block|channel|tensor] [options]", "write FP8: short for convert --to hf --fp8"},
    CommandSpec{"families", kFamilies, "[NAME] [--rules FILE] [--json]", "list the supported model families, or one family's rules"},
    CommandSpec{"resume-plan", kResumePlan, "RUN_DIR [--full-state-path PATH] [--hf-path PATH] [--step N]", "say what a launcher has to load, as JSON"},
    CommandSpec{"demo", kDemo, "DIR", "make a small model to try things on"},
    CommandSpec{"watch", kWatch, "ROOT OUT --to hf [--fp8] [--hook PKG.MOD.FN | --hook-cmd COMMAND] [--once]", "export each new complete step of a run"},
};

bool SameSpelling(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, [](char c) { return c == '_' ? '-' : c; },
                            [](char c) { return c == '_' ? '-' : c; });
}

template <typename F>
bool AnyWord(std::string_view list, const F& test) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    if (end != 0 && test(list.substr(0, end))) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

std::span<const OptionSpec> OptionTable() { return kTable; }

const OptionSpec* FindOption(std::string_view spelling) {
  for (const OptionSpec& spec : kTable) {
    const auto same = [&](std::string_view name) { return SameSpelling(name, spelling); };
    if (same(spec.name) || AnyWord(spec.aliases, same)) return &spec;
  }
  return nullptr;
}

std::string_view NearestOption(std::string_view spelling, unsigned commands) {
  std::vector<std::string_view> known, aliases;
  for (const OptionSpec& spec : kTable) {
    if ((spec.commands & commands) == 0) continue;
    known.push_back(spec.name);
    AnyWord(spec.aliases, [&](std::string_view alias) {
      aliases.push_back(alias);
      return false;
    });
  }
  known.insert(known.end(), aliases.begin(), aliases.end());  // of equally near ones the main name
  return Nearest(spelling, known);
}

std::string_view NearestCommand(std::string_view word) {
  std::vector<std::string_view> known;
  for (const CommandSpec& spec : kCommands) known.push_back(spec.name);
  return Nearest(word, known);
}

bool ListHas(std::string_view list, std::string_view word) {
  return AnyWord(list, [&](std::string_view item) { return item == word; });
}

std::span<const CommandSpec> CommandTable() { return kCommands; }

const CommandSpec* FindCommand(std::string_view name) {
  for (const CommandSpec& spec : kCommands) {
    if (SameSpelling(spec.name, name)) return &spec;
  }
  return nullptr;
}

}  // namespace crossdock::cli
