// SPDX-License-Identifier: Apache-2.0
/// \file  DirectFile: large writes past the page cache (O_DIRECT), beside the descriptor that writes all else.
/// Whole pages of the file go directly, what is left at both ends through the cache: no page is written in both ways, so the two never
/// see each other's half. Only what lies in memory as it does in the file, by pages: to move it first would cost what is gained. What is
/// streamed does, what was computed with seldom does, and whoever computes had better not wait for the disk. Why: a page that is written
/// once and not read costs more to be found, marked, written back and given up again than to be filled (docs/performance.md).
/// Errors: none. What the system refuses (no O_DIRECT there, another alignment) or fails at is not written, and whoever writes the same
/// bytes through the cache is told what is wrong. Durability is Sync's, as for other writes.
/// Threads: all members may be called from any thread. Reference: open(2), "O_DIRECT".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "io/file_descriptor.h"

namespace crossdock::io {

/// How many files of one storage are open twice: few, for descriptors are. More are written through the cache.
class DirectFiles {
 public:
  static constexpr int kMost = 64;
  [[nodiscard]] bool Take();   ///< false where kMost are open
  void Return() { --open_; }

 private:
  std::atomic<int> open_{0};
};

class DirectFile {
 public:
  static constexpr std::size_t kLeast = std::size_t{256} << 10U;  ///< shorter writes are better gathered by the cache

  /// Opens nothing before the first large write. `same` is the file at `path`, opened as usual.
  DirectFile(std::string path, std::shared_ptr<const FileDescriptor> same, std::shared_ptr<DirectFiles> files);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  struct Part {
    std::size_t first = 0;   ///< within the data
    std::size_t length = 0;  ///< 0: all of it goes through the cache
  };
  /// What of `data`, for `offset`, fills whole pages of the file, where that is much and lies at the border of a page in memory too.
  [[nodiscard]] static Part WholePages(std::int64_t offset, std::span<const std::byte> data);
  /// Writes `pages`, whole pages at `offset`, and says how many bytes of it, from the first on.
  [[nodiscard]] std::size_t Write(std::int64_t offset, std::span<const std::byte> pages);

 private:
  [[nodiscard]] bool Open();

  std::string path_;
  std::shared_ptr<const FileDescriptor> same_;
  std::shared_ptr<DirectFiles> files_;
  std::once_flag once_;
  std::unique_ptr<FileDescriptor> direct_;   ///< null where it was refused
  std::atomic<bool> refused_{false};
};

}  // namespace crossdock::io
