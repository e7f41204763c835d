// SPDX-License-Identifier: Apache-2.0
/// \file  How a running model's modules are named, as arguments of a conversion.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace crossdock::convert {

/// Adds to `set_args` what LoadOptions::local_layers and grouped_experts say, unless the caller set it.
void NameModules(bool local_layers, bool grouped_experts, std::vector<std::pair<std::string, std::string>>* set_args);

}  // namespace crossdock::convert
