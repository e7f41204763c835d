// SPDX-License-Identifier: Apache-2.0
#include "formats/live/buffer_storage.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace crossdock::formats::live {
namespace {

Status CheckWithin(const std::string& path, std::int64_t offset, std::int64_t length, std::int64_t size) {
  if (offset >= 0 && length >= 0 && length <= size && offset <= size - length) return OkStatus();
  return MakeError(ErrorCode::kUsage, "a range beyond a buffer was asked for")
      .WithTensor(path)
      .WithExpected(fmt::format("a range within {} bytes", size))
      .WithFound(fmt::format("{} bytes at {}", length, offset));
}

Error NotOfBuffers(const std::string& path, const char* what) {
  return MakeError(ErrorCode::kUnsupported, std::string("buffers in memory ") + what).WithPath(path);
}

}  // namespace

class BufferStorage::BufferReadFile final : public io::ReadFile {
 public:
  BufferReadFile(std::string path, Buffer buffer) : path_(std::move(path)), buffer_(buffer) {}
  Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
    CROSSDOCK_RETURN_IF_ERROR(CheckWithin(path_, offset, static_cast<std::int64_t>(out.size()), buffer_.size));
    if (!out.empty()) std::memcpy(out.data(), buffer_.data + offset, out.size());
    return OkStatus();
  }
  Result<io::FileInfo> Info() const override { return io::FileInfo{io::FileKind::kFile, buffer_.size}; }
  void DropCache(std::int64_t /*offset*/, std::int64_t /*length*/) const override {}
  const std::string& path() const override { return path_; }

 private:
  const std::string path_;
  const Buffer buffer_;
};

class BufferStorage::BufferWriteFile final : public io::WriteFile {
 public:
  BufferWriteFile(std::string path, Buffer buffer) : path_(std::move(path)), buffer_(buffer) {}
  Status WriteAt(std::int64_t offset, std::span<const std::byte> data) override {
    CROSSDOCK_RETURN_IF_ERROR(CheckWithin(path_, offset, static_cast<std::int64_t>(data.size()), buffer_.size));
    if (!data.empty()) std::memcpy(buffer_.writable + offset, data.data(), data.size());
    return OkStatus();
  }
  bool CopyFrom(const io::ReadFile& source, std::int64_t from, std::int64_t to, std::int64_t length) override {
    if (!CheckWithin(path_, to, length, buffer_.size)) return false;
    return source.ReadAt(from, {buffer_.writable + to, static_cast<std::size_t>(length)}).has_value();
  }
  /// A buffer has its size from its owner.
  Status Preallocate(std::int64_t size) override { return Truncate(size); }
  Status Truncate(std::int64_t size) override {
    if (size == buffer_.size) return OkStatus();
    return MakeError(ErrorCode::kUsage, "a buffer has another size than the tensor that it is for")
        .WithTensor(path_)
        .WithExpected(fmt::format("{} bytes", size))
        .WithFound(fmt::format("{} bytes", buffer_.size));
  }
  void StartWriteback(std::int64_t /*offset*/, std::int64_t /*length*/) override {}
  Status Sync() override { return OkStatus(); }
  const std::string& path() const override { return path_; }

 private:
  const std::string path_;
  const Buffer buffer_;
};

void BufferStorage::KeepOthersIn(io::Storage& storage, std::string dir) {
  others_ = &storage;
  others_dir_ = std::move(dir);
}

Status BufferStorage::Put(const std::string& name, Buffer buffer) {
  if (buffers_.emplace(io::JoinPath(root_, name), buffer).second) return OkStatus();
  return MakeError(ErrorCode::kUsage, "two buffers were given for one tensor").WithTensor(name);
}

Status BufferStorage::Add(const std::string& name, std::span<std::byte> memory) {
  return Put(name, {memory.data(), memory.data(), static_cast<std::int64_t>(memory.size())});
}

Status BufferStorage::AddReadOnly(const std::string& name, std::span<const std::byte> memory) {
  return Put(name, {memory.data(), nullptr, static_cast<std::int64_t>(memory.size())});
}

const BufferStorage::Buffer* BufferStorage::Find(const std::string& path) const {
  const auto found = buffers_.find(path);
  return found == buffers_.end() ? nullptr : &found->second;
}

Result<std::string> BufferStorage::Other(const std::string& path) const {
  const bool below = path.starts_with(root_ + "/");
  if (others_ == nullptr || !below) return MakeError(ErrorCode::kIncomplete, "there is no buffer of this name").WithTensor(path);
  return io::JoinPath(others_dir_, path.substr(root_.size() + 1));
}

Result<io::FileInfo> BufferStorage::Stat(const std::string& path) {
  if (const Buffer* buffer = Find(path)) return io::FileInfo{io::FileKind::kFile, buffer->size};
  if (path == root_) return io::FileInfo{io::FileKind::kDirectory};
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string other, Other(path));
  return others_->Stat(other);
}

Result<std::vector<io::DirEntry>> BufferStorage::List(const std::string& dir) { return NotOfBuffers(dir, "are not listed"); }

Result<std::string> BufferStorage::ReadLink(const std::string& path) { return NotOfBuffers(path, "have no links"); }

Result<std::unique_ptr<io::ReadFile>> BufferStorage::OpenRead(const std::string& path) {
  if (const Buffer* buffer = Find(path)) return std::unique_ptr<io::ReadFile>(std::make_unique<BufferReadFile>(path, *buffer));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string other, Other(path));
  return others_->OpenRead(other);
}

Result<std::unique_ptr<io::WriteFile>> BufferStorage::Create(const std::string& path) {
  if (Find(path) != nullptr) return OpenWrite(path);
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string other, Other(path));
  CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(*others_, io::ParentPath(other)));
  return others_->Create(other);
}

Result<std::unique_ptr<io::WriteFile>> BufferStorage::OpenWrite(const std::string& path) {
  if (const Buffer* buffer = Find(path)) {
    if (buffer->writable == nullptr) return MakeError(ErrorCode::kUsage, "this buffer may only be read").WithTensor(path);
    return std::unique_ptr<io::WriteFile>(std::make_unique<BufferWriteFile>(path, *buffer));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string other, Other(path));
  return others_->OpenWrite(other);
}

Status BufferStorage::MakeDir(const std::string& /*path*/) { return OkStatus(); }

Status BufferStorage::Rename(const std::string& from, const std::string& /*to*/) { return NotOfBuffers(from, "are not renamed"); }

Status BufferStorage::Exchange(const std::string& a, const std::string& /*b*/) { return NotOfBuffers(a, "are not exchanged"); }

Status BufferStorage::RemoveFile(const std::string& path) {
  if (Find(path) != nullptr) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string other, Other(path));
  return others_->RemoveFile(other);
}

Status BufferStorage::RemoveDir(const std::string& path) { return NotOfBuffers(path, "are not removed"); }

Status BufferStorage::SyncDir(const std::string& /*dir*/) { return OkStatus(); }

Result<std::unique_ptr<io::WriteFile>> BufferStorage::Lock(const std::string& path) { return NotOfBuffers(path, "are not locked"); }

Result<io::Capabilities> BufferStorage::Probe(const std::string& dir) { return NotOfBuffers(dir, "lie on no file system"); }

}  // namespace crossdock::formats::live
