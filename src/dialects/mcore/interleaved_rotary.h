// SPDX-License-Identifier: Apache-2.0
/// \file  Weights that were trained with interleaved rotary embeddings (`rotary_interleaved`), in the order of the hub.
/// Such a head rotates the pairs (0, 1), (2, 3), ...; the hub's rotates (0, d/2), (1, d/2 + 1), ... The same function is
/// computed when the rows of q and k, head by head, and the norms over them are taken in the order 0, 2, 4, ..., 1, 3, 5, ...
/// Source: megatron-core 0.19.2, models/common/embeddings/rope_utils.py, `_rotate_half`; transformers, `rotate_half`.
/// Errors: kUnsupported for partly rotated heads, kCorrupt for an odd head size. Threads: functions are pure.
#pragma once

#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::mcore {

/// True when the arguments say so.
[[nodiscard]] bool IsInterleaved(const Value& args);

/// Takes the rows of q and k in all slots in the hub's order. REQUIRES: IsInterleaved(args).
[[nodiscard]] Status UndoInterleaving(const Value& args, std::vector<HubTensor>* tensors);

}  // namespace crossdock::dialects::mcore
