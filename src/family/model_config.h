// SPDX-License-Identifier: Apache-2.0
/// \file  ModelConfig: the configuration of a model as a checkpoint carries it, in one dialect's words.
#pragma once

#include <string>

#include "tensor/value.h"

namespace crossdock::family {

/// `words` says how to read `values`: "hf" (a config.json) or "mcore" (Megatron's arguments, a dict).
struct ModelConfig {
  std::string words;
  Value values = Value::MakeDict();
};

}  // namespace crossdock::family
