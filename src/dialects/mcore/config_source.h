// SPDX-License-Identifier: Apache-2.0
/// \file  Which configuration of a Megatron checkpoint counts: ITER/hf/config.json, the stored arguments, or the
/// template; and which family. Sources that disagree are refused with both values and the tensor whose shape decides.
/// Errors: kIncomplete (no configuration), kCorrupt (disagreement), kUnsupported (family, settings).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dialects/mcore/args.h"
#include "dialects/mcore/inventory.h"
#include "dialects/mcore/mcore_dialect.h"

namespace crossdock::dialects::mcore {

struct ChosenConfig {
  const family::FamilyFile* family = nullptr;
  family::ModelConfig config;
  family::Model model;
  std::string origin;                       ///< "common.pt", "hf/config.json", ...
  std::optional<StoredArgs> stored;         ///< the arguments, whether they were chosen or not
  std::vector<std::string> notices;
};
[[nodiscard]] Result<ChosenConfig> ChooseConfig(const Catalog& catalog, const ReadOptions& options, const Inventory& inventory);

/// "ffn_hidden_size = 64, ...": the settings that decide the axes in which `wanted` (by the configuration) and `stored`
/// differ. For messages: found by trying each letter with twice its value.
[[nodiscard]] std::string SettingsBehind(const ChosenConfig& chosen, const Inventory& inventory, const std::string& tensor, const Shape& wanted,
                                         const Shape& stored);

/// Where consumers order the rows of gated attention differently under one name and shape: whose order is meant. Nothing for families
/// without it.
[[nodiscard]] std::optional<std::string> GatedAttentionNotice(const family::FamilyFile& family, const std::string& consumer);

/// How the inventory's form is bound.
[[nodiscard]] family::BindOptions BindOptionsOf(const Inventory& inventory, const family::FamilyFile& family);

}  // namespace crossdock::dialects::mcore
