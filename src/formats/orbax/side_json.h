// SPDX-License-Identifier: Apache-2.0
/// \file  The small JSON files beside a tree, as Orbax 0.12.8 writes them. FORMAT.md, 3.
/// Rows are those of a catalog's objects["tree"] (tree.h). An empty answer means that there is no such file.
/// Threads: pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/dims.h"
#include "tensor/value.h"

namespace crossdock::formats::orbax {

/// `_sharding`: base64 of each jax.Array's name -> the JSON of its sharding, as a string. One device of the CPU: what a restore without
/// a target puts the arrays on; with a target it is not looked at.
[[nodiscard]] std::string ShardingJson(const Value& rows);
/// `_strings.json`: name -> text.
[[nodiscard]] std::string StringsJson(const Value& rows);
/// `array_metadatas/process_0`: of each jax.Array its chunk shape and what the rows have as "ext_metadata".
[[nodiscard]] std::string ArrayMetadatasJson(const Value& rows, const std::function<Shape(const std::string&)>& chunk_shape);
/// `_CHECKPOINT_METADATA` of a step with these items, or of a flat checkpoint when there are none.
[[nodiscard]] std::string StepJson(const std::vector<std::string>& items, const std::string& handler, const Value& custom_metadata);

}  // namespace crossdock::formats::orbax
