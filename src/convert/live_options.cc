// SPDX-License-Identifier: Apache-2.0
#include "convert/live_options.h"

#include <algorithm>

namespace crossdock::convert {

void NameModules(bool local_layers, bool grouped_experts, std::vector<std::pair<std::string, std::string>>* set_args) {
  const auto set = [&](const char* argument, const char* value) {
    const bool there = std::ranges::any_of(*set_args, [&](const auto& pair) { return pair.first == argument; });
    if (!there) set_args->emplace_back(argument, value);
  };
  set("transformer_impl", local_layers ? "local" : "transformer_engine");
  if (!grouped_experts) set("moe_grouped_gemm", "False");
}

}  // namespace crossdock::convert
