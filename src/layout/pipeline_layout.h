// SPDX-License-Identifier: Apache-2.0
/// \file  Megatron's string for a pipeline layout: what each model chunk of each stage holds, read and written.
/// Grammar (megatron-core 0.19.2, PipelineParallelLayerLayout.parse_str_to_list; two rewrites, as regular expressions do it):
///   commas vanish; then `(text)*n` becomes n times text, from left to right, where text has no `)`; then `c*n` becomes
///   n times the character c. What is left is cells between `|`, each of the letters
///   E embedding, t decoder layer, m multi-token prediction, L loss.
/// Cell v * P + p belongs to chunk v of stage p. Nested brackets are not unrolled and thus no layout.
/// Errors: kUsage with the string and the place that is wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::layout {

/// The cells of a layout string, repetitions unrolled: only letters E, t, m and L are left.
[[nodiscard]] Result<std::vector<std::string>> ParsePipelineLayout(std::string_view text);

/// The layers of multi-token prediction in unrolled cells.
struct MtpCell {
  std::int64_t layers = 0;
  int stage = -1;                ///< -1: there are none
};
/// All of them stand in one cell, in the last virtual stage of its stage, after every decoder layer (validate_layer_layout); kUsage
/// says which of that does not hold. REQUIRES: the number of cells is a multiple of `stages`.
[[nodiscard]] Result<MtpCell> FindMtp(std::span<const std::string> cells, int stages);

/// "Et|t*2|tL": the string for these numbers of layers, embedding in the first cell, loss in the last.
[[nodiscard]] std::string PipelineLayoutString(std::span<const std::int64_t> layers);

}  // namespace crossdock::layout
