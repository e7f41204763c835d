// SPDX-License-Identifier: Apache-2.0
/// \file  DirectFile: a second descriptor of an open file, whose transfers pass the page cache by (O_DIRECT). A
/// conversion touches each byte once, so the cache only costs: two thirds of the CPU of a buffered copy is copying into
/// it, and giving its pages out and back.
/// Used where it is known to be good: ext4 and XFS on a kernel that tells what is cached (Linux 6.5). Elsewhere, and
/// after the first refusal, Ready says no and the caller uses the descriptor it has: nothing but speed depends on it.
/// Invariant: it is the same file as the buffered descriptor's (device and inode are compared).
/// Coherence: only whole blocks are moved. The kernel writes back and drops the cached pages of just these.
/// Errors: none are told. A transfer that moves less than asked is done again by the caller through the cache, which
/// then tells what is wrong. Threads: all members may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "io/file_descriptor.h"

namespace crossdock::io {

class DirectFile {
 public:
  /// What a file system's blocks and a device's memory addresses are multiples of.
  static constexpr std::int64_t kBlock = 4096;
  /// Smaller transfers gain less than a wait for the disk costs them; the kernel reads ahead for those.
  static constexpr std::int64_t kLeast = std::int64_t{128} << 10U;

  /// `access`: O_RDONLY or O_RDWR, with O_NOFOLLOW where the buffered one was opened so.
  explicit DirectFile(int access) : access_(access) {}
  /// Opens on the first call. REQUIRES: the same file each time.
  [[nodiscard]] bool Ready(const FileDescriptor& buffered, const std::string& path);
  /// What offsets and lengths of reads are multiples of. REQUIRES: Ready.
  [[nodiscard]] std::int64_t read_unit() const { return read_unit_; }
  /// Bytes moved from the start of `out`. REQUIRES: Ready, and everything a multiple of its unit.
  [[nodiscard]] std::size_t Read(std::int64_t offset, std::span<std::byte> out);
  [[nodiscard]] std::size_t Write(std::int64_t offset, std::span<const std::byte> data);

 private:
  void Open(const FileDescriptor& buffered, const std::string& path);

  const int access_;
  std::once_flag once_;
  std::optional<FileDescriptor> fd_;
  std::int64_t read_unit_ = kBlock;
  std::atomic<bool> usable_ = false;
};

/// How much of a range lies in the page cache; nothing where the kernel does not tell (before Linux 6.5, or of a file
/// that the user may not write).
[[nodiscard]] std::optional<std::int64_t> CachedBytes(const FileDescriptor& file, std::int64_t offset,
                                                      std::int64_t length);

}  // namespace crossdock::io
