// SPDX-License-Identifier: Apache-2.0
/// \file  Puts together a whole tensor from the chunks that a reader locates; for tests.
#pragma once

#include <cstring>
#include <string>

#include "formats/format.h"

namespace crossdock::formats {

/// Copies a row-major box into a row-major tensor, innermost runs at a time.
inline void PasteBox(const Box& box, const Shape& shape, std::int64_t item, const std::string& from, std::string& to) {
  const Dims strides = RowMajorStrides(shape);
  const std::int64_t count = CheckedCount(box.sizes);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t at = 0;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      at += (box.offsets[axis] + rest % box.sizes[axis]) * strides[axis];
      rest /= box.sizes[axis];
    }
    std::memcpy(to.data() + at * item, from.data() + i * item, static_cast<std::size_t>(item));
  }
}

inline Result<std::string> ReadWhole(io::Storage& storage, const CheckpointReader& reader, std::int32_t index) {
  const Catalog& catalog = reader.catalog();
  const Entry& entry = catalog.entries.at(static_cast<std::size_t>(index));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t size, ByteSize(entry.dtype, entry.shape));
  std::string out(static_cast<std::size_t>(size), '\0');
  for (std::size_t i = 0; i < entry.chunks.size(); ++i) {
    const Chunk& chunk = entry.chunks[i];
    CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange range, reader.Locate(index, static_cast<std::int32_t>(i)));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(io::JoinPath(catalog.root, catalog.files.at(static_cast<std::size_t>(chunk.file)).path)));
    std::string data(static_cast<std::size_t>(range.length), '\0');
    CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(range.offset, std::as_writable_bytes(std::span(data))));
    PasteBox(chunk.box, entry.shape, ElementSize(entry.dtype), data, out);
  }
  return out;
}

}  // namespace crossdock::formats
