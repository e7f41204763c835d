// SPDX-License-Identifier: Apache-2.0
/// \file  WritebackWindow: keeps the dirty pages of all files of a storage few while they are written.
/// Written ranges are gathered; every kBatch bytes the kernel is asked to write them back, and what was started
/// more than kWindow bytes ago is waited for and dropped from the cache. The disk then works from the first
/// second, the final fdatasync finds almost nothing, and the page cache stays small whatever the checkpoint's size.
/// Short ranges that lie apart (rows of a layer in a stack of layers) are left to the kernel: it writes them back by age and by how much is
/// dirty, when their neighbours are there, while two calls for each would cost more than the write, and pages on a border be written twice.
/// Threads: all members may be called from any thread; waiting happens outside the lock. Errors are not told here:
/// fdatasync reports them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "io/file_descriptor.h"

namespace crossdock::io {

class WritebackWindow {
 public:
  static constexpr std::int64_t kBatch = std::int64_t{8} << 20U;
  static constexpr std::int64_t kLeast = std::int64_t{128} << 10U;
  static constexpr std::int64_t kWindow = std::int64_t{32} << 20U;

  void Add(const std::shared_ptr<const FileDescriptor>& file, std::int64_t offset, std::int64_t length);
  /// The file is durable: its ranges need no more waiting, and its pages go.
  void Forget(const FileDescriptor& file);

 private:
  struct Range {
    std::shared_ptr<const FileDescriptor> file;
    std::int64_t offset = 0;
    std::int64_t length = 0;
  };
  std::mutex mutex_;
  std::vector<Range> gathered_;  ///< written, write-back not started
  std::deque<Range> started_;
  std::int64_t gathered_bytes_ = 0;
  std::int64_t started_bytes_ = 0;
};

}  // namespace crossdock::io
