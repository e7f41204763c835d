// SPDX-License-Identifier: Apache-2.0
/// \file  What the parsers of `.zarray` and `zarr.json` share: reading sizes, and the words of their errors.
/// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "formats/zarr/array_metadata.h"
#include "tensor/value.h"

namespace crossdock::formats::zarr {

/// kCorrupt: the metadata contradicts the specification.
[[nodiscard]] Error Malformed(std::string what);
/// kUnsupported: the array is sound, but stored in a way that we do not read.
[[nodiscard]] Error NotCarried(std::string what, std::string expected, std::string found);

/// A list of sizes, each at least `least`.
[[nodiscard]] Result<Dims> ReadDims(const Value& json, std::string_view name, std::int64_t least);
/// 0, 0.0 (not -0.0) or false.
[[nodiscard]] bool IsZero(const Value& value);
/// Equal ranks, sizes that do not overflow.
[[nodiscard]] Status CheckShapes(const ArrayMetadata& array);

}  // namespace crossdock::formats::zarr
