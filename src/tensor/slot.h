// SPDX-License-Identifier: Apache-2.0
/// \file  Slot: the role of a tensor in the training state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace crossdock {

enum class Slot : std::uint8_t {
  kParam,    ///< the model's weight
  kMaster,   ///< its float32 main copy
  kAdamMu,   ///< Adam's first moment (exp_avg)
  kAdamNu,   ///< Adam's second moment (exp_avg_sq)
  kMuonMu,   ///< Muon's momentum
};
inline constexpr std::array kAllSlots = {Slot::kParam, Slot::kMaster, Slot::kAdamMu, Slot::kAdamNu,
                                         Slot::kMuonMu};

/// "param", "master", "adam_mu", "adam_nu", "muon_mu".
[[nodiscard]] std::string_view SlotName(Slot slot);
[[nodiscard]] std::optional<Slot> SlotFromName(std::string_view name);

}  // namespace crossdock
