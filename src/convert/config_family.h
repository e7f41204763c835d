// SPDX-License-Identifier: Apache-2.0
/// \file  Whether a config.json describes the family whose tensors it is to lie beside. A loader builds the model that
/// config.json names and drops or invents the tensors that this model has not: a llama's configuration over Qwen3's
/// tensors loads without an error and computes something else.
/// Threads: functions are pure.
#pragma once

#include <string>

#include "convert/source.h"

namespace crossdock::convert {

/// The family that a configuration names, or "" when none of the built-in ones and not `hub`'s own.
[[nodiscard]] std::string FamilyOfConfig(const Value& config, const dialects::HubState& hub);

/// kUsage when --hf-template is another family's than the source. `chosen`: the user named the family or its rules, so
/// that a template whose architecture is known to nobody is taken.
[[nodiscard]] Status CheckTemplateFamily(const Template& reference, const dialects::HubState& hub, bool chosen);

/// kCorrupt when the config.json of a result, as it is read back, does not name the source's family. Nothing is asked of
/// a result without one.
[[nodiscard]] Status CheckResultFamily(const Catalog& result, const dialects::HubState& hub, bool chosen);

}  // namespace crossdock::convert
