// SPDX-License-Identifier: Apache-2.0
#include "io/storage.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace crossdock::io {
namespace {

constexpr std::int64_t kCopyPiece = 1 << 20;

std::string_view WithoutTrailingSlashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

/// Removes what is at `path` when that is no directory (a link is removed, not followed); true when it is one.
Result<bool> RemoveUnlessDir(Storage& storage, const std::string& path, FileKind kind, bool is_symlink) {
  if (kind == FileKind::kDirectory && !is_symlink) return true;
  CROSSDOCK_RETURN_IF_ERROR(storage.RemoveFile(path));
  return false;
}

}  // namespace

bool Exists(Storage& storage, const std::string& path) {
  const auto info = storage.Stat(path);
  // A name that is there but cannot be looked at exists too: the caller must not write over it.
  return info.has_value() || info.error().code != ErrorCode::kIncomplete;
}

Result<std::string> ReadSmallFile(Storage& storage, const std::string& path, std::int64_t limit) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(path));
  CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo info, file->Info());
  if (info.size > limit) {
    return MakeError(ErrorCode::kUnsupported, "the file is larger than files of its kind are")
        .WithPath(path)
        .WithExpected(fmt::format("at most {} bytes", limit))
        .WithFound(fmt::format("{} bytes", info.size));
  }
  std::string content(static_cast<std::size_t>(info.size), '\0');
  CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span<char>(content))));
  return content;
}

Status WriteSmallFile(Storage& storage, const std::string& path, std::string_view content) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.Create(path));
  CROSSDOCK_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span<const char>(content))));
  return file->Sync();
}

Status RemoveFileIfPresent(Storage& storage, const std::string& path) {
  auto removed = storage.RemoveFile(path);
  if (!removed && removed.error().code == ErrorCode::kIncomplete) return OkStatus();
  return removed;
}

Status MakeDirs(Storage& storage, const std::string& path) {
  std::vector<std::string> missing;
  for (std::string at(WithoutTrailingSlashes(path)); !at.empty() && at != "/" && at != "."; at = ParentPath(at)) {
    const auto info = storage.Stat(at);
    if (info) {
      if (info->kind == FileKind::kDirectory) break;
      return MakeError(ErrorCode::kIo, "a file is where a directory is needed").WithPath(at);
    }
    if (info.error().code != ErrorCode::kIncomplete) return info.error();
    missing.push_back(at);
  }
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    auto made = storage.MakeDir(*it);
    if (made) continue;
    const auto info = storage.Stat(*it);  // another process may have been quicker
    if (!info || info->kind != FileKind::kDirectory) return made;
  }
  return OkStatus();
}

Status RemoveTree(Storage& storage, const std::string& path) {
  const auto info = storage.Stat(path);
  FileKind kind = FileKind::kOther;
  bool is_symlink = true;
  if (info) {
    kind = info->kind;
    is_symlink = info->is_symlink;
  } else {
    // Absent, or a dangling link: only ReadLink can tell.
    if (info.error().code != ErrorCode::kIncomplete) return info.error();
    if (!storage.ReadLink(path)) return OkStatus();
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const bool is_dir, RemoveUnlessDir(storage, path, kind, is_symlink));
  if (!is_dir) return OkStatus();
  std::vector<std::pair<std::string, bool>> todo = {{path, false}};  // (directory, its content is gone)
  while (!todo.empty()) {
    auto [dir, emptied] = todo.back();
    if (emptied) {
      CROSSDOCK_RETURN_IF_ERROR(storage.RemoveDir(dir));
      todo.pop_back();
      continue;
    }
    todo.back().second = true;
    CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(dir));
    for (const DirEntry& entry : entries) {
      const std::string child = JoinPath(dir, entry.name);
      CROSSDOCK_ASSIGN_OR_RETURN(const bool child_is_dir,
                                 RemoveUnlessDir(storage, child, entry.kind, entry.is_symlink));
      if (child_is_dir) todo.emplace_back(child, false);
    }
  }
  return OkStatus();
}

Status CopyFile(Storage& from, const std::string& source, Storage& to, const std::string& target) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto in, from.OpenRead(source));
  CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo before, in->Info());
  CROSSDOCK_ASSIGN_OR_RETURN(const auto out, to.Create(target));
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(before.size, kCopyPiece)));
  for (std::int64_t offset = 0; offset < before.size; offset += kCopyPiece) {
    const std::int64_t length = std::min(kCopyPiece, before.size - offset);
    const std::span<std::byte> bytes(piece.data(), static_cast<std::size_t>(length));
    CROSSDOCK_RETURN_IF_ERROR(in->ReadAt(offset, bytes));
    CROSSDOCK_RETURN_IF_ERROR(out->WriteAt(offset, bytes));
    out->StartWriteback(offset, length);
    in->DropCache(offset, length);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo after, in->Info());
  if (after.size != before.size || after.mtime_ns != before.mtime_ns) {
    return MakeError(ErrorCode::kCorrupt, "the file changed while it was read").WithPath(source);
  }
  return out->Sync();
}

std::string JoinPath(std::string_view dir, std::string_view name) {
  if (dir.empty()) return std::string(name);
  if (name.empty()) return std::string(dir);
  if (dir == "." && name.front() != '/') return std::string(name);  // messages show the path as a user writes it
  std::string path(dir);
  if (path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string AbsolutePath(const std::string& path) {
  std::error_code ignored;
  const auto absolute = std::filesystem::absolute(path.empty() ? "." : path, ignored);
  return ignored ? path : absolute.lexically_normal().string();
}

std::string ParentPath(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(WithoutTrailingSlashes(path.substr(0, slash)));
}

std::string BaseName(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || path == "/") return std::string(path);
  return std::string(path.substr(slash + 1));
}

Status CheckRelativePath(std::string_view path) {
  const auto unsafe = [&](std::string why) -> Status {
    return MakeError(ErrorCode::kUnsafe, "a file names a path that may lead outside its directory: " + std::move(why))
        .WithFound(Printable(path));
  };
  if (path.empty()) return unsafe("it is empty");
  if (path.front() == '/') return unsafe("it is absolute");
  if (path.find('\\') != std::string_view::npos) return unsafe("it has a backslash");
  if (path.find('\0') != std::string_view::npos) return unsafe("it has a NUL");
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == ".") return unsafe("it has an empty or `.` part");
    if (part == "..") return unsafe("it has a `..` part");
    if (slash == std::string_view::npos) return OkStatus();
    path.remove_prefix(slash + 1);
  }
}

}  // namespace crossdock::io
