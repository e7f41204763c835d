// SPDX-License-Identifier: Apache-2.0
#include "io/observed_storage.h"

#include <algorithm>
#include <utility>

namespace crossdock::io {
namespace {

class ObservedReadFile final : public ReadFile {
 public:
  ObservedReadFile(std::unique_ptr<ReadFile> inner, CallObserver& observer)
      : inner_(std::move(inner)), observer_(observer) {}
  Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
    CROSSDOCK_RETURN_IF_ERROR(
        observer_.OnCall({Call::kRead, path(), offset, static_cast<std::int64_t>(out.size())}).status);
    return inner_->ReadAt(offset, out);
  }
  Result<FileInfo> Info() const override {
    CROSSDOCK_RETURN_IF_ERROR(observer_.OnCall({Call::kInfo, path()}).status);
    return inner_->Info();
  }
  void DropCache(std::int64_t offset, std::int64_t length) const override { inner_->DropCache(offset, length); }
  void WillNeed(std::int64_t offset, std::int64_t length) const override { inner_->WillNeed(offset, length); }
  const std::string& path() const override { return inner_->path(); }

 private:
  std::unique_ptr<ReadFile> inner_;
  CallObserver& observer_;
};

class ObservedWriteFile final : public WriteFile {
 public:
  ObservedWriteFile(std::unique_ptr<WriteFile> inner, CallObserver& observer)
      : inner_(std::move(inner)), observer_(observer) {}
  Status WriteAt(std::int64_t offset, std::span<const std::byte> data) override {
    auto verdict = observer_.OnCall({Call::kWrite, path(), offset, static_cast<std::int64_t>(data.size())});
    if (!verdict.status) {
      const auto partial = static_cast<std::size_t>(verdict.partial);
      if (partial > 0) CROSSDOCK_RETURN_IF_ERROR(inner_->WriteAt(offset, data.first(std::min(partial, data.size()))));
      return verdict.status;
    }
    return inner_->WriteAt(offset, data);
  }
  Status Preallocate(std::int64_t size) override {
    CROSSDOCK_RETURN_IF_ERROR(observer_.OnCall({Call::kPreallocate, path(), 0, size}).status);
    return inner_->Preallocate(size);
  }
  Status Truncate(std::int64_t size) override {
    CROSSDOCK_RETURN_IF_ERROR(observer_.OnCall({Call::kTruncate, path(), size}).status);
    return inner_->Truncate(size);
  }
  void StartWriteback(std::int64_t offset, std::int64_t length) override { inner_->StartWriteback(offset, length); }
  Status Sync() override {
    CROSSDOCK_RETURN_IF_ERROR(observer_.OnCall({Call::kSync, path()}).status);
    return inner_->Sync();
  }
  const std::string& path() const override { return inner_->path(); }

 private:
  std::unique_ptr<WriteFile> inner_;
  CallObserver& observer_;
};

}  // namespace

Status ObservedStorage::Ask(Call call, const std::string& path) { return observer_.OnCall({call, path}).status; }

Result<std::unique_ptr<WriteFile>> ObservedStorage::Wrap(Result<std::unique_ptr<WriteFile>> file) {
  if (!file) return file;
  return std::unique_ptr<WriteFile>(std::make_unique<ObservedWriteFile>(std::move(*file), observer_));
}

Result<FileInfo> ObservedStorage::Stat(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kStat, path));
  return inner_.Stat(path);
}

Result<std::vector<DirEntry>> ObservedStorage::List(const std::string& dir) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kList, dir));
  return inner_.List(dir);
}

Result<std::string> ObservedStorage::ReadLink(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kReadLink, path));
  return inner_.ReadLink(path);
}

Result<std::unique_ptr<ReadFile>> ObservedStorage::OpenRead(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kOpenRead, path));
  CROSSDOCK_ASSIGN_OR_RETURN(auto file, inner_.OpenRead(path));
  return std::unique_ptr<ReadFile>(std::make_unique<ObservedReadFile>(std::move(file), observer_));
}

Result<std::unique_ptr<WriteFile>> ObservedStorage::Create(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kCreate, path));
  return Wrap(inner_.Create(path));
}

Result<std::unique_ptr<WriteFile>> ObservedStorage::OpenWrite(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kOpenWrite, path));
  return Wrap(inner_.OpenWrite(path));
}

Status ObservedStorage::MakeDir(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kMakeDir, path));
  return inner_.MakeDir(path);
}

Status ObservedStorage::Rename(const std::string& from, const std::string& to) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kRename, from));
  return inner_.Rename(from, to);
}

Status ObservedStorage::Exchange(const std::string& a, const std::string& b) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kExchange, a));
  return inner_.Exchange(a, b);
}

Status ObservedStorage::RemoveFile(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kRemoveFile, path));
  return inner_.RemoveFile(path);
}

Status ObservedStorage::RemoveDir(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kRemoveDir, path));
  return inner_.RemoveDir(path);
}

Status ObservedStorage::SyncDir(const std::string& dir) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kSyncDir, dir));
  return inner_.SyncDir(dir);
}

Result<std::unique_ptr<WriteFile>> ObservedStorage::Lock(const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kLock, path));
  auto lock = inner_.Lock(path);
  if (lock && *lock == nullptr) return lock;
  return Wrap(std::move(lock));
}

Result<Capabilities> ObservedStorage::Probe(const std::string& dir) {
  CROSSDOCK_RETURN_IF_ERROR(Ask(Call::kProbe, dir));
  return inner_.Probe(dir);
}

}  // namespace crossdock::io
