// SPDX-License-Identifier: Apache-2.0
#include "io/direct_file.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossdock::io {
namespace {

constexpr long kXfsMagic = 0x58465342;  // NOLINT(google-runtime-int): statfs has this type; <linux/magic.h> lacks it
constexpr long kCacheStat = 451;        // NOLINT(google-runtime-int): the C library knows it since glibc 2.40 only

bool Moves(const FileDescriptor& file) {
  struct statfs fs{};
  if (::fstatfs(file.get(), &fs) != 0) return false;
  return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == kXfsMagic;
}

bool SameFile(int a, int b) {
  struct stat first{};
  struct stat second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

/// The file's unit of direct reads; 0 when it has none that we can serve, kBlock when the kernel does not tell.
std::int64_t ReadUnit(int fd) {
#ifdef STATX_DIOALIGN
  struct statx st{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 && (st.stx_mask & STATX_DIOALIGN) != 0) {
    const auto offset = static_cast<std::int64_t>(st.stx_dio_offset_align);
    const auto memory = static_cast<std::int64_t>(st.stx_dio_mem_align);
    const bool served =
        offset > 0 && memory > 0 && DirectFile::kBlock % offset == 0 && DirectFile::kBlock % memory == 0;
    return served ? offset : 0;
  }
#endif
  return DirectFile::kBlock;
}

}  // namespace

void DirectFile::Open(const FileDescriptor& buffered, const std::string& path) {
  if (!Moves(buffered) || !CachedBytes(buffered, 0, kBlock)) return;
  const int fd = ::open(path.c_str(), access_ | O_DIRECT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return;
  fd_.emplace(fd);
  if (!SameFile(fd, buffered.get())) return;
  const std::int64_t unit = ReadUnit(fd);
  if (unit == 0) return;
  read_unit_ = unit;
  usable_ = true;
}

bool DirectFile::Ready(const FileDescriptor& buffered, const std::string& path) {
  std::call_once(once_, [&] { Open(buffered, path); });
  return usable_;
}

std::size_t DirectFile::Read(std::int64_t offset, std::span<std::byte> out) {
  const ssize_t n = ::pread(fd_->get(), out.data(), out.size(), offset);
  if (n < 0 && errno != EINTR) usable_ = false;
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

std::size_t DirectFile::Write(std::int64_t offset, std::span<const std::byte> data) {
  const ssize_t n = ::pwrite(fd_->get(), data.data(), data.size(), offset);
  if (n < 0 && errno != EINTR) usable_ = false;
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

std::optional<std::int64_t> CachedBytes(const FileDescriptor& file, std::int64_t offset, std::int64_t length) {
  struct {
    std::uint64_t offset;
    std::uint64_t length;
  } range{static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(length)};
  std::array<std::uint64_t, 5> counts{};  // cached, dirty, in write-back, evicted, recently evicted; in pages
  if (::syscall(kCacheStat, file.get(), &range, counts.data(), 0) != 0) return std::nullopt;
  return static_cast<std::int64_t>(counts[0]) * ::sysconf(_SC_PAGESIZE);
}

}  // namespace crossdock::io
