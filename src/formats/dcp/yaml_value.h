// SPDX-License-Identifier: Apache-2.0
/// \file  YAML that others wrote (Megatron-Bridge's run_config.yaml) as a Value, as plain data.
/// Tags are ignored: a node tagged with a Python class is the mapping, list or text that it is. Plain scalars follow
/// PyYAML's YAML 1.1 rules; merge keys (`<<`) are not applied.
/// Errors: kCorrupt (no YAML), kUnsafe (aliases that unfold without bound). Threads: pure function.
#pragma once

#include <string>

#include "tensor/value.h"

namespace crossdock::formats::dcp {

[[nodiscard]] Result<Value> ParseYaml(const std::string& text);

}  // namespace crossdock::formats::dcp
