// SPDX-License-Identifier: Apache-2.0
/// \file  SourceFiles: the files of the source catalog, opened when the first task needs them and closed after the
/// last, or when more than kMostOpenFiles are open (a zarr checkpoint has a file a chunk): then the one that was opened first
/// goes, and comes back when it is needed again. A chunk that is stored encoded is a file of its own, numbered after the
/// catalog's, that holds the decoded elements (decoded_chunks.h). Invariant: a file whose identity is not the catalog's, when opened or after its last read, is an error.
/// Errors: kCorrupt "changed while it was read". Threads: all members may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "crossdock/result.h"
#include "execute/decoded_chunks.h"
#include "execute/target_files.h"
#include "io/storage.h"
#include "plan/plan.h"
#include "tensor/catalog.h"

namespace crossdock::execute {

class SourceFiles {
 public:
  /// `decoded` is needed where the catalog has encoded chunks, and outlives this.
  SourceFiles(io::Storage& storage, const Catalog& catalog, DecodedChunks* decoded = nullptr);
  /// The number that ReadAt and Drop know the place of a read by.
  [[nodiscard]] std::int32_t PlaceOf(const plan::Read& read) const;
  /// Announces the reads of a task that will be run: a file stays open until they are all released.
  void Expect(const plan::Task& task);
  /// The task was run: its reads will not come again.
  [[nodiscard]] Status Release(const plan::Task& task);
  [[nodiscard]] Status ReadAt(std::int32_t file, std::int64_t offset, std::span<std::byte> out);
  /// Copies a range into a target file without passing through this process; false where it must be read and written: what is
  /// stored encoded, and files that cannot (io::WriteFile::CopyFrom).
  [[nodiscard]] Result<bool> CopyTo(TargetFiles& targets, std::int32_t target, std::int64_t to, std::int32_t file, std::int64_t from, std::int64_t length);
  /// What lies in the range is read next, in short pieces, or by the tasks that follow.
  [[nodiscard]] Status WillNeed(std::int32_t file, std::int64_t offset, std::int64_t length);
  /// The range was read and will not be read again. REQUIRES: between ReadAt and Release of the same task.
  void Drop(std::int32_t file, std::int64_t offset, std::int64_t length);
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_.load(); }

 private:
  struct Slot {
    std::mutex mutex;
    std::shared_ptr<const io::ReadFile> file;
    std::atomic<std::int64_t> expected = 0;
  };
  static constexpr std::size_t kMostOpenFiles = 256;  ///< well below the usual limit of 1024 descriptors
  [[nodiscard]] std::int32_t FileOf(const plan::Read& read) const;
  [[nodiscard]] std::int32_t EncodedOf(const plan::Read& read) const;  ///< -1: stored as it is
  /// Remembers that a file was opened; closes the one that has been open longest when there are too many.
  [[nodiscard]] Status Opened(std::size_t index);
  [[nodiscard]] Result<std::shared_ptr<const io::ReadFile>> Get(std::int32_t file);
  [[nodiscard]] Status CheckIdentity(const io::ReadFile& opened, const FileRef& ref) const;

  io::Storage& storage_;
  const Catalog& catalog_;
  DecodedChunks* decoded_;
  std::vector<Slot> slots_;
  std::mutex order_mutex_;
  std::deque<std::size_t> order_;  ///< of opening; files that were closed since may stand in it
  std::atomic<std::int64_t> bytes_read_ = 0;
};

}  // namespace crossdock::execute
