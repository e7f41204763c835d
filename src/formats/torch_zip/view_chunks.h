// SPDX-License-Identifier: Apache-2.0
/// \file  A strided view of a storage as contiguous pieces, each a chunk of its tensor.
/// Errors: kCorrupt for a view that leaves its storage; kUnsupported for more than 2^20 pieces. Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/catalog.h"
#include "tensor/value.h"

namespace crossdock::formats::torch_zip {

inline constexpr std::int64_t kMaxPieces = std::int64_t{1} << 20U;

/// `storage` is where the view's storage lies in file number `file`.
[[nodiscard]] Result<std::vector<Chunk>> ChunksOfView(const TensorValue& view, const ByteRange& storage, std::int32_t file);

}  // namespace crossdock::formats::torch_zip
