// SPDX-License-Identifier: Apache-2.0
#include "io/memory_storage.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "io/memory_image.h"

namespace crossdock::io {

using Kind = MemoryOperation::Kind;

/// Everything the files opened from one storage share with it.
class MemoryStorage::State {
 public:
  Status Change(MemoryOperation op) {
    const std::lock_guard lock(mutex);
    return ChangeLocked(std::move(op));
  }

  Status ChangeLocked(MemoryOperation op) {
    CROSSDOCK_RETURN_IF_ERROR(HasRoom(op));
    CROSSDOCK_RETURN_IF_ERROR(image.Apply(op));
    record.push_back(std::move(op));
    return OkStatus();
  }

  Status HasRoom(const MemoryOperation& op) const {
    if (capacity < 0 || op.kind != Kind::kWrite) return OkStatus();
    const auto size = static_cast<std::int64_t>(image.Get(op.inode)->data.size());
    const std::int64_t end = op.offset + static_cast<std::int64_t>(op.data.size());
    if (image.TotalBytes() + std::max<std::int64_t>(0, end - size) <= capacity) return OkStatus();
    return MakeError(ErrorCode::kNoSpace, "cannot write: No space left on device").WithPath(op.path);
  }

  mutable std::mutex mutex;
  MemoryImage image;
  MemoryImage base;  ///< the image when the record started
  std::vector<MemoryOperation> record;
  std::set<std::uint64_t> locked;
  std::int64_t capacity = -1;
};

namespace {

FileInfo InfoOf(std::uint64_t inode, const MemoryImage::Node& node) {
  FileInfo info;
  info.kind = node.is_dir ? FileKind::kDirectory : FileKind::kFile;
  info.size = static_cast<std::int64_t>(node.data.size());
  info.mtime_ns = node.mtime_ns;
  info.inode = inode;
  info.device = 1;
  return info;
}

Error Absent(const std::string& path) {
  return MakeError(ErrorCode::kIncomplete, "no such file or directory").WithPath(path);
}

}  // namespace

class MemoryStorage::MemoryReadFile final : public ReadFile {
 public:
  MemoryReadFile(std::shared_ptr<const State> state, std::uint64_t inode, std::string path)
      : state_(std::move(state)), inode_(inode), path_(std::move(path)) {}

  Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
    const std::lock_guard lock(state_->mutex);
    const std::string& data = state_->image.Get(inode_)->data;
    const auto size = static_cast<std::int64_t>(data.size());
    const auto length = static_cast<std::int64_t>(out.size());
    if (offset < 0 || offset > size || length > size - offset) {
      return MakeError(ErrorCode::kCorrupt, "the file ends too early")
          .WithPath(path_)
          .WithOffset(offset)
          .WithExpected(fmt::format("{} bytes", length))
          .WithFound(fmt::format("{} bytes", std::clamp<std::int64_t>(size - offset, 0, length)));
    }
    std::copy_n(std::as_bytes(std::span(data)).begin() + offset, length, out.begin());
    return OkStatus();
  }
  Result<FileInfo> Info() const override {
    const std::lock_guard lock(state_->mutex);
    return InfoOf(inode_, *state_->image.Get(inode_));
  }
  void DropCache(std::int64_t, std::int64_t) const override {}
  const std::string& path() const override { return path_; }

 private:
  std::shared_ptr<const State> state_;
  std::uint64_t inode_;
  std::string path_;
};

class MemoryStorage::MemoryWriteFile final : public WriteFile {
 public:
  MemoryWriteFile(std::shared_ptr<State> state, std::uint64_t inode, std::string path, bool holds_lock = false)
      : state_(std::move(state)), inode_(inode), path_(std::move(path)), holds_lock_(holds_lock) {}
  MemoryWriteFile(const MemoryWriteFile&) = delete;
  MemoryWriteFile& operator=(const MemoryWriteFile&) = delete;
  ~MemoryWriteFile() override {
    if (!holds_lock_) return;
    const std::lock_guard lock(state_->mutex);
    state_->locked.erase(inode_);
  }

