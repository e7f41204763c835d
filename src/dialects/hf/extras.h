// SPDX-License-Identifier: Apache-2.0
/// \file  HubState::extras as the metadata string `crossdock_extras` of full-state files, and back.
/// On disk: {"words": "mcore", "values": {...}} in JSON. What JSON lacks is tagged: {"__tuple__": [...]},
/// {"__dtype__": "BF16"}. Opaque objects, bytes and tensors have no place there: they are named in `dropped`.
/// Invariant: DecodeExtras(EncodeExtras(v)) equals v when nothing was dropped.
/// Errors: kCorrupt for a string that is no such JSON. Threads: functions are pure.
#pragma once

#include <string>
#include <vector>

#include "crossdock/result.h"
#include "tensor/value.h"

namespace crossdock::dialects::hf {

[[nodiscard]] std::string EncodeExtras(const Value& extras, const std::string& words, std::vector<std::string>* dropped);

struct Extras {
  Value values = Value::MakeDict();
  std::string words;
};
[[nodiscard]] Result<Extras> DecodeExtras(const std::string& text);

}  // namespace crossdock::dialects::hf
