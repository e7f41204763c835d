// SPDX-License-Identifier: Apache-2.0
/// \file  The flags with which Megatron-LM loads a checkpoint: `--use-checkpoint-args` reads most arguments from it, and
/// not these (megatron-core 0.19.2, training/checkpointing.py): q/k norms, epsilon, rope scaling, window, dtype,
/// parallel sizes and layout.
#pragma once

#include <string>

#include "tensor/value.h"

namespace crossdock::dialects::mcore {

/// "--use-checkpoint-args --bf16 --norm-epsilon 1e-06 ..." from arguments in the words of `args`.
[[nodiscard]] std::string LoadFlags(const Value& args);

}  // namespace crossdock::dialects::mcore
