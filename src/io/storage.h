// SPDX-License-Identifier: Apache-2.0
/// \file  Storage: the only door to files. Everything that reads or writes a checkpoint goes through it, so
/// that tests can count calls, make call N fail, drop what was not synced and replay a crash.
/// Paths are absolute or relative to the process, '/'-separated; an implementation resolves nothing itself.
/// Errors: kIo and kNoSpace name the path and carry the system's words; kIncomplete when a file is absent.
/// Threads: a Storage and its files may be used from several threads at once; ReadAt and WriteAt of one file
/// do not interfere when their ranges are disjoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::io {

enum class FileKind : std::uint8_t { kFile, kDirectory, kOther };

struct FileInfo {
  FileKind kind = FileKind::kFile;
  std::int64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  bool is_symlink = false;  ///< the name itself is a link; the rest describes what it points to
};

struct DirEntry {
  std::string name;
  FileKind kind = FileKind::kFile;  ///< of what a link points to; kOther for a dangling link
  bool is_symlink = false;
};

/// What a file system can do (asked once a target directory).
struct Capabilities {
  bool random_write = true;
  bool atomic_rename = true;
  bool exchange = true;  ///< RENAME_EXCHANGE
  bool preallocate = true;
  bool direct_io = true;
  bool writable = true;  ///< this process may make files in the directory
  std::int64_t free_bytes = 0;
};

class ReadFile {
 public:
  virtual ~ReadFile() = default;
  /// Fills `out` from `offset`. A short read (end of file) is kCorrupt with expected and found sizes.
  /// Retries EINTR and partial reads; safe to repeat.
  [[nodiscard]] virtual Status ReadAt(std::int64_t offset, std::span<std::byte> out) const = 0;
  [[nodiscard]] virtual Result<FileInfo> Info() const = 0;
  /// A hint that [offset, offset+length) will not be read again: its page cache may go. Length 0 means to the end.
  virtual void DropCache(std::int64_t offset, std::int64_t length) const = 0;
  /// Hint: reads of parts of this range follow, out of order or with holes between them. Nothing by default.
  virtual void WillNeed(std::int64_t /*offset*/, std::int64_t /*length*/) const {}
  [[nodiscard]] virtual const std::string& path() const = 0;
};

class WriteFile {
 public:
  virtual ~WriteFile() = default;  ///< closes without a sync; never commits anything
  /// Writes all of `data` at `offset`; the file grows as needed.
  [[nodiscard]] virtual Status WriteAt(std::int64_t offset, std::span<const std::byte> data) = 0;
  /// Copies `length` bytes of another file inside the system, without passing through this process. False: these two files
  /// cannot, or it failed half-way; then nothing is promised of the range, and reading and writing it says what is wrong.
  [[nodiscard]] virtual bool CopyFrom(const ReadFile& /*source*/, std::int64_t /*from*/, std::int64_t /*to*/, std::int64_t /*length*/) { return false; }
  /// Reserves room so that a full disk shows now; not an error where the file system cannot.
  [[nodiscard]] virtual Status Preallocate(std::int64_t size) = 0;
  [[nodiscard]] virtual Status Truncate(std::int64_t size) = 0;
  /// Starts write-back of the range and, for what was started before, waits and drops the cache: keeps dirty
  /// pages few while writing. A hint; errors surface in Sync.
  virtual void StartWriteback(std::int64_t offset, std::int64_t length) = 0;
  /// Makes the content durable (fdatasync). Only its success says that earlier writes are safe.
  [[nodiscard]] virtual Status Sync() = 0;
  [[nodiscard]] virtual const std::string& path() const = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  [[nodiscard]] virtual Result<FileInfo> Stat(const std::string& path) = 0;              ///< kIncomplete when absent
  [[nodiscard]] virtual Result<std::vector<DirEntry>> List(const std::string& dir) = 0;  ///< sorted by name
  [[nodiscard]] virtual Result<std::string> ReadLink(const std::string& path) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<ReadFile>> OpenRead(const std::string& path) = 0;
  /// Creates a file that must not exist, never through a link (O_EXCL | O_NOFOLLOW), mode 0666 less umask.
  [[nodiscard]] virtual Result<std::unique_ptr<WriteFile>> Create(const std::string& path) = 0;
  /// Opens a file of ours for going on with it (resume).
  [[nodiscard]] virtual Result<std::unique_ptr<WriteFile>> OpenWrite(const std::string& path) = 0;
  [[nodiscard]] virtual Status MakeDir(const std::string& path) = 0;  ///< one level; error when present
  [[nodiscard]] virtual Status Rename(const std::string& from, const std::string& to) = 0;  ///< replaces a file
  [[nodiscard]] virtual Status Exchange(const std::string& a,
                                        const std::string& b) = 0;  ///< kUnsupported where it cannot
  [[nodiscard]] virtual Status RemoveFile(const std::string& path) = 0;
  [[nodiscard]] virtual Status RemoveDir(const std::string& path) = 0;  ///< empty ones
  [[nodiscard]] virtual Status SyncDir(const std::string& dir) = 0;
  /// An exclusive lock on a file (created when absent) held until the returned object dies; null when another process
  /// holds it, kIo when the file cannot be made or locked.
  [[nodiscard]] virtual Result<std::unique_ptr<WriteFile>> Lock(const std::string& path) = 0;
  [[nodiscard]] virtual Result<Capabilities> Probe(const std::string& dir) = 0;
};

// ---- over any storage ----
[[nodiscard]] bool Exists(Storage& storage, const std::string& path);
/// Whole small file; kUnsupported above `limit` bytes.
[[nodiscard]] Result<std::string> ReadSmallFile(Storage& storage, const std::string& path,
                                                std::int64_t limit = 64 << 20);
/// Create, write, sync.
[[nodiscard]] Status WriteSmallFile(Storage& storage, const std::string& path, std::string_view content);
/// Absent is fine.
[[nodiscard]] Status RemoveFileIfPresent(Storage& storage, const std::string& path);
/// Creates `path` and its missing parents.
[[nodiscard]] Status MakeDirs(Storage& storage, const std::string& path);
/// Removes a tree without following links; absent is fine.
[[nodiscard]] Status RemoveTree(Storage& storage, const std::string& path);
/// Byte-for-byte copy in pieces of 1 MiB, synced.
[[nodiscard]] Status CopyFile(Storage& from, const std::string& source, Storage& to, const std::string& target);

[[nodiscard]] std::string JoinPath(std::string_view dir, std::string_view name);
[[nodiscard]] std::string ParentPath(std::string_view path);
[[nodiscard]] std::string BaseName(std::string_view path);
/// From the root of the file system, without `.` and `..`; an empty path is the process's own directory. No link is followed.
[[nodiscard]] std::string AbsolutePath(const std::string& path);
/// kUnsafe when a path that a file names is absolute, has "..", an empty or "." part, a backslash or a NUL.
[[nodiscard]] Status CheckRelativePath(std::string_view path);

/// When a local file copies ranges by copy_file_range.
enum class SystemCopies : std::uint8_t {
  kWhereItPays,  ///< file systems that share blocks or copy on their server
  kAlways,
};

/// The local file system.
[[nodiscard]] std::unique_ptr<Storage> MakeLocalStorage(SystemCopies copies = SystemCopies::kWhereItPays);

}  // namespace crossdock::io
