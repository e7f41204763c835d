// SPDX-License-Identifier: Apache-2.0
/// \file  Which tensor-parallel sizes a model's heads allow, for conversions from the hub and for resharding alike.
/// On disk: nothing; megatron-core 0.19.2 asks the same of its arguments (TransformerConfig, attention.py).
/// Errors: kUsage, with the sizes that are allowed.
/// Threads: values only.
#pragma once

#include <cstdint>

#include "crossdock/result.h"

namespace crossdock::dialects::mcore {

/// What --tp has to divide; 0 where it is not known, which allows every size.
struct HeadCounts {
  std::int64_t heads = 0;     ///< num_attention_heads
  std::int64_t groups = 0;    ///< num_key_value_heads, num_query_groups
  std::int64_t ffn = 0;       ///< intermediate_size, ffn_hidden_size
};

/// Whole experts go to the expert ranks.
[[nodiscard]] Status CheckExpertsDivide(std::int64_t experts, int ep);
[[nodiscard]] Status CheckTensorParallel(const HeadCounts& counts, int tp);

}  // namespace crossdock::dialects::mcore