  Status WriteAt(std::int64_t offset, std::span<const std::byte> data) override {
    std::string copy(reinterpret_cast<const char*>(data.data()), data.size());
    return state_->Change({Kind::kWrite, path_, {}, inode_, offset, std::move(copy)});
  }
  bool CopyFrom(const ReadFile& source, std::int64_t from, std::int64_t to, std::int64_t length) override {
    std::string bytes(static_cast<std::size_t>(length), '\0');
    return source.ReadAt(from, std::as_writable_bytes(std::span(bytes))) && WriteAt(to, std::as_bytes(std::span(bytes)));
  }
  Status Preallocate(std::int64_t size) override {
    const std::lock_guard lock(state_->mutex);
    const auto now = static_cast<std::int64_t>(state_->image.Get(inode_)->data.size());
    if (size <= now) return OkStatus();
    if (state_->capacity >= 0 && state_->image.TotalBytes() + size - now > state_->capacity) {
      return MakeError(ErrorCode::kNoSpace, "cannot reserve room: No space left on device").WithPath(path_);
    }
    return state_->ChangeLocked({Kind::kTruncate, path_, {}, inode_, size, {}});
  }
  Status Truncate(std::int64_t size) override { return state_->Change({Kind::kTruncate, path_, {}, inode_, size, {}}); }
  void StartWriteback(std::int64_t, std::int64_t) override {}
  Status Sync() override { return state_->Change({Kind::kSync, path_, {}, inode_, 0, {}}); }
  const std::string& path() const override { return path_; }

 private:
  std::shared_ptr<State> state_;
  std::uint64_t inode_;
  std::string path_;
  bool holds_lock_;
};

MemoryStorage::MemoryStorage() : state_(std::make_shared<State>()) {}
MemoryStorage::~MemoryStorage() = default;

void MemoryStorage::StartRecord() {
  const std::lock_guard lock(state_->mutex);
  state_->record.clear();
  state_->base = state_->image;
}

std::size_t MemoryStorage::record_size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->record.size();
}

std::string MemoryStorage::Describe(std::size_t operation) const {
  static constexpr const char* kWords[] = {"create",           "make directory", "rename", "exchange", "remove",
                                           "remove directory", "sync directory", "write",  "truncate", "sync"};
  const std::lock_guard lock(state_->mutex);
  if (operation >= state_->record.size()) return "the end";
  const MemoryOperation& op = state_->record[operation];
  std::string text = fmt::format("{} {}", kWords[static_cast<std::size_t>(op.kind)], op.path);
  if (!op.other.empty()) text += fmt::format(" -> {}", op.other);
  if (op.kind == Kind::kWrite) text += fmt::format(": {} bytes at {}", op.data.size(), op.offset);
  return text;
}

std::unique_ptr<MemoryStorage> MemoryStorage::AfterCrash(std::size_t count, Unsynced unsynced,
                                                         std::uint64_t seed) const {
  auto crashed = std::make_unique<MemoryStorage>();
  const std::lock_guard lock(state_->mutex);
  MemoryImage image = state_->base;
  image.StartTracking();
  for (std::size_t i = 0; i < std::min(count, state_->record.size()); ++i) {
    const Status again = image.Apply(state_->record[i]);
    CROSSDOCK_CHECK(again.has_value());  // it succeeded when it was recorded
  }
  image.Crash(unsynced, seed);
  crashed->state_->image = image;
  crashed->state_->base = std::move(image);
  return crashed;
}

std::map<std::string, std::string> MemoryStorage::Files(const std::string& dir) const {
  const std::lock_guard lock(state_->mutex);
  std::map<std::string, std::string> files;
  std::vector<std::pair<std::string, std::uint64_t>> todo = {{"", state_->image.Find(dir)}};
  while (!todo.empty()) {
    const auto [path, inode] = todo.back();
    todo.pop_back();
    const MemoryImage::Node* node = state_->image.Get(inode);
    if (node == nullptr) continue;
    if (!node->is_dir) files[path] = node->data;
    for (const auto& [name, child] : node->names) todo.emplace_back(JoinPath(path, name), child);
  }
  return files;
}

