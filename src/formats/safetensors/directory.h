// SPDX-License-Identifier: Apache-2.0
/// \file  Which files of a directory are its weights, and which travel along (FORMAT.md, 3 and 5).
/// Errors: kIncomplete (no weights, several candidates without an index, all named, a shard of a numbered set missing, a
/// dangling link), kUnsupported (only pytorch_model.bin and the like), kUnsafe (index), kUsage (a hub cache without refs).
/// Threads: functions are independent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "formats/safetensors/index.h"
#include "io/storage.h"

namespace crossdock::formats::safetensors {

inline constexpr std::int64_t kMaxIndexBytes = std::int64_t{256} << 20U;

struct Weights {
  std::string dir;
  std::string index_path;              ///< empty without an index
  std::optional<Index> index;
  std::vector<std::string> files;      ///< relative to dir, numbers by value
  std::vector<std::string> notices;    ///< stray weight files, oddities
};

/// `path`: a directory, a .safetensors file or a .safetensors.index.json. Reads directories and the index only.
[[nodiscard]] Result<Weights> ChooseWeights(io::Storage& storage, const std::string& path);

/// True for names of tensor data in any format, and their indexes: never copied as side files.
[[nodiscard]] bool IsWeightFile(std::string_view name);

/// kIncomplete with link and target when `path` is a link that leads nowhere.
[[nodiscard]] Status CheckLink(io::Storage& storage, const std::string& path);

}  // namespace crossdock::formats::safetensors
