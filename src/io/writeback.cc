// SPDX-License-Identifier: Apache-2.0
#include "io/writeback.h"

#include <utility>

#include <fcntl.h>

namespace crossdock::io {

void WritebackWindow::Add(const std::shared_ptr<const FileDescriptor>& file, std::int64_t offset, std::int64_t length) {
  std::vector<Range> start;
  std::vector<Range> finish;
  {
    const std::lock_guard lock(mutex_);
    if (!gathered_.empty() && gathered_.back().file == file &&
        gathered_.back().offset + gathered_.back().length == offset) {
      gathered_.back().length += length;
    } else {
      gathered_.push_back({file, offset, length});
    }
    gathered_bytes_ += length;
    if (gathered_bytes_ < kBatch) return;
    gathered_bytes_ = 0;
    start.swap(gathered_);
    std::erase_if(start, [](const Range& r) { return r.length < kLeast; });
    for (const Range& r : start) started_bytes_ += r.length;
    started_.insert(started_.end(), start.begin(), start.end());
    while (started_bytes_ > kWindow && !started_.empty()) {
      started_bytes_ -= started_.front().length;
      finish.push_back(std::move(started_.front()));
      started_.pop_front();
    }
  }
  for (const Range& r : start) {
    (void)::sync_file_range(r.file->get(), r.offset, r.length, SYNC_FILE_RANGE_WRITE);
  }
  for (const Range& r : finish) {
    (void)::sync_file_range(r.file->get(), r.offset, r.length,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    (void)::posix_fadvise(r.file->get(), r.offset, r.length, POSIX_FADV_DONTNEED);
  }
}

void WritebackWindow::Forget(const FileDescriptor& file) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(gathered_, [&](const Range& r) {
      if (r.file.get() != &file) return false;
      gathered_bytes_ -= r.length;
      return true;
    });
    std::erase_if(started_, [&](const Range& r) {
      if (r.file.get() != &file) return false;
      started_bytes_ -= r.length;
      return true;
    });
  }
  (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace crossdock::io
