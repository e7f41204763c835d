// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <system_error>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/direct_file.h"
#include "io/file_descriptor.h"
#include "io/local_storage.h"
#include "io/writeback.h"

namespace crossdock::io {
namespace {

/// Linux moves at most 2 GiB - 4 KiB a call; smaller pieces let a signal or an error be seen sooner.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30U;

/// The system's refusal as an Error. `absent` is what a missing file means to this call.
Error SystemError(int err, std::string_view action, const std::string& path,
                  ErrorCode absent = ErrorCode::kIncomplete) {
  ErrorCode code = ErrorCode::kIo;
  std::string hint;
  switch (err) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:  // nothing can have such a name
      code = absent;
      break;
    case ENOSPC:
    case EDQUOT:
      code = ErrorCode::kNoSpace;
      hint = "free some space, then run the command again";
      break;
    case EACCES:
    case EPERM:
      hint = "check the owner and the permissions of the path";
      break;
    case EROFS:
      hint = "the file system is mounted read-only";
      break;
    default:
      break;
  }
  Error error = MakeError(code, fmt::format("cannot {}: {}", action, std::generic_category().message(err)));
  return std::move(error).WithPath(path).WithHint(std::move(hint));
}

constexpr std::uint32_t kXfs = 0x58465342;
constexpr std::uint32_t kExt4 = 0x0000EF53;  // and its older forms

bool IsOneOf(int fd, std::span<const std::uint32_t> systems) {
  struct statfs st{};
  return ::fstatfs(fd, &st) == 0 && std::ranges::find(systems, static_cast<std::uint32_t>(st.f_type)) != systems.end();
}

/// Whether the file's system can do better with a copy than this process: share blocks (aligned ranges), or copy on its server.
/// Elsewhere the kernel moves the bytes from page to page as we do, through more cache: 3 to 30 % more CPU on ext4 (docs/performance.md).
bool CopiesPay(int fd) {
  constexpr std::array<std::uint32_t, 8> kSystems = {kXfs,
                                                     0x9123683E,   // Btrfs
                                                     0xCA451A4E,   // bcachefs
                                                     0x2FC12FC1,   // ZFS
                                                     0x00006969,   // NFS
                                                     0xFF534D42,   // CIFS
                                                     0xFE534D42,   // SMB 2
                                                     0x00C36400};  // Ceph
  return IsOneOf(fd, kSystems);
}

/// Whether large writes past the page cache are known to gain: measured on ext4; XFS writes so by the same code of the kernel. Not where
/// the system compresses or sums what it writes, or sends each write over a network, which the cache gathers and overlaps.
bool DirectWritesPay(int fd) {
  constexpr std::array<std::uint32_t, 2> kSystems = {kExt4, kXfs};
  return IsOneOf(fd, kSystems);
}

FileKind KindOf(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kFile;
  if (S_ISDIR(mode)) return FileKind::kDirectory;
  return FileKind::kOther;
}

FileInfo InfoOf(const struct stat& st) {
  FileInfo info;
  info.kind = KindOf(st.st_mode);
  info.size = st.st_size;
  info.mtime_ns = st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec;
  info.inode = st.st_ino;
  info.device = st.st_dev;
  return info;
}

class LocalReadFile final : public ReadFile {
 public:
  LocalReadFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::pread(fd_.get(), out.data() + done, std::min(out.size() - done, kMaxTransfer),
                                offset + static_cast<std::int64_t>(done));
      if (n < 0) {
        if (errno == EINTR) continue;
        return SystemError(errno, "read", path_).WithOffset(offset);
      }
      if (n == 0) {
        return MakeError(ErrorCode::kCorrupt, "the file ends too early")
            .WithPath(path_)
            .WithOffset(offset)
            .WithExpected(fmt::format("{} bytes", out.size()))
            .WithFound(fmt::format("{} bytes", done));
      }
      done += static_cast<std::size_t>(n);
    }
    return OkStatus();
  }

  Result<FileInfo> Info() const override {
    struct stat st{};
    if (::fstat(fd_.get(), &st) != 0) return SystemError(errno, "look at the file", path_);
    return InfoOf(st);
  }

  void DropCache(std::int64_t offset, std::int64_t length) const override {
    (void)::posix_fadvise(fd_.get(), offset, length, POSIX_FADV_DONTNEED);
  }

  void WillNeed(std::int64_t offset, std::int64_t length) const override { (void)::posix_fadvise(fd_.get(), offset, length, POSIX_FADV_WILLNEED); }

  const std::string& path() const override { return path_; }
  [[nodiscard]] int descriptor() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
  std::string path_;
};

