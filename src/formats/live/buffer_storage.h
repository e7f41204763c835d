// SPDX-License-Identifier: Apache-2.0
/// \file  BufferStorage: memory of the caller's as the files of a directory, so that the executor reads and writes it as it does files.
/// Invariant: no byte outside the buffers is read or written; a range beyond a buffer is kUsage and touches nothing.
/// Reading from another storage straight into a buffer (WriteFile::CopyFrom) takes no memory between.
/// Errors: kIncomplete for names that are no buffers, kUsage for ranges beyond one, for writing what may only be read, and for two
/// buffers of one name. Ownership: the memory outlives the storage and its files. Threads: as io/storage.h says, once all is added.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/storage.h"

namespace crossdock::formats::live {

class BufferStorage final : public io::Storage {
 public:
  /// Buffers are called `root`/<name>; `root` is a name only.
  explicit BufferStorage(std::string root) : root_(std::move(root)) {}
  /// Files below `root` that are no buffers lie in `dir` of `storage`, which is made when it is first needed.
  void KeepOthersIn(io::Storage& storage, std::string dir);

  [[nodiscard]] Status Add(const std::string& name, std::span<std::byte> memory);
  [[nodiscard]] Status AddReadOnly(const std::string& name, std::span<const std::byte> memory);
  [[nodiscard]] const std::string& root() const { return root_; }

  Result<io::FileInfo> Stat(const std::string& path) override;
  Result<std::vector<io::DirEntry>> List(const std::string& dir) override;
  Result<std::string> ReadLink(const std::string& path) override;
  Result<std::unique_ptr<io::ReadFile>> OpenRead(const std::string& path) override;
  Result<std::unique_ptr<io::WriteFile>> Create(const std::string& path) override;
  Result<std::unique_ptr<io::WriteFile>> OpenWrite(const std::string& path) override;
  Status MakeDir(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Exchange(const std::string& a, const std::string& b) override;
  /// A buffer stays: it is the caller's.
  Status RemoveFile(const std::string& path) override;
  Status RemoveDir(const std::string& path) override;
  Status SyncDir(const std::string& dir) override;
  Result<std::unique_ptr<io::WriteFile>> Lock(const std::string& path) override;
  Result<io::Capabilities> Probe(const std::string& dir) override;

 private:
  struct Buffer {
    const std::byte* data = nullptr;
    std::byte* writable = nullptr;  ///< null: may only be read
    std::int64_t size = 0;
  };
  class BufferReadFile;
  class BufferWriteFile;
  [[nodiscard]] Status Put(const std::string& name, Buffer buffer);
  /// Null when `path` is no buffer.
  [[nodiscard]] const Buffer* Find(const std::string& path) const;
  /// Where a file that is no buffer lies; kIncomplete without a place for such.
  [[nodiscard]] Result<std::string> Other(const std::string& path) const;

  const std::string root_;
  std::map<std::string, Buffer> buffers_;  ///< by path
  io::Storage* others_ = nullptr;
  std::string others_dir_;
};

}  // namespace crossdock::formats::live
