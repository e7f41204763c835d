// SPDX-License-Identifier: Apache-2.0
/// \file  Multi-token prediction in Hugging Face names: how many such layers a checkpoint really holds, and leaving them behind.
/// A family has them when it has the letter `mtp` and a group that counts to it; configuration and weights are brought to one number.
/// Errors: those of family/bind.h. Threads: functions are pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

inline constexpr const char* kMtpLetter = "mtp";

/// The layers of which some tensor that no other layer has is there, counted from the first.
[[nodiscard]] std::int64_t CountMtpLayers(const family::FamilyFile& family, const family::Letters& letters,
                                          const std::function<bool(std::string_view hub_name)>& has);

/// Makes letter and configuration say `count`, and adds a notice where they said something else. `where` names the configuration.
[[nodiscard]] Status AgreeOnMtp(const family::FamilyFile& family, std::int64_t count, const std::string& where, family::ModelConfig* config,
                                family::Model* model, std::vector<std::string>* notices);

/// --mtp drop: the layers' tensors, all slots, are left behind, and the configuration says 0.
[[nodiscard]] Status DropMtp(HubState* hub);

}  // namespace crossdock::dialects::hf
