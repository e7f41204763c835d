// SPDX-License-Identifier: Apache-2.0
/// \file  What the commands take, as plain structs. Names are the command line's; see docs/reference/cli.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "crossdock/step.h"

namespace crossdock {

/// Progress of a running command. `phase` is "reading metadata", "converting", "verifying", "syncing", ...
struct ProgressEvent {
  std::string phase;
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
  std::string current;   ///< the tensor in work
};

/// How a caller follows and stops a command. Callbacks come from other threads, one at a time.
struct Hooks {
  std::function<void(const ProgressEvent&)> on_progress;
  std::function<void(const std::string&)> on_notice;   ///< assumptions, oddities, ignored options
  std::stop_token stop;
};

struct LayoutOptions {
  int tp = 1;
  int pp = 1;
  int ep = 1;                                             ///< expert-parallel ranks
  int encoder_tp = 0;                                     ///< tensor-parallel ranks of a vision tower; 0: as tp
  int etp = 0;                                            ///< tensor-parallel ranks of an expert; 0: as tp
  std::vector<std::int64_t> pipeline_layers;
  std::optional<std::int64_t> first_stage_layers;
  std::optional<std::int64_t> last_stage_layers;
  int vpp = 1;                                            ///< virtual stages of each pipeline stage
  std::optional<std::int64_t> layers_per_virtual_stage;   ///< the same, said in layers
  std::string pipeline_layout;                            ///< Megatron's string, such as Et*3|t*2L; empty: not given
  bool account_for_embedding = false;
  bool account_for_loss = false;
  bool given = false;    ///< any of them was set by the user
};

/// FP8 export, and what goes with it. Anything given without `strategy` is a usage error.
struct Fp8Request {
  /// "block", "channel", "tensor"; "": that of an FP8 source, else blocks; absent: no FP8
  std::optional<std::string> strategy;
  std::optional<std::pair<std::int64_t, std::int64_t>> block;  ///< --fp8-block-size; absent: 128 x 128
  std::optional<std::string> scale_format;         ///< --scale-fmt: "ue8m0"
  std::optional<std::string> format;               ///< --fp8-format: "native", "compressed-tensors"; absent: by strategy
  std::optional<std::string> arithmetic;           ///< --fp8-arith: "reference", "relax"
  std::optional<std::string> device;               ///< --fp8-device: "cpu", "cuda"
  std::vector<std::string> skip, only;             ///< --fp8-skip, --fp8-only: patterns
  std::optional<std::int64_t> check_tp;            ///< --check-tp
};

struct ConvertOptions {
  std::string source;
  std::string target;
  std::string to;                                  ///< a format name of cli.md
  std::optional<std::string> from;
  LayoutOptions layout;
  std::vector<std::pair<std::string, std::string>> set_args;
  std::optional<std::string> hf_template;
  std::optional<std::string> family;
  std::optional<std::string> rules;
  std::optional<std::string> dtype;                ///< "bf16", "fp16", "fp32"
  std::vector<std::string> keep_dtype;
  std::optional<StepChoice> step;
  bool no_optim = false;
  bool no_rng = false;
  bool require_optim = false;
  std::int64_t max_shard_bytes = 5'000'000'000;
  std::int64_t memory = std::int64_t{512} << 20U;
  int threads = 0;                                 ///< 0 = min(cores, 8)
  bool force = false;
  bool resume = false;
  bool dry_run = false;
  bool verify = false;
  std::string consumer;                            ///< --for, "megatron-lm" etc. with optional @VERSION
  std::optional<std::int64_t> iteration;
  bool release = false;
  std::string params_from = "model";               ///< "model" or "master"
  std::string mtp = "keep";                        ///< layers of multi-token prediction: "keep", "drop", or "template"
  std::string experts;                             ///< how HF experts are stored: "single", "fused", a spelling's name; "": see cli
  std::optional<std::int64_t> vocab_divisor;       ///< absent: a Megatron source's padding where TP divides it, else 128
  std::optional<std::int64_t> padded_vocab;
  std::optional<bool> scan_layers;                 ///< MaxText: layers along an axis; absent: yes
  std::optional<int> scan_axis;                    ///< MaxText's param_scan_axis, of either end; absent: 1, of a source what its shapes say
  std::optional<std::string> opt_type;             ///< MaxText's optimizer: "adamw", "adam_pax", "muon"; absent: as the source's
  std::optional<int> zstd_level;                   ///< MaxText: how chunks are compressed, 0 not at all; absent: level 1
  bool no_commit_marker = false;                   ///< MaxText and Tunix: without commit_success.txt
  std::optional<std::string> tunix_template;       ///< Tunix: a step of the trainer that is to load the target
  std::optional<std::string> lora_base;            ///< MaxText or Tunix step that the source's LoRA adapters are merged into; alpha: set_args "lora_alpha"
  std::string muon_momentum;                       ///< "ema" or "sum": what Muon's momentum is where an end does not say; "": not said
  Fp8Request fp8;
  std::optional<std::string> receipt;
  std::optional<std::string> emit_manifest;
  bool manifest_only = false;
  std::optional<std::string> tokenizer;            ///< a file or directory whose tokenizer files are copied
  std::vector<std::string> allow;                  ///< unknown-tensors, missing-optimizer, nonfinite, inexact, ...
};

struct VerifyOptions {
  std::string a, b;
  std::optional<std::string> from_a, from_b;
  std::optional<StepChoice> step;
  std::optional<std::string> family, rules, hf_template;
  std::string exact = "bit";                       ///< "bit" or "close"
  std::optional<std::string> report;
  std::int64_t memory = std::int64_t{512} << 20U;
  std::vector<std::string> allow;
};

struct InspectOptions {
  std::string path;
  std::optional<std::string> from;
  std::optional<StepChoice> step;
  std::optional<std::string> family, rules;
  std::optional<std::string> hf_template;
  bool tensors = false;                            ///< list every tensor
  std::vector<std::string> allow;
  bool text = true, json = true;                   ///< which forms of the report are made: a large one takes its time
  /// The process ends after this call: what the report was made of is not freed, which takes a sixth of the time.
  bool last = false;
};

struct RoundtripOptions {
  ConvertOptions convert;                          ///< source = HF_DIR, to = --via, layout
  std::optional<std::string> out;                  ///< default: the current directory for the report
  std::optional<std::string> report;
};

}  // namespace crossdock
