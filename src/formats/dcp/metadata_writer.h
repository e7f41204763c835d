// SPDX-License-Identifier: Apache-2.0
/// \file  Writes `.metadata`, the pickle that torch's DCP and Megatron-Core read, chunk by chunk.
/// On disk: FORMAT.md, 1: protocol 2, five fields of TensorProperties (older torch takes no more), MetadataIndex without
/// `index`, storage_meta None, no all_local_plans. Memory holds distinct names only.
/// Invariant: bytes depend on the placed catalog only. Threads: pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/catalog.h"

namespace crossdock::formats::dcp {

/// What the metadata says of a chunk: the file and the range of its whole blob.
struct BlobPlace {
  std::string_view file;
  ByteRange bytes;
};

/// A tensor without axes that is no entry of the catalog: one chunk, its blob lies at `bytes`.
struct ScalarPlace {
  std::string name;
  DType dtype = DType::kF32;
  std::int32_t file = -1;
  ByteRange bytes;
};

/// What the metadata says beside the catalog.
struct Besides {
  std::span<const ScalarPlace> scalars;
  const Value* planner_data = nullptr;  ///< a dict key -> tuple of texts and integers; null: None is written
};

using Sink = std::function<Status(std::string_view)>;

/// Gives the pickle to `sink` in pieces. `place` tells where the blob of a chunk lies; objects are catalog.object_refs.
[[nodiscard]] Status EmitMetadata(const Catalog& catalog, const Besides& besides,
                                  const std::function<Result<BlobPlace>(const Entry&, const Chunk&)>& place, const Sink& sink);

}  // namespace crossdock::formats::dcp
