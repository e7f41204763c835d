// SPDX-License-Identifier: Apache-2.0
#include "execute/source_files.h"

#include <utility>

#include <fmt/format.h>

namespace crossdock::execute {
namespace {

/// Below this a hint costs more than the pages; the whole file goes when it is closed.
constexpr std::int64_t kWorthDropping = 256 << 10;

std::string ToText(const FileIdentity& id) {
  return fmt::format("{} bytes, modified {} ns, inode {}", id.size, id.mtime_ns, id.inode);
}

}  // namespace

SourceFiles::SourceFiles(io::Storage& storage, const Catalog& catalog, DecodedChunks* decoded)
    : storage_(storage), catalog_(catalog), decoded_(decoded), slots_(catalog.files.size()) {}

std::int32_t SourceFiles::EncodedOf(const plan::Read& read) const {
  return decoded_ == nullptr ? -1 : decoded_->NumberOf(read.entry, read.chunk);
}

std::int32_t SourceFiles::PlaceOf(const plan::Read& read) const {
  const std::int32_t encoded = EncodedOf(read);
  return encoded < 0 ? FileOf(read) : static_cast<std::int32_t>(slots_.size()) + encoded;
}

std::int32_t SourceFiles::FileOf(const plan::Read& read) const {
  const Entry& entry = catalog_.entries[static_cast<std::size_t>(read.entry)];
  return entry.chunks[static_cast<std::size_t>(read.chunk)].file;
}

void SourceFiles::Expect(const plan::Task& task) {
  for (const plan::Read& read : task.reads) {
    ++slots_[static_cast<std::size_t>(FileOf(read))].expected;
    if (const std::int32_t encoded = EncodedOf(read); encoded >= 0) decoded_->Expect(encoded);
  }
}

Status SourceFiles::Release(const plan::Task& task) {
  for (const plan::Read& read : task.reads) {
    if (const std::int32_t encoded = EncodedOf(read); encoded >= 0) CROSSDOCK_RETURN_IF_ERROR(decoded_->Release(encoded));
    const auto index = static_cast<std::size_t>(FileOf(read));
    Slot& slot = slots_[index];
    if (--slot.expected > 0) continue;
    std::shared_ptr<const io::ReadFile> last;
    {
      const std::lock_guard lock(slot.mutex);
      last = std::exchange(slot.file, nullptr);
    }
    if (last == nullptr) continue;  // a read of no bytes never opened it
    CROSSDOCK_RETURN_IF_ERROR(CheckIdentity(*last, catalog_.files[index]));
    last->DropCache(0, 0);
  }
  return OkStatus();
}

Result<std::shared_ptr<const io::ReadFile>> SourceFiles::Get(std::int32_t file) {
  const auto index = static_cast<std::size_t>(file);
  Slot& slot = slots_[index];
  std::shared_ptr<const io::ReadFile> out;
  {
    const std::lock_guard lock(slot.mutex);
    if (slot.file != nullptr) return slot.file;
    const FileRef& ref = catalog_.files[index];
    CROSSDOCK_ASSIGN_OR_RETURN(auto opened, storage_.OpenRead(io::JoinPath(catalog_.root, ref.path)));
    CROSSDOCK_RETURN_IF_ERROR(CheckIdentity(*opened, ref));
    slot.file = std::move(opened);
    out = slot.file;
  }
  CROSSDOCK_RETURN_IF_ERROR(Opened(index));
  return out;
}

Status SourceFiles::Opened(std::size_t index) {
  std::size_t oldest = 0;
  {
    const std::lock_guard lock(order_mutex_);
    order_.push_back(index);
    if (order_.size() <= kMostOpenFiles) return OkStatus();
    oldest = order_.front();
    order_.pop_front();
  }
  if (oldest == index) return OkStatus();
  std::shared_ptr<const io::ReadFile> closed;  // whoever reads it now keeps it until the read is done
  {
    const std::lock_guard lock(slots_[oldest].mutex);
    closed = std::exchange(slots_[oldest].file, nullptr);
  }
  return closed == nullptr ? OkStatus() : CheckIdentity(*closed, catalog_.files[oldest]);
}

Status SourceFiles::CheckIdentity(const io::ReadFile& opened, const FileRef& ref) const {
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, opened.Info());
  const FileIdentity now{info.size, info.mtime_ns, info.inode};
  if (now == ref.identity) return OkStatus();
  return MakeError(ErrorCode::kCorrupt, "a source file changed while it was read")
      .WithPath(opened.path())
      .WithExpected(ToText(ref.identity))
      .WithFound(ToText(now))
      .WithHint("wait until nothing writes to the source, then start over");
}

Status SourceFiles::ReadAt(std::int32_t file, std::int64_t offset, std::span<std::byte> out) {
  const auto files = static_cast<std::int32_t>(slots_.size());
  if (file >= files) {
    return decoded_->ReadAt(file - files, offset, out, [this](std::int32_t stored, std::int64_t bytes) {
      bytes_read_ += bytes;
      return Get(stored);
    });
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const auto opened, Get(file));
  auto read = opened->ReadAt(offset, out);
  if (!read) {
    // A file that was cut while we read tells so better than "ends too early".
    if (read.error().code == ErrorCode::kCorrupt) {
      CROSSDOCK_RETURN_IF_ERROR(CheckIdentity(*opened, catalog_.files[static_cast<std::size_t>(file)]));
    }
    return read;
  }
  bytes_read_ += static_cast<std::int64_t>(out.size());
  return OkStatus();
}

Result<bool> SourceFiles::CopyTo(TargetFiles& targets, std::int32_t target, std::int64_t to, std::int32_t file, std::int64_t from, std::int64_t length) {
  if (file >= static_cast<std::int32_t>(slots_.size())) return false;
  CROSSDOCK_ASSIGN_OR_RETURN(const auto opened, Get(file));
  CROSSDOCK_ASSIGN_OR_RETURN(const bool copied, targets.CopyFrom(target, to, *opened, from, length));
  if (copied) bytes_read_ += length;
  return copied;
}

Status SourceFiles::WillNeed(std::int32_t file, std::int64_t offset, std::int64_t length) {
  if (file >= static_cast<std::int32_t>(slots_.size())) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const auto opened, Get(file));
  opened->WillNeed(offset, length);
  return OkStatus();
}

void SourceFiles::Drop(std::int32_t file, std::int64_t offset, std::int64_t length) {
  if (length < kWorthDropping || file >= static_cast<std::int32_t>(slots_.size())) return;
  Slot& slot = slots_[static_cast<std::size_t>(file)];
  std::shared_ptr<const io::ReadFile> opened;
  {
    const std::lock_guard lock(slot.mutex);
    opened = slot.file;
  }
  if (opened != nullptr) opened->DropCache(offset, length);
}

}  // namespace crossdock::execute
