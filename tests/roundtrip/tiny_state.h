// SPDX-License-Identifier: Apache-2.0
/// \file  A tiny model of any built-in family with Adam state, as a full-state directory in memory: 4 layers, hidden 16,
/// 4 experts where the family has such, 4 heads, 2 KV heads of 4, ffn 24, vocabulary 50. Every element differs from its neighbours, and each master rounds to
/// its weight, so that exchanged rows, columns, layers or slots show.
#pragma once

#include <map>
#include <string>

#include "io/storage.h"

namespace crossdock {

struct TinyFamily {
  const char* label;
  const char* family;
  bool tied;
};

/// Writes DIR/model.safetensors and DIR/config.json.
[[nodiscard]] Status WriteTinyState(io::Storage& storage, const std::string& dir, const TinyFamily& family);

/// dtype, shape and bytes of every tensor of a directory of safetensors files, by name; read without the engine's reader.
[[nodiscard]] std::map<std::string, std::string> ReadTensors(const std::map<std::string, std::string>& files);

}  // namespace crossdock
