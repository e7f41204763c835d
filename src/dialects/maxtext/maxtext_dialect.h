// SPDX-License-Identifier: Apache-2.0
/// \file  The maxtext dialect: the tree that MaxText saves with Orbax: `params.params`, `opt_state`, `step`, `nnx_aux`.
/// Reference: MaxText 0.2.5, common/train_state_nnx.py (to_checkpoint_dict), layers/nnx_decoders.py (containers of layers),
/// utils/muon_utils.py (what Muon takes); names and shapes as recorded in tests/golden/maxtext.
/// A catalog of this tree: entries named by their key path joined by dots, objects "tree", "scalars", "custom_metadata", "orbax",
/// and "hf/config.json" where one travels along. The checkpoint itself stores no configuration.
/// Errors: kIncomplete (no configuration, missing tensors), kUnsupported (trees that no rule names), kCorrupt (shapes).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "dialects/dialect.h"

namespace crossdock::dialects::maxtext {

struct ReadOptions {
  const family::FamilyFile* family = nullptr;   ///< --family or --rules; null: by the configuration, else by the tensors' names
  std::optional<family::ModelConfig> template_config;
  std::map<std::string, std::string> set_args;  ///< --set: MaxText's own settings (rope_type, ...) where nothing else tells them
  std::optional<int> scan_axis;                 ///< --scan-axis; null: told by the shapes, 1 where they fit several
  bool no_optim = false;
  bool allow_unknown_tensors = false;
  bool allow_missing_tensors = false;           ///< for a comparison, which lists them; what is converted is whole
};

/// Scanned and unscanned layers, optimizer states of adamw, adam_pax and Muon in both forms. Random generators and what else
/// `nnx_aux` holds beside routed biases is left out, named.
[[nodiscard]] Result<HubState> ReadHub(const Catalog& source, const ReadOptions& options);

/// The unit is the step's directory. TargetOptions: scan_layers, scan_axis, consumer "maxtext" (0.2.5, 0.2.4) or "maxtext-linen",
/// set_args "opt_type" (adamw or adam_pax), padded_vocab (MaxText's vocab_size), dtype of the parameters.
[[nodiscard]] Result<TargetState> WriteHub(const HubState& hub, const TargetOptions& options);

}  // namespace crossdock::dialects::maxtext
