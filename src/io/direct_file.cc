// SPDX-License-Identifier: Apache-2.0
#include "io/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace crossdock::io {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{8} << 20U;  // what some drivers take as one request at most is far above

/// Of memory and of files; no device in use asks for more than 4 KiB, and a cache works by pages.
std::size_t PageBytes() {
  static const std::size_t bytes = std::max<std::size_t>(4096, static_cast<std::size_t>(std::max(::sysconf(_SC_PAGESIZE), 0L)));
  return bytes;
}

}  // namespace

bool DirectFiles::Take() {
  if (++open_ <= kMost) return true;
  --open_;
  return false;
}

DirectFile::DirectFile(std::string path, std::shared_ptr<const FileDescriptor> same, std::shared_ptr<DirectFiles> files)
    : path_(std::move(path)), same_(std::move(same)), files_(std::move(files)) {}

DirectFile::~DirectFile() {
  if (direct_ != nullptr) files_->Return();
}

DirectFile::Part DirectFile::WholePages(std::int64_t offset, std::span<const std::byte> data) {
  const std::size_t page = PageBytes();
  const std::size_t first = (page - static_cast<std::size_t>(offset) % page) % page;
  if (data.size() < first + kLeast || reinterpret_cast<std::uintptr_t>(data.data() + first) % page != 0) return {};
  return {first, (data.size() - first) / page * page};
}

bool DirectFile::Open() {
  std::call_once(once_, [&] {
    if (!files_->Take()) return;
    auto direct = std::make_unique<FileDescriptor>(::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW));
    // The name may be another file's by now.
    struct stat ours{}, named{};
    const bool same = direct->get() >= 0 && ::fstat(direct->get(), &named) == 0 && ::fstat(same_->get(), &ours) == 0 && S_ISREG(named.st_mode) &&
                      named.st_ino == ours.st_ino && named.st_dev == ours.st_dev;
    if (same) {
      direct_ = std::move(direct);
    } else {
      files_->Return();
    }
  });
  return direct_ != nullptr;
}

std::size_t DirectFile::Write(std::int64_t offset, std::span<const std::byte> pages) {
  if (refused_ || pages.empty() || !Open()) return 0;
  std::size_t done = 0;
  while (done < pages.size()) {
    const std::size_t n = std::min(pages.size() - done, kMostAtOnce);
    const ssize_t written = ::pwrite(direct_->get(), pages.data() + done, n, offset + static_cast<std::int64_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) refused_ = true;
    if (written > 0) done += static_cast<std::size_t>(written);
    if (written < static_cast<ssize_t>(n)) break;  // a part of a page is not for us
  }
  return done;
}

}  // namespace crossdock::io
