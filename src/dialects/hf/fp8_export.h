// SPDX-License-Identifier: Apache-2.0
/// \file  The last step of a Hugging Face target with --fp8: its linear weights become FP8 with scales beside them.
/// Names: `X.weight` and `X.weight_scale_inv` (blocks declared as `fp8`), else `X.weight_scale`; F32, a multiplier in spite of the first
/// name. Shapes [ceil(n / R), ceil(k / C)], [n, 1] of rows, [1] of a whole tensor. The quantization is of the final tensor, over whatever
/// made it: the bytes do not depend on the source's format.
/// A source that is FP8 by the same rule goes over bit for bit, and what it left unquantized stays so; layers
/// that a template adds are quantized or kept for themselves.
/// Errors: kUsage for patterns that match nothing or nothing left to quantize. Threads: pure.
#pragma once

#include "dialects/hf/hub_target.h"

namespace crossdock::dialects::hf {

/// HubState::layout: the entry of the source catalog from which on it is a template's (--mtp template).
inline constexpr const char* kTemplateEntries = "template_entries";

struct Fp8Export {
  Value quantization_config;
  std::map<std::string, std::string> scale_of;   ///< a tensor of scales -> its weight
  std::vector<std::string> notices;
  std::string load_line;                         ///< where transformers does not load the result; else empty
};

/// Changes the draft. REQUIRES: options.fp8.
[[nodiscard]] Result<Fp8Export> ExportFp8(const HubState& hub, const TargetOptions& options, Draft* draft);

}  // namespace crossdock::dialects::hf
