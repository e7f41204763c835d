// SPDX-License-Identifier: Apache-2.0
/// \file  DecodedChunks: the elements of source chunks that are stored encoded (ChunkEncoding::kEncoded), decoded once for
/// all tasks that read them. Where memory has room a decoded chunk is kept whole until its last task is done; else it goes,
/// as a stream, to a scratch file `.crossdock-decoded-N` in the staging directory, which is removed after the last task.
/// Invariants: memory kept is part of the pool's and never more than asked for; nobody waits for memory here, so that tasks
/// which wait for theirs always get it. A chunk is decoded by one worker; others that need it meanwhile decode those that lie behind
/// it, as far as memory has room, so that chunks are decoded on all cores.
/// Errors: those of the reader's ElementStream, kNoSpace for a scratch file, kCancelled. Threads: all members, once all is expected.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "execute/memory_budget.h"
#include "formats/format.h"
#include "io/storage.h"

namespace crossdock::execute {

/// Opens a file of the source catalog, of which so many bytes will be read.
using OpenStored = std::function<Result<std::shared_ptr<const io::ReadFile>>(std::int32_t file, std::int64_t bytes)>;

class DecodedChunks {
 public:
  /// At most `kept` bytes of the pool; scratch files lie in `dir` of `storage`. All outlive this. `stopped` ends a decoding.
  DecodedChunks(const formats::CheckpointReader& reader, BufferPool& pool, std::int64_t kept, io::Storage& storage,
                std::string dir, std::function<bool()> stopped);
  ~DecodedChunks();  ///< scratch files of a run that failed go too
  /// The number of a chunk, or -1 when it is stored as it is.
  [[nodiscard]] std::int32_t NumberOf(std::int32_t entry, std::int32_t chunk) const;
  /// One more read of the chunk will come. REQUIRES: before the first ReadAt of any.
  void Expect(std::int32_t number);
  /// One of them will not come again; after the last the chunk is forgotten and its scratch file removed.
  [[nodiscard]] Status Release(std::int32_t number);
  /// Decodes the chunk if nobody did. REQUIRES: the range lies within the chunk.
  [[nodiscard]] Status ReadAt(std::int32_t number, std::int64_t offset, std::span<std::byte> out, const OpenStored& open);

 private:
  struct Decoded {
    std::int32_t entry = 0, chunk = 0;
    std::atomic<std::int64_t> expected = 0;
    std::atomic<bool> decoding = false;
    std::mutex mutex;  ///< guards what follows; held while it is decoded
    BufferPool::Lease memory;
    std::int64_t held = 0;  ///< bytes of `memory`
    std::unique_ptr<io::ReadFile> scratch;
  };
  /// Without `may_spool` nothing is done where memory has no room. REQUIRES: the chunk's mutex is held.
  [[nodiscard]] Status Decode(Decoded& decoded, std::int32_t number, const OpenStored& open, bool may_spool);
  /// Decodes one chunk that comes after `number`; false when there is none to be had.
  [[nodiscard]] bool DecodeAhead(std::int32_t number, const OpenStored& open);
  /// Fills `out`, looking at `stopped` now and then.
  [[nodiscard]] Status Pull(formats::ElementStream& stream, std::span<std::byte> out) const;
  /// Memory for a decoded chunk, or nothing when it has to go to a file.
  [[nodiscard]] Result<std::optional<BufferPool::Lease>> Room(std::int64_t bytes);
  [[nodiscard]] Status Spool(Decoded& decoded, std::int32_t number, formats::ElementStream& stream, std::int64_t bytes);
  [[nodiscard]] std::string ScratchPath(std::int32_t number) const;
  void Forget(Decoded& decoded);

  const formats::CheckpointReader& reader_;
  BufferPool& pool_;
  const std::int64_t kept_;
  io::Storage& storage_;
  const std::string dir_;
  const std::function<bool()> stopped_;
  std::vector<std::int32_t> first_;  ///< of each entry: the number of its first chunk, -1 when none is encoded
  std::vector<std::unique_ptr<Decoded>> chunks_;
  std::vector<std::int32_t> order_, position_;  ///< the chunks by their places in files; where each stands among them
  std::atomic<std::int64_t> held_ = 0;
};

}  // namespace crossdock::execute
