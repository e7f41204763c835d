// SPDX-License-Identifier: Apache-2.0
/// \file  A model's sizes from the shapes of MaxText's arrays, in MaxText's own words (base_emb_dim, base_num_query_heads, ...): attention
/// kernels keep their heads apart there, so that every size shows. What no shape tells (the rotary embedding, say) is not among them.
/// `hf_layers` is the number of Hugging Face layers, which is twice base_num_decoder_layers where MaxText counts pairs (Gemma 2).
/// Threads: functions are pure.
#pragma once

#include "dialects/maxtext/inventory.h"
#include "dialects/maxtext/layers.h"

namespace crossdock::dialects::maxtext {

/// A dict. `scan_axis`: of scanned layers.
[[nodiscard]] Value ConfigFromTree(const Catalog& catalog, const Inventory& inventory, int scan_axis);

}  // namespace crossdock::dialects::maxtext
