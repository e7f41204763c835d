// SPDX-License-Identifier: Apache-2.0
/// \file  FileDescriptor: an open file of the operating system, closed when its owner goes.
/// Threads: the number never changes, so it may be read from any thread.
#pragma once

#include <unistd.h>

namespace crossdock::io {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  /// close() may report an old write error; durability is decided by Sync, so nothing is lost here.
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace crossdock::io
