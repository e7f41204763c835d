// SPDX-License-Identifier: Apache-2.0
/// \file  The stored bytes of a chunk, and streams over them: each decoder is a stream that draws from another.
/// Errors: kCorrupt for bytes that contradict their codec. Threads: a stream is used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "crossdock/result.h"
#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::zarr {

/// A range of a file, or bytes in memory (a value that lies within another record). Both outlive it and its copies.
class StoredBytes {
 public:
  StoredBytes(const io::ReadFile& file, ByteRange range) : file_(&file), range_(range) {}
  explicit StoredBytes(std::string_view bytes) : bytes_(bytes), range_{0, static_cast<std::int64_t>(bytes.size())} {}

  [[nodiscard]] std::int64_t size() const { return range_.length; }
  /// kCorrupt when the range does not lie within.
  [[nodiscard]] Status ReadAt(std::int64_t offset, std::span<std::byte> out) const;
  /// kCorrupt when it does not lie within.
  [[nodiscard]] Result<StoredBytes> Part(ByteRange part) const;

 private:
  const io::ReadFile* file_ = nullptr;
  std::string_view bytes_;
  ByteRange range_;
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Puts some bytes at the front of `out`, as many as it likes; 0 at the end only. REQUIRES: `out` is not empty.
  [[nodiscard]] virtual Result<std::size_t> Read(std::span<std::byte> out) = 0;
};

/// The stored bytes themselves.
[[nodiscard]] std::unique_ptr<ByteStream> StreamOf(StoredBytes bytes);
/// Fills `out`; kCorrupt when the stream ends before.
[[nodiscard]] Status ReadFully(ByteStream& stream, std::span<std::byte> out);

}  // namespace crossdock::formats::zarr
