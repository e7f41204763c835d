// SPDX-License-Identifier: Apache-2.0
/// \file  ObservedStorage: passes every call on to another storage and shows it to an observer first, who may count
/// it or refuse it. FaultyStorage and CountingStorage are observers; a test may bring its own.
/// Threads: as the inner storage; the observer is called from all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/storage.h"

namespace crossdock::io {

enum class Call : std::uint8_t {
  kStat,
  kList,
  kReadLink,
  kOpenRead,
  kCreate,
  kOpenWrite,
  kMakeDir,
  kRename,
  kExchange,
  kRemoveFile,
  kRemoveDir,
  kSyncDir,
  kLock,
  kProbe,
  kRead,
  kInfo,
  kWrite,
  kPreallocate,
  kTruncate,
  kSync,
};
inline constexpr int kCallCount = 20;

struct CallInfo {
  Call call = Call::kStat;
  const std::string& path;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

class CallObserver {
 public:
  struct Verdict {
    Status status;             ///< an error is returned in place of the call
    std::int64_t partial = 0;  ///< of a refused write, this many bytes reach the file all the same
  };
  virtual ~CallObserver() = default;
  [[nodiscard]] virtual Verdict OnCall(const CallInfo& info) = 0;
};

class ObservedStorage : public Storage {
 public:
  /// Both must outlive the storage and the files opened from it.
  ObservedStorage(Storage& inner, CallObserver& observer) : inner_(inner), observer_(observer) {}

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
  [[nodiscard]] Status Ask(Call call, const std::string& path);
  [[nodiscard]] Result<std::unique_ptr<WriteFile>> Wrap(Result<std::unique_ptr<WriteFile>> file);
  Storage& inner_;
  CallObserver& observer_;
};

}  // namespace crossdock::io
