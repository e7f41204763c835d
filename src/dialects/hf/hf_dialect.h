// SPDX-License-Identifier: Apache-2.0
/// \file  The hf dialect: Hugging Face names are the hub; what is left to do is config.json, side files and spelling.
#pragma once

#include <optional>
#include <string>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

struct ReadOptions {
  const family::FamilyFile* family = nullptr;   ///< --family or --rules; null = detect by architectures/model_type
  std::optional<family::ModelConfig> template_config;  ///< used when the source has no config.json
  bool allow_unknown_tensors = false;
  bool allow_missing_tensors = false;          ///< for a comparison, which lists them; what is converted is whole
  bool allow_unscaled_fp8 = false;             ///< FP8 weights without scales are taken at the values of their codes
  /// What quantized weights are read as, in one rounding; absent: the dtype of config.json.
  std::optional<DType> dequantized = {};
  std::vector<std::string> keep_dtype = {};    ///< patterns (fnmatch over hub names) of those that are read as config.json has it
};

/// Catalog of an HF directory (objects["config.json"]) or of full-state safetensors (names `param/...`).
/// Reports all tensors that no rule claims and all that are missing together (kIncomplete / kUnsupported).
/// A tied model with an equal `lm_head.weight` is accepted: the planner adds no guard, `TiedCopy`
/// tells the caller which pair to compare before work.
[[nodiscard]] Result<HubState> ReadHub(const Catalog& source, const ReadOptions& options);
[[nodiscard]] Result<HubState> ReadFullState(const Catalog& source, const ReadOptions& options);

/// Catalog of a plain PyTorch DCP (formats/dcp OpenPlainDcp, or DCP's safetensors shards): keys of any nesting that end in
/// Hugging Face names, Adam state as get_state_dict names it. What was assumed is among the notices. kUnsupported: two sets of
/// weights, Megatron's own names, steps that differ. State stored by number is left out, with optimizer_refusal.
[[nodiscard]] Result<HubState> ReadDcp(const Catalog& source, const ReadOptions& options, bool no_optim);

/// Target: an HF directory (params only; what is left behind is named) or full-state safetensors (all slots, meta/).
[[nodiscard]] Result<TargetState> WriteHub(const HubState& hub, const TargetOptions& options);
[[nodiscard]] Result<TargetState> WriteFullState(const HubState& given, const TargetOptions& options);
/// Target: a plain PyTorch DCP as `dcp.save({"model": ..., "optim": ...})` makes of get_state_dict's two results. It has no place
/// for master weights: they become the parameters (--params-from master) or are left out, which a notice says.
[[nodiscard]] Result<TargetState> WriteDcp(const HubState& hub, const TargetOptions& options);

}  // namespace crossdock::dialects::hf
