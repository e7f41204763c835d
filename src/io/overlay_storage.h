// SPDX-License-Identifier: Apache-2.0
/// \file  OverlayStorage: another storage with files laid over it that are not there, each of which begins with known bytes and is
/// as long as it says. For planning what is still to be downloaded: names, sizes and headers are known, data is not.
/// Errors: kIncomplete for a read beyond the known bytes. Ownership: the inner storage must outlive it and the files opened from it.
/// Threads: as the inner storage; files are added before it is shared.
#pragma once

#include <map>
#include <string>

#include "io/storage.h"

namespace crossdock::io {

class OverlayStorage : public Storage {
 public:
  explicit OverlayStorage(Storage& inner) : inner_(inner) {}

  /// REQUIRES: size >= head.size().
  void Add(const std::string& path, std::string head, std::int64_t size);

  [[nodiscard]] Result<FileInfo> Stat(const std::string& path) override;
  [[nodiscard]] Result<std::unique_ptr<ReadFile>> OpenRead(const std::string& path) override;
  [[nodiscard]] Result<std::vector<DirEntry>> List(const std::string& dir) override;
  [[nodiscard]] Result<std::string> ReadLink(const std::string& path) override { return inner_.ReadLink(path); }
  [[nodiscard]] Result<std::unique_ptr<WriteFile>> Create(const std::string& path) override { return inner_.Create(path); }
  [[nodiscard]] Result<std::unique_ptr<WriteFile>> OpenWrite(const std::string& path) override { return inner_.OpenWrite(path); }
  [[nodiscard]] Status MakeDir(const std::string& path) override { return inner_.MakeDir(path); }
  [[nodiscard]] Status Rename(const std::string& from, const std::string& to) override { return inner_.Rename(from, to); }
  [[nodiscard]] Status Exchange(const std::string& a, const std::string& b) override { return inner_.Exchange(a, b); }
  [[nodiscard]] Status RemoveFile(const std::string& path) override { return inner_.RemoveFile(path); }
  [[nodiscard]] Status RemoveDir(const std::string& path) override { return inner_.RemoveDir(path); }
  [[nodiscard]] Status SyncDir(const std::string& dir) override { return inner_.SyncDir(dir); }
  [[nodiscard]] Result<std::unique_ptr<WriteFile>> Lock(const std::string& path) override { return inner_.Lock(path); }
  [[nodiscard]] Result<Capabilities> Probe(const std::string& dir) override { return inner_.Probe(dir); }

 private:
  struct Planned {
    std::string head;
    std::int64_t size = 0;
  };
  class PlannedFile;
  Storage& inner_;
  std::map<std::string, Planned> files_;
};

}  // namespace crossdock::io
