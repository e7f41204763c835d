// SPDX-License-Identifier: Apache-2.0
/// \file  The flags with which Megatron-LM loads a checkpoint, from what the checkpoint stores: the same for one that is
/// written, resharded or only looked at. `--use-checkpoint-args` reads most arguments from it, and not these
/// (megatron-core 0.19.2, training/checkpointing.py): q/k norms, epsilon, rope scaling, window, dtype, the layout, the
/// optimizer's settings and the tokenizer.
#pragma once

#include <string>

#include "tensor/catalog.h"
#include "tensor/value.h"

namespace crossdock::dialects::mcore {

/// "--use-checkpoint-args --bf16 --norm-epsilon 1e-06 ..." from arguments in the words of `args`.
[[nodiscard]] std::string LoadFlags(const Value& args);

struct StoredState {
  Value args = Value::MakeDict();   ///< the namespace's content
  bool optimizer = false;           ///< keys of optimizer state are stored
  bool scheduler = false;           ///< common.pt has opt_param_scheduler
  bool release = false;             ///< Megatron then asks for no optimizer state by itself
  bool tokenizer = false;           ///< hf/ holds a tokenizer
};
/// Reads it from a catalog, which may be one that is still to be written.
[[nodiscard]] StoredState StoredStateOf(const Catalog& catalog, bool release);

/// "--load ROOT ..."; `unit` is the iteration's directory, which lies in the run root `root`.
[[nodiscard]] std::string LoadLine(const std::string& root, const std::string& unit, const StoredState& state);

/// What a checkpoint of per-rank files asks of the run that loads it, beyond what LoadLine says of torch_dist.
struct LegacyForm {
  bool distributed = false;        ///< the optimizer's state is that of the distributed optimizer
  bool no_random_state = false;    ///< it holds none, and the run would miss it
  bool torch_dcp = false;          ///< the rank's file was saved by DCP, under torch's FSDP2
};
[[nodiscard]] std::string LegacyLoadLine(std::string line, const LegacyForm& form);

}  // namespace crossdock::dialects::mcore
