// SPDX-License-Identifier: Apache-2.0
/// \file  TargetFiles: the files of a placement in the staging directory: made at their full size at the start, so
/// that a full disk shows early, opened on demand, synced together.
/// Files of encoded chunks are made empty and grow; Trim gives them their size at the end.
/// Invariant: after SyncAll every write that had returned before the call is durable.
/// Threads: all members but Create may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "crossdock/result.h"
#include "formats/format.h"
#include "io/storage.h"
#include "plan/plan.h"

namespace crossdock::execute {

class TargetFiles {
 public:
  TargetFiles(io::Storage& storage, std::string dir, const Catalog& catalog);
  /// Makes every file, and the directories that they lie in, anew; what an earlier run left is removed.
  [[nodiscard]] Status Create();
  /// All files are there with their sizes (an interrupted run made them); those of encoded chunks with any size.
  [[nodiscard]] bool AllPresent() const;
  /// The file holds so many bytes at least.
  [[nodiscard]] bool Reaches(std::int32_t file, std::int64_t size) const;
  /// Nothing stands behind `size`. REQUIRES: everything is written.
  [[nodiscard]] Status Trim(std::int32_t file, std::int64_t size);
  /// A file is closed at a SyncAll after the outputs of all expected tasks are released.
  void Expect(const plan::Task& task);
  void Release(const plan::Task& task);
  [[nodiscard]] Status WriteAt(std::int32_t file, std::int64_t offset, std::span<const std::byte> data);
  /// io::WriteFile::CopyFrom: false where the range must be written instead.
  [[nodiscard]] Result<bool> CopyFrom(std::int32_t file, std::int64_t offset, const io::ReadFile& source, std::int64_t from, std::int64_t length);
  [[nodiscard]] Status WriteFrames(const std::vector<formats::Frame>& frames);
  [[nodiscard]] Status SyncAll();
  [[nodiscard]] std::int64_t bytes_written() const { return bytes_written_.load(); }

 private:
  struct Slot {
    std::mutex mutex;
    std::shared_ptr<io::WriteFile> file;
    bool dirty = false;
    std::atomic<std::int64_t> expected = 0;
  };
  [[nodiscard]] Result<std::shared_ptr<io::WriteFile>> Get(std::size_t file);
  /// `length` bytes from `offset` were written.
  void Written(std::size_t file, io::WriteFile& opened, std::int64_t offset, std::int64_t length);
  [[nodiscard]] std::string PathOf(std::size_t file) const;
  [[nodiscard]] std::int32_t FileOf(const plan::Output& output) const;

  io::Storage& storage_;
  std::string dir_;
  const Catalog& catalog_;
  std::vector<Slot> slots_;
  std::vector<bool> grows_;  ///< files of encoded chunks
  std::atomic<std::int64_t> bytes_written_ = 0;
};

}  // namespace crossdock::execute
