// SPDX-License-Identifier: Apache-2.0
#include "io/overlay_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace crossdock::io {

class OverlayStorage::PlannedFile : public ReadFile {
 public:
  PlannedFile(std::string path, const Planned& planned) : path_(std::move(path)), planned_(planned) {}

  Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
    const auto end = offset + static_cast<std::int64_t>(out.size());
    if (offset < 0 || end > static_cast<std::int64_t>(planned_.head.size())) {
      return MakeError(ErrorCode::kIncomplete, "the file is not there yet: its data cannot be read").WithPath(path_);
    }
    std::memcpy(out.data(), planned_.head.data() + offset, out.size());
    return OkStatus();
  }
  Result<FileInfo> Info() const override { 
    FileInfo info;
    info.size = planned_.size;
    return info;
  }
  void DropCache(std::int64_t, std::int64_t) const override {}
  const std::string& path() const override { return path_; }

 private:
  std::string path_;
  const Planned& planned_;
};

void OverlayStorage::Add(const std::string& path, std::string head, std::int64_t size) {
  CROSSDOCK_CHECK(size >= static_cast<std::int64_t>(head.size()));
  files_[AbsolutePath(path)] = {std::move(head), size};
}

Result<FileInfo> OverlayStorage::Stat(const std::string& path) {
  const auto found = files_.find(AbsolutePath(path));
  if (found == files_.end()) return inner_.Stat(path);
  FileInfo info;
  info.size = found->second.size;
  return info;
}

Result<std::vector<DirEntry>> OverlayStorage::List(const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(std::vector<DirEntry> entries, inner_.List(dir));
  const std::string absolute = AbsolutePath(dir);
  for (const auto& [path, planned] : files_) {
    if (ParentPath(path) == absolute) entries.push_back({BaseName(path), FileKind::kFile, false});
  }
  std::sort(entries.begin(), entries.end(), [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return entries;
}

Result<std::unique_ptr<ReadFile>> OverlayStorage::OpenRead(const std::string& path) {
  const auto found = files_.find(AbsolutePath(path));
  if (found == files_.end()) return inner_.OpenRead(path);
  return std::unique_ptr<ReadFile>(std::make_unique<PlannedFile>(path, found->second));
}

}  // namespace crossdock::io
