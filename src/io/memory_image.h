// SPDX-License-Identifier: Apache-2.0
/// \file  MemoryImage: the nodes of a file system in memory, the operations that change them, and what a crash
/// leaves. It is what MemoryStorage guards with its lock and replays.
/// Threads: none; the owner serialises.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/memory_storage.h"

namespace crossdock::io {

/// A recorded change. Files are named by inode once they are open: their name may change meanwhile.
struct MemoryOperation {
  enum class Kind : std::uint8_t {
    kCreate,
    kMakeDir,
    kRename,
    kExchange,
    kRemoveFile,
    kRemoveDir,
    kSyncDir,
    kWrite,
    kTruncate,
    kSync,
  };
  Kind kind = Kind::kCreate;
  std::string path;         ///< the name, or the one under which the file was opened
  std::string other;        ///< kRename, kExchange
  std::uint64_t inode = 0;  ///< kWrite, kTruncate, kSync
  std::int64_t offset = 0;  ///< kWrite; the new size for kTruncate
  std::string data;
};

class MemoryImage {
 public:
  using Names = std::map<std::string, std::uint64_t>;
  struct Node {
    bool is_dir = false;
    std::int64_t mtime_ns = 0;
    std::string data;
    Names names;
    // What a crash would need to know, kept only when tracking:
    std::string durable_data;
    std::vector<MemoryOperation> unsynced_data;
    Names durable_names;
    std::vector<Names> unsynced_names;  ///< the states since the last SyncDir, oldest first
  };

  MemoryImage();
  /// From now on remembers what is not durable; all that is there is.
  void StartTracking();
  [[nodiscard]] Status Apply(const MemoryOperation& op);
  void Crash(Unsynced unsynced, std::uint64_t seed);

  /// The inode at a path, or 0.
  [[nodiscard]] std::uint64_t Find(std::string_view path) const;
  [[nodiscard]] const Node* Get(std::uint64_t inode) const;
  [[nodiscard]] std::int64_t TotalBytes() const;

 private:
  struct Place {
    Node* dir = nullptr;  ///< null when the parent is no directory
    std::string name;
  };
  [[nodiscard]] Place PlaceOf(std::string_view path);
  [[nodiscard]] Status ApplyToNames(const MemoryOperation& op);
  [[nodiscard]] Status ApplyRename(const MemoryOperation& op, const Place& from);
  void NamesChanged(Node& dir);

  std::map<std::uint64_t, Node> nodes_;
  std::uint64_t next_inode_ = 2;
  std::int64_t clock_ = 0;
  bool tracking_ = false;
};

}  // namespace crossdock::io
