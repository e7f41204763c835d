// SPDX-License-Identifier: Apache-2.0
/// \file  Family and sizes of a MaxText checkpoint, which stores no configuration: from hf/config.json that travels along, from the
/// template, or from the shapes of the arrays with --family or by their names. What no shape tells must be said then (--set).
/// Errors: kIncomplete names what must be given; kUnsupported for families that the names do not tell.
#pragma once

#include <string>
#include <vector>

#include "dialects/maxtext/inventory.h"
#include "dialects/maxtext/maxtext_dialect.h"

namespace crossdock::dialects::maxtext {

struct ChosenConfig {
  const family::FamilyFile* family = nullptr;
  family::ModelConfig config;                ///< words "hf" or "maxtext"
  family::Model model;
  std::string origin;                        ///< for messages
  std::vector<std::string> notices;
};
[[nodiscard]] Result<ChosenConfig> ChooseConfig(const Catalog& catalog, const ReadOptions& options, const Inventory& inventory);

}  // namespace crossdock::dialects::maxtext
