// SPDX-License-Identifier: Apache-2.0
/// \file  The bytes of a tensor, put together from what a reader says of its chunks, without the engine.
#pragma once

#include <algorithm>
#include <string>

#include "formats/format.h"
#include "io/storage.h"

namespace crossdock::formats {

inline Result<std::string> ReadBack(io::Storage& storage, const CheckpointReader& reader, std::int32_t index) {
  const Catalog& catalog = reader.catalog();
  const Entry& entry = catalog.entries.at(static_cast<std::size_t>(index));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(entry.dtype, entry.shape));
  const auto element = static_cast<std::size_t>(ElementSize(entry.dtype));
  std::string out(static_cast<std::size_t>(bytes), '?');
  const Dims strides = RowMajorStrides(entry.shape);
  for (std::size_t c = 0; c < entry.chunks.size(); ++c) {
    const Chunk& chunk = entry.chunks[c];
    const std::string path = io::JoinPath(catalog.root, catalog.files.at(static_cast<std::size_t>(chunk.file)).path);
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(path));
    std::string part(static_cast<std::size_t>(chunk.box.count()) * element, '\0');
    CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange range, reader.Locate(index, static_cast<std::int32_t>(c)));
    if (range.length != static_cast<std::int64_t>(part.size())) return MakeError(ErrorCode::kCorrupt, "another length");
    if (chunk.encoding == ChunkEncoding::kEncoded) {
      CROSSDOCK_ASSIGN_OR_RETURN(const auto stream, reader.OpenEncoded(index, static_cast<std::int32_t>(c), *file));
      CROSSDOCK_RETURN_IF_ERROR(stream->Read(std::as_writable_bytes(std::span(part))));
    } else {
      CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(range.offset, std::as_writable_bytes(std::span(part))));
    }
    for (std::int64_t i = 0; i < chunk.box.count(); ++i) {
      std::int64_t rest = i, at = 0;
      for (std::size_t d = chunk.box.rank(); d-- > 0;) {
        at += (chunk.box.offsets[d] + rest % chunk.box.sizes[d]) * strides[d];
        rest /= chunk.box.sizes[d];
      }
      std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * element), element,
                  out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(at) * element));
    }
  }
  return out;
}

}  // namespace crossdock::formats
