// SPDX-License-Identifier: Apache-2.0
/// \file  StoredChunks: the elements of stored chunks by offset, whether they lie in their file as they are or encoded.
/// An encoded chunk is decoded into memory where the bound allows (the least recently used of those kept goes first). A larger
/// one is decoded as a stream from its beginning to what is asked for, again whenever an earlier part is wanted: slow for
/// transposed tensors, but it needs neither memory nor a disk.
/// Errors: those of reading. Threads: one.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "formats/format.h"
#include "io/storage.h"

namespace crossdock::verify {

class StoredChunks {
 public:
  /// Decoded chunks take at most `memory` bytes. REQUIRES: both outlive this.
  StoredChunks(io::Storage& storage, const formats::CheckpointReader& reader, std::int64_t memory)
      : storage_(storage), reader_(reader), memory_(memory) {}

  /// Fills `out` from byte `offset` of the chunk's elements.
  [[nodiscard]] Status ReadAt(std::int32_t entry, std::int32_t chunk, std::int64_t offset, std::span<std::byte> out);

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;
  struct Decoded {
    Key key;
    std::vector<std::byte> bytes;                    ///< all of it, or
    std::unique_ptr<formats::ElementStream> stream;  ///< the next byte that it gives is at `at`
    std::int64_t at = 0;
  };
  [[nodiscard]] Result<io::ReadFile*> File(std::int32_t index);
  [[nodiscard]] Result<Decoded*> Find(Key key, std::int64_t bytes);
  [[nodiscard]] Status ReadStream(Decoded& decoded, std::int64_t offset, std::span<std::byte> out);

  io::Storage& storage_;
  const formats::CheckpointReader& reader_;
  const std::int64_t memory_;
  std::map<std::int32_t, std::unique_ptr<io::ReadFile>> files_;
  std::list<Decoded> decoded_;  ///< most recently used first
  std::int64_t kept_ = 0;       ///< bytes of those that are kept whole
};

}  // namespace crossdock::verify
