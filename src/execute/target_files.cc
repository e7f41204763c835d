// SPDX-License-Identifier: Apache-2.0
#include "execute/target_files.h"

#include <set>
#include <utility>

namespace crossdock::execute {

TargetFiles::TargetFiles(io::Storage& storage, std::string dir, const Catalog& catalog)
    : storage_(storage), dir_(std::move(dir)), catalog_(catalog), slots_(catalog.files.size()), grows_(catalog.files.size(), false) {
  for (const Entry& entry : catalog.entries) {
    for (const Chunk& chunk : entry.chunks) {
      if (chunk.encoding == ChunkEncoding::kEncoded) grows_[static_cast<std::size_t>(chunk.file)] = true;
    }
  }
}

std::string TargetFiles::PathOf(std::size_t file) const { return io::JoinPath(dir_, catalog_.files[file].path); }

std::int32_t TargetFiles::FileOf(const plan::Output& output) const {
  const Entry& entry = catalog_.entries[static_cast<std::size_t>(output.entry)];
  return entry.chunks[static_cast<std::size_t>(output.chunk)].file;
}

Status TargetFiles::Create() {
  std::set<std::string> parents = {dir_};
  for (std::size_t i = 0; i < catalog_.files.size(); ++i) {
    const std::string path = PathOf(i);
    if (parents.insert(io::ParentPath(path)).second) {
      CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage_, io::ParentPath(path)));
    }
    CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(storage_, path));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.Create(path));
    const std::int64_t size = catalog_.files[i].identity.size;
    if (!grows_[i]) {
      CROSSDOCK_RETURN_IF_ERROR(file->Preallocate(size));
      CROSSDOCK_RETURN_IF_ERROR(file->Truncate(size));
    }
    slots_[i].dirty = true;  // its size must become durable, though no byte may be written
  }
  for (const std::string& parent : parents) CROSSDOCK_RETURN_IF_ERROR(storage_.SyncDir(parent));
  return OkStatus();
}

bool TargetFiles::AllPresent() const {
  for (std::size_t i = 0; i < catalog_.files.size(); ++i) {
    const auto info = storage_.Stat(PathOf(i));
    if (!info || info->is_symlink || info->kind != io::FileKind::kFile ||
        (!grows_[i] && info->size != catalog_.files[i].identity.size)) {
      return false;
    }
  }
  return true;
}

bool TargetFiles::Reaches(std::int32_t file, std::int64_t size) const {
  const auto info = storage_.Stat(PathOf(static_cast<std::size_t>(file)));
  return info && info->size >= size;
}

Status TargetFiles::Trim(std::int32_t file, std::int64_t size) {
  const auto index = static_cast<std::size_t>(file);
  CROSSDOCK_ASSIGN_OR_RETURN(const auto opened, storage_.OpenWrite(PathOf(index)));
  CROSSDOCK_RETURN_IF_ERROR(opened->Truncate(size));
  return opened->Sync();
}

void TargetFiles::Expect(const plan::Task& task) {
  for (const plan::Output& output : task.outputs) ++slots_[static_cast<std::size_t>(FileOf(output))].expected;
}

void TargetFiles::Release(const plan::Task& task) {
  for (const plan::Output& output : task.outputs) --slots_[static_cast<std::size_t>(FileOf(output))].expected;
}

Result<std::shared_ptr<io::WriteFile>> TargetFiles::Get(std::size_t file) {
  Slot& slot = slots_[file];
  const std::lock_guard lock(slot.mutex);
  if (slot.file == nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(slot.file, storage_.OpenWrite(PathOf(file)));
  }
  return slot.file;
}

void TargetFiles::Written(std::size_t file, io::WriteFile& opened, std::int64_t offset, std::int64_t length) {
  opened.StartWriteback(offset, length);
  bytes_written_ += length;
  // Only now: a sync that runs meanwhile may miss this write and must not take the mark away.
  const std::lock_guard lock(slots_[file].mutex);
  slots_[file].dirty = true;
}

Status TargetFiles::WriteAt(std::int32_t file, std::int64_t offset, std::span<const std::byte> data) {
  const auto index = static_cast<std::size_t>(file);
  CROSSDOCK_ASSIGN_OR_RETURN(const auto opened, Get(index));
  CROSSDOCK_RETURN_IF_ERROR(opened->WriteAt(offset, data));
  Written(index, *opened, offset, static_cast<std::int64_t>(data.size()));
  return OkStatus();
}

Result<bool> TargetFiles::CopyFrom(std::int32_t file, std::int64_t offset, const io::ReadFile& source, std::int64_t from, std::int64_t length) {
  const auto index = static_cast<std::size_t>(file);
  CROSSDOCK_ASSIGN_OR_RETURN(const auto opened, Get(index));
  if (!opened->CopyFrom(source, from, offset, length)) return false;
  Written(index, *opened, offset, length);
  return true;
}

Status TargetFiles::WriteFrames(const std::vector<formats::Frame>& frames) {
  for (const formats::Frame& frame : frames) {
    CROSSDOCK_RETURN_IF_ERROR(WriteAt(frame.file, frame.offset, std::as_bytes(std::span(frame.bytes))));
  }
  return OkStatus();
}

Status TargetFiles::SyncAll() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    std::shared_ptr<io::WriteFile> opened;
    {
      const std::lock_guard lock(slot.mutex);
      if (slot.dirty) {
        if (slot.file == nullptr) {
          CROSSDOCK_ASSIGN_OR_RETURN(slot.file, storage_.OpenWrite(PathOf(i)));
        }
        opened = slot.file;
        slot.dirty = false;
      }
      if (slot.expected == 0) slot.file = nullptr;
    }
    if (opened != nullptr) CROSSDOCK_RETURN_IF_ERROR(opened->Sync());
  }
  return OkStatus();
}

}  // namespace crossdock::execute