/// What the files of one LocalStorage have in common.
struct Common {
  SystemCopies copies = SystemCopies::kWhereItPays;
  DirectWrites direct = DirectWrites::kWhereItPays;
  std::shared_ptr<WritebackWindow> window = std::make_shared<WritebackWindow>();
  std::shared_ptr<DirectFiles> files = std::make_shared<DirectFiles>();
};

class LocalWriteFile final : public WriteFile {
 public:
  LocalWriteFile(int fd, std::string path, const Common& common)
      : fd_(std::make_shared<FileDescriptor>(fd)), path_(std::move(path)), window_(common.window),
        copies_(common.copies == SystemCopies::kAlways || CopiesPay(fd)) {
    if (common.direct == DirectWrites::kAlways || (common.direct == DirectWrites::kWhereItPays && DirectWritesPay(fd))) {
      direct_ = std::make_unique<DirectFile>(path_, fd_, common.files);
    }
  }

  Status WriteAt(std::int64_t offset, std::span<const std::byte> data) override {
    const DirectFile::Part pages = direct_ == nullptr ? DirectFile::Part{} : DirectFile::WholePages(offset, data);
    if (pages.length == 0) return WriteCached(offset, data);
    const auto at = [&](std::size_t from) { return offset + static_cast<std::int64_t>(from); };
    const std::size_t written = pages.first + direct_->Write(at(pages.first), data.subspan(pages.first, pages.length));
    CROSSDOCK_RETURN_IF_ERROR(WriteCached(offset, data.first(pages.first)));
    return WriteCached(at(written), data.subspan(written));
  }

  bool CopyFrom(const ReadFile& source, std::int64_t from, std::int64_t to, std::int64_t length) override {
    const auto* local = dynamic_cast<const LocalReadFile*>(&source);
    if (local == nullptr || !copies_) return false;
    off_t in = from;
    off_t out = to;
    while (in < from + length) {
      const std::size_t left = std::min(static_cast<std::size_t>(from + length - in), kMaxTransfer);
      const ssize_t n = ::copy_file_range(local->descriptor(), &in, fd_->get(), &out, left, 0);
      // Not across every two file systems, not where one lacks it, not beyond the source's end.
      if (n == 0 || (n < 0 && errno != EINTR)) return false;
    }
    return true;
  }

  Status Preallocate(std::int64_t size) override {
    if (size <= 0) return OkStatus();
    while (::fallocate(fd_->get(), 0, 0, size) != 0) {
      if (errno == EINTR) continue;
      // Not every file system has it (NFS 3, FUSE, old ZFS); posix_fallocate would write zeros: every byte twice.
      if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return OkStatus();
      return SystemError(errno, "reserve room for the file", path_, ErrorCode::kIo)
          .WithExpected(fmt::format("{} bytes free", size));
    }
    return OkStatus();
  }

  Status Truncate(std::int64_t size) override {
    while (::ftruncate(fd_->get(), size) != 0) {
      if (errno != EINTR) return SystemError(errno, "set the size", path_, ErrorCode::kIo);
    }
    return OkStatus();
  }

  void StartWriteback(std::int64_t offset, std::int64_t length) override {
    if (length > 0) window_->Add(fd_, offset, length);
  }

  Status Sync() override {
    while (::fdatasync(fd_->get()) != 0) {
      if (errno == EINTR) continue;
      if (errno == EINVAL || errno == ENOTSUP) break;  // special files have nothing to sync
      return SystemError(errno, "make the file durable", path_, ErrorCode::kIo);
    }
    window_->Forget(*fd_);
    return OkStatus();
  }

  const std::string& path() const override { return path_; }

 private:
  Status WriteCached(std::int64_t offset, std::span<const std::byte> data) const {
    std::size_t done = 0;
    while (done < data.size()) {
      const ssize_t n = ::pwrite(fd_->get(), data.data() + done, std::min(data.size() - done, kMaxTransfer),
                                 offset + static_cast<std::int64_t>(done));
      if (n < 0) {
        if (errno == EINTR) continue;
        return SystemError(errno, "write", path_, ErrorCode::kIo).WithOffset(offset);
      }
      if (n == 0) return SystemError(EIO, "write", path_, ErrorCode::kIo).WithOffset(offset);
      done += static_cast<std::size_t>(n);
    }
    return OkStatus();
  }