void MemoryStorage::SetCapacity(std::int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->capacity = bytes;
}

Result<FileInfo> MemoryStorage::Stat(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t inode = state_->image.Find(path);
  if (inode == 0) return Absent(path);
  return InfoOf(inode, *state_->image.Get(inode));
}

Result<std::vector<DirEntry>> MemoryStorage::List(const std::string& dir) {
  const std::lock_guard lock(state_->mutex);
  const MemoryImage::Node* node = state_->image.Get(state_->image.Find(dir));
  if (node == nullptr || !node->is_dir) return Absent(dir);
  std::vector<DirEntry> entries;
  for (const auto& [name, inode] : node->names) {
    const bool is_dir = state_->image.Get(inode)->is_dir;
    entries.push_back({name, is_dir ? FileKind::kDirectory : FileKind::kFile, false});
  }
  return entries;
}

Result<std::string> MemoryStorage::ReadLink(const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const FileInfo info, Stat(path));
  return MakeError(ErrorCode::kIo, "this is no link").WithPath(path);
}

Result<std::unique_ptr<ReadFile>> MemoryStorage::OpenRead(const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo info, Stat(path));
  if (info.kind != FileKind::kFile) return MakeError(ErrorCode::kUnsupported, "this is not a regular file").WithPath(path);
  return std::unique_ptr<ReadFile>(std::make_unique<MemoryReadFile>(state_, info.inode, path));
}

Result<std::unique_ptr<WriteFile>> MemoryStorage::Create(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  CROSSDOCK_RETURN_IF_ERROR(state_->ChangeLocked({Kind::kCreate, path, {}, 0, 0, {}}));
  return std::unique_ptr<WriteFile>(std::make_unique<MemoryWriteFile>(state_, state_->image.Find(path), path));
}

Result<std::unique_ptr<WriteFile>> MemoryStorage::OpenWrite(const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo info, Stat(path));
  if (info.kind != FileKind::kFile) return MakeError(ErrorCode::kIo, "this is not a regular file").WithPath(path);
  return std::unique_ptr<WriteFile>(std::make_unique<MemoryWriteFile>(state_, info.inode, path));
}

Status MemoryStorage::MakeDir(const std::string& path) { return state_->Change({Kind::kMakeDir, path, {}, 0, 0, {}}); }
Status MemoryStorage::Rename(const std::string& from, const std::string& to) {
  return state_->Change({Kind::kRename, from, to, 0, 0, {}});
}
Status MemoryStorage::Exchange(const std::string& a, const std::string& b) {
  return state_->Change({Kind::kExchange, a, b, 0, 0, {}});
}
Status MemoryStorage::RemoveFile(const std::string& path) {
  return state_->Change({Kind::kRemoveFile, path, {}, 0, 0, {}});
}
Status MemoryStorage::RemoveDir(const std::string& path) {
  return state_->Change({Kind::kRemoveDir, path, {}, 0, 0, {}});
}
Status MemoryStorage::SyncDir(const std::string& dir) { return state_->Change({Kind::kSyncDir, dir, {}, 0, 0, {}}); }

Result<std::unique_ptr<WriteFile>> MemoryStorage::Lock(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  if (state_->image.Find(path) == 0) {
    CROSSDOCK_RETURN_IF_ERROR(state_->ChangeLocked({Kind::kCreate, path, {}, 0, 0, {}}));
  }
  const std::uint64_t inode = state_->image.Find(path);
  if (!state_->locked.insert(inode).second) return std::unique_ptr<WriteFile>();
  return std::unique_ptr<WriteFile>(std::make_unique<MemoryWriteFile>(state_, inode, path, true));
}

Result<Capabilities> MemoryStorage::Probe(const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const FileInfo info, Stat(dir));
  const std::lock_guard lock(state_->mutex);
  Capabilities can;
  can.direct_io = false;
  can.free_bytes = state_->capacity < 0 ? INT64_MAX : state_->capacity - state_->image.TotalBytes();
  return can;
}

}  // namespace crossdock::io
