// SPDX-License-Identifier: Apache-2.0
/// \file  model.safetensors.index.json: which tensor lies in which file.
/// On disk (FORMAT.md, 2): {"metadata": {"total_parameters": P, "total_size": B}, "weight_map": {name: file}}; transformers
/// writes it with indent 2, keys sorted, newline at the end.
/// Errors: kCorrupt for bad JSON and duplicate names; kUnsafe for a file that is not below the directory.
/// Threads: an Index is a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::formats::safetensors {

struct Index {
  struct Item {
    std::string name;
    std::int32_t file = 0;                  ///< into `files`
  };
  std::vector<Item> items;                  ///< in the order of the document
  std::vector<std::string> files;           ///< relative, sorted with numbers by value
  std::optional<std::int64_t> total_size;   ///< absent when the document has none or it is no number
};

[[nodiscard]] Result<Index> ParseIndex(std::string json, const std::string& path);

/// "shard-2" before "shard-10": runs of digits compare by value, everything else by byte.
[[nodiscard]] bool NaturalLess(std::string_view a, std::string_view b);

/// The text around the lines of the map, which IndexLine prints: Python's json.dumps(indent=2, sort_keys=True).
[[nodiscard]] std::string IndexHead(std::int64_t total_parameters, std::int64_t total_size);
[[nodiscard]] std::string IndexLine(std::string_view name, std::string_view file, bool last);
[[nodiscard]] std::string IndexTail();

}  // namespace crossdock::formats::safetensors
