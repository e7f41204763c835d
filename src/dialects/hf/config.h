// SPDX-License-Identifier: Apache-2.0
/// \file  config.json: the template patched field by field, or rebuilt from Megatron's arguments.
/// Never regenerated through a library: unknown fields and the order of keys survive (formats: huggingface, 5).
#pragma once

#include <string>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

struct ConfigChange {
  std::string key, before, after;     ///< as JSON text; "absent" for none
};
struct ConfigResult {
  Value config;                       ///< what goes into config.json, keys in order
  std::vector<ConfigChange> changes;  ///< against the template, in order of consequence
};

/// The config.json for the hub as it is: values of the checkpoint win over the template's, which may be another size's. Writes both
/// `dtype` and `torch_dtype`, `rope_parameters` and `rope_theta`/`rope_scaling` as the template's age has them.
[[nodiscard]] Result<ConfigResult> MakeConfig(const HubState& hub, const std::optional<family::ModelConfig>& template_config,
                                              DType param_dtype);
/// A config.json that means what Megatron's arguments (words "mcore") say. What they leave open (the rotary embedding of multi-latent
/// attention, layers that no field of the family names) is `original`'s where one is given; else kUnsupported asks for one.
[[nodiscard]] Result<Value> ConfigFromMcoreArgs(const family::FamilyFile& family, const Value& args, const Value* original = nullptr);

}  // namespace crossdock::dialects::hf