  std::shared_ptr<const FileDescriptor> fd_;
  std::string path_;
  std::shared_ptr<WritebackWindow> window_;
  bool copies_;
  std::unique_ptr<DirectFile> direct_;   ///< null where all is written through the cache
};

class LocalStorage final : public Storage {
 public:
  explicit LocalStorage(const Common& common) : common_(common) {}

  Result<FileInfo> Stat(const std::string& path) override {
    struct stat st{};
    if (::lstat(path.c_str(), &st) != 0) return SystemError(errno, "look at the path", path);
    const bool is_symlink = S_ISLNK(st.st_mode);
    if (is_symlink && ::stat(path.c_str(), &st) != 0) return SystemError(errno, "follow the link", path);
    FileInfo info = InfoOf(st);
    info.is_symlink = is_symlink;
    return info;
  }

  Result<std::vector<DirEntry>> List(const std::string& dir) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(dir.c_str()), [](DIR* d) { return ::closedir(d); });
    if (stream == nullptr) return SystemError(errno, "list the directory", dir);
    std::vector<DirEntry> entries;
    while (true) {
      errno = 0;
      const dirent* found = ::readdir(stream.get());
      if (found == nullptr) {
        if (errno != 0) return SystemError(errno, "list the directory", dir);
        break;
      }
      const std::string_view name(found->d_name);
      if (name == "." || name == "..") continue;
      CROSSDOCK_ASSIGN_OR_RETURN(auto entry, Look(::dirfd(stream.get()), std::string(name), *found, dir));
      if (entry) entries.push_back(std::move(*entry));
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }

  Result<std::string> ReadLink(const std::string& path) override {
    std::array<char, PATH_MAX> buffer{};
    const ssize_t n = ::readlink(path.c_str(), buffer.data(), buffer.size());
    if (n < 0) return SystemError(errno, "read the link", path);
    return std::string(buffer.data(), static_cast<std::size_t>(n));
  }

  Result<std::unique_ptr<ReadFile>> OpenRead(const std::string& path) override {
    // O_NONBLOCK: opening a FIFO must not hang; it has no effect on regular files.
    CROSSDOCK_ASSIGN_OR_RETURN(const int fd, OpenFd(path, O_RDONLY | O_NONBLOCK, "open", ErrorCode::kIncomplete));
    auto file = std::make_unique<LocalReadFile>(fd, path);
    CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo info, file->Info());
    if (info.kind != FileKind::kFile) {
      return MakeError(ErrorCode::kUnsupported, "cannot read: this is not a regular file").WithPath(path)
          .WithHint("pipes, devices and directories are not read: put the file itself in its place");
    }
    return std::unique_ptr<ReadFile>(std::move(file));
  }

  Result<std::unique_ptr<WriteFile>> Create(const std::string& path) override {
    CROSSDOCK_ASSIGN_OR_RETURN(const int fd,
                               OpenFd(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, "create the file", ErrorCode::kIo));
    return std::unique_ptr<WriteFile>(std::make_unique<LocalWriteFile>(fd, path, common_));
  }

  /// Not for reading too: an NFS client that may read a page fills it up and sends all of it, over what other hosts wrote there meanwhile.
  Result<std::unique_ptr<WriteFile>> OpenWrite(const std::string& path) override {
    CROSSDOCK_ASSIGN_OR_RETURN(const int fd,
                               OpenFd(path, O_WRONLY | O_NOFOLLOW, "open for writing", ErrorCode::kIncomplete));
    return std::unique_ptr<WriteFile>(std::make_unique<LocalWriteFile>(fd, path, common_));
  }

  Status MakeDir(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) return SystemError(errno, "make the directory", path, ErrorCode::kIo);
    return OkStatus();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      return SystemError(errno, fmt::format("rename to {}", Printable(to)), from);
    }
    return OkStatus();
  }

  Status Exchange(const std::string& a, const std::string& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return OkStatus();
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
      return MakeError(ErrorCode::kUnsupported, "the file system cannot exchange two names").WithPath(a);
    }
    return SystemError(errno, fmt::format("exchange names with {}", Printable(b)), a);
  }

  Status RemoveFile(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return SystemError(errno, "remove the file", path);
    return OkStatus();
  }

  Status RemoveDir(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) return SystemError(errno, "remove the directory", path);
    return OkStatus();
  }

  Status SyncDir(const std::string& dir) override {
    CROSSDOCK_ASSIGN_OR_RETURN(const int raw,
                               OpenFd(dir, O_RDONLY | O_DIRECTORY, "open the directory", ErrorCode::kIncomplete));
    const FileDescriptor fd(raw);
    while (::fsync(fd.get()) != 0) {
      if (errno == EINTR) continue;
      // Some network file systems cannot sync a directory: their renames are durable or nothing can help.
      if (errno == EINVAL || errno == ENOTSUP || errno == EBADF) break;
      return SystemError(errno, "make the directory durable", dir);
    }
    return OkStatus();
  }

  Result<std::unique_ptr<WriteFile>> Lock(const std::string& path) override {
    while (true) {
      CROSSDOCK_ASSIGN_OR_RETURN(const int fd, OpenFd(path, O_RDWR | O_CREAT | O_NOFOLLOW, "write into the folder", ErrorCode::kIo));
      auto file = std::make_unique<LocalWriteFile>(fd, path, common_);
      while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno == EWOULDBLOCK) return std::unique_ptr<WriteFile>();
        return SystemError(errno, "lock", path, ErrorCode::kIo);
      }
      // The holder before us may have removed the file after we opened it: then our lock guards nothing.
      struct stat ours{};
      struct stat named{};
      if (::fstat(fd, &ours) != 0) return SystemError(errno, "lock", path, ErrorCode::kIo);
      if (::lstat(path.c_str(), &named) == 0 && named.st_ino == ours.st_ino && named.st_dev == ours.st_dev) {
        return std::unique_ptr<WriteFile>(std::move(file));
      }
    }
  }

  Result<Capabilities> Probe(const std::string& dir) override {
    struct statvfs st{};
    while (::statvfs(dir.c_str(), &st) != 0) {
      if (errno != EINTR) return SystemError(errno, "ask for free space", dir);
    }
    Capabilities can;
    std::uint64_t free_bytes = 0;
    if (__builtin_mul_overflow(std::uint64_t{st.f_bavail}, std::uint64_t{st.f_frsize}, &free_bytes) ||
        free_bytes > static_cast<std::uint64_t>(INT64_MAX)) {
      free_bytes = static_cast<std::uint64_t>(INT64_MAX);
    }
    can.free_bytes = static_cast<std::int64_t>(free_bytes);
    can.writable = ::access(dir.c_str(), W_OK | X_OK) == 0;
    return can;
  }

 private:
  static Result<int> OpenFd(const std::string& path, int flags, std::string_view action, ErrorCode absent) {
    while (true) {
      const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666);
      if (fd >= 0) return fd;
      if (errno != EINTR) return SystemError(errno, action, path, absent);
    }
  }

  /// What a name in a directory is; nothing when it vanished meanwhile.
  static Result<std::optional<DirEntry>> Look(int dir_fd, std::string name, const dirent& found,
                                              const std::string& dir) {
    DirEntry entry;
    entry.name = std::move(name);
    if (found.d_type == DT_REG || found.d_type == DT_DIR) {
      entry.kind = found.d_type == DT_REG ? FileKind::kFile : FileKind::kDirectory;
      return std::optional(std::move(entry));
    }
    struct stat st{};
    if (::fstatat(dir_fd, entry.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return std::optional<DirEntry>();
      return SystemError(errno, "look at the path", JoinPath(dir, entry.name));
    }
    entry.is_symlink = S_ISLNK(st.st_mode);
    if (entry.is_symlink && ::fstatat(dir_fd, entry.name.c_str(), &st, 0) != 0) {
      entry.kind = FileKind::kOther;  // dangling, or leading where we may not look
      return std::optional(std::move(entry));
    }
    entry.kind = KindOf(st.st_mode);
    return std::optional(std::move(entry));
  }

  Common common_;
};

}  // namespace

std::unique_ptr<Storage> MakeLocalStorage(SystemCopies copies) { return MakeLocalStorage(copies, DirectWrites::kWhereItPays); }

std::unique_ptr<Storage> MakeLocalStorage(SystemCopies copies, DirectWrites direct) {
  Common common;
  common.copies = copies;
  common.direct = direct;
  return std::make_unique<LocalStorage>(common);
}

}  // namespace crossdock::io
