// SPDX-License-Identifier: Apache-2.0
/// \file  What zarr v2 and v3 call the types of elements. `int4` is none of them: readers widen it.
/// Threads: pure.
#pragma once

#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace crossdock::formats::zarr {

/// "<f4", "|b1", "bfloat16": the dtype of a v2 array; nothing for a type that a catalog has no word for.
[[nodiscard]] std::optional<DType> DTypeFromZarr(std::string_view name);
/// "float32", "bool", "bfloat16": the same of v3.
[[nodiscard]] std::optional<DType> DTypeFromZarr3(std::string_view name);

/// Nothing for a type that v2, or v3, has no name for.
[[nodiscard]] std::optional<std::string_view> ZarrName(DType dtype);
[[nodiscard]] std::optional<std::string_view> Zarr3Name(DType dtype);

}  // namespace crossdock::formats::zarr
