// SPDX-License-Identifier: Apache-2.0
/// \file  MemoryStorage: a file system in memory with a model of durability, for tests.
/// Every change is recorded; AfterCrash replays any prefix of the record and then forgets what was not made durable:
/// the content of a file is durable after its Sync, a name in a directory after SyncDir of that directory, and
/// neither brings the other along. Changes inside one directory reach the disk in their order; the writes of
/// a file in any order or not at all.
/// Invariant: inode numbers and times are the same in a replay, so that identities may be compared.
/// Threads: as Storage. Links are not modelled: ReadLink is always an error.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "io/storage.h"

namespace crossdock::io {

/// What becomes of changes that were not synced when the machine goes down.
enum class Unsynced : std::uint8_t {
  kLost,  ///< none is there
  kKept,  ///< all are there, as if the process alone had been killed
  kSome,  ///< chosen by a seed
};

class MemoryStorage final : public Storage {
 public:
  MemoryStorage();
  ~MemoryStorage() override;

  /// What is there now counts as durable, and the record starts anew.
  void StartRecord();
  [[nodiscard]] std::size_t record_size() const;
  /// "write 4096 bytes at 0 of out/a", for messages of tests.
  [[nodiscard]] std::string Describe(std::size_t operation) const;
  /// The storage after the first `count` recorded operations and a crash.
  [[nodiscard]] std::unique_ptr<MemoryStorage> AfterCrash(std::size_t count, Unsynced unsynced,
                                                          std::uint64_t seed = 0) const;
  /// All files below `dir` with their content, by relative path.
  [[nodiscard]] std::map<std::string, std::string> Files(const std::string& dir) const;
  /// Writes that would let all files together grow beyond `bytes` are kNoSpace.
  void SetCapacity(std::int64_t bytes);

  Result<FileInfo> Stat(const std::string& path) override;
  Result<std::vector<DirEntry>> List(const std::string& dir) override;
  Result<std::string> ReadLink(const std::string& path) override;
  Result<std::unique_ptr<ReadFile>> OpenRead(const std::string& path) override;
  Result<std::unique_ptr<WriteFile>> Create(const std::string& path) override;
  Result<std::unique_ptr<WriteFile>> OpenWrite(const std::string& path) override;
  Status MakeDir(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Exchange(const std::string& a, const std::string& b) override;
  Status RemoveFile(const std::string& path) override;
  Status RemoveDir(const std::string& path) override;
  Status SyncDir(const std::string& dir) override;
  Result<std::unique_ptr<WriteFile>> Lock(const std::string& path) override;
  Result<Capabilities> Probe(const std::string& dir) override;

 private:
  class State;
  class MemoryReadFile;
  class MemoryWriteFile;
  std::shared_ptr<State> state_;
};

}  // namespace crossdock::io
