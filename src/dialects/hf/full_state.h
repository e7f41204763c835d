// SPDX-License-Identifier: Apache-2.0
/// \file  The names of full-state safetensors (docs/formats/full-state.md): `param/<hub name>`, `optim/<slot>/<hub name>`,
/// `meta/step|adam_count|muon_count`, and the metadata of every file.
#pragma once

#include <string>
#include <string_view>

#include "tensor/slot.h"

namespace crossdock::dialects::hf {

inline constexpr std::string_view kFullStateFormat = "crossdock-full-state-v1";
/// The full state of another converter, for Ling 3 under MaxText: the same keys in one file, without masters and always with Muon.
inline constexpr std::string_view kLingFormat = "ling3-muon-full-state-v1";
inline constexpr std::string_view kLingConsumer = "ling3";   ///< --for
inline constexpr std::string_view kParamPrefix = "param/";
inline constexpr std::string_view kOptimPrefix = "optim/";

[[nodiscard]] inline std::string FullStateName(Slot slot, std::string_view hub_name) {
  if (slot == Slot::kParam) return std::string(kParamPrefix) + std::string(hub_name);
  return std::string(kOptimPrefix) + std::string(SlotName(slot)) + "/" + std::string(hub_name);
}

}  // namespace crossdock::dialects::hf
