// SPDX-License-Identifier: Apache-2.0
/// \file  zarr.json: the metadata of a zarr v3 array.
/// On disk (FORMAT.md, 4; zarr v3 core specification, codecs bytes, gzip, blosc, crc32c, sharding_indexed 1.0, and zstd as
/// TensorStore 0.1.86 writes it): JSON with zarr_format 3, node_type "array", shape, data_type, chunk_grid (regular),
/// chunk_key_encoding (default or v2), codecs, fill_value, and what a reader may skip: attributes, dimension_names.
/// Carried: codecs = [transpose that moves nothing], bytes (little), then zstd | gzip | blosc | crc32c; or sharding_indexed over
/// such a list, with an index of bytes and crc32c. Errors: kCorrupt, kUnsupported by name. Threads: pure.
#pragma once

#include <optional>
#include <string_view>

#include "crossdock/result.h"
#include "formats/zarr/array_metadata.h"

namespace crossdock::formats::zarr {

[[nodiscard]] Result<ArrayMetadata> ParseZarrJson(std::string_view json);

}  // namespace crossdock::formats::zarr
