// SPDX-License-Identifier: Apache-2.0
/// \file  A ReadFile over bytes in memory, with room for a large run of zeros in the middle (a tensor of 5 GiB).
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "io/storage.h"

namespace crossdock {

class BytesFile : public io::ReadFile {
 public:
  explicit BytesFile(std::string head, std::int64_t zeros = 0, std::string tail = "")
      : head_(std::move(head)), zeros_(zeros), tail_(std::move(tail)) {}

  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(head_.size()) + zeros_ + static_cast<std::int64_t>(tail_.size());
  }
  [[nodiscard]] Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
    ++reads;
    bytes_read += static_cast<std::int64_t>(out.size());
    if (offset < 0 || offset + static_cast<std::int64_t>(out.size()) > size()) {
      return MakeError(ErrorCode::kCorrupt, "short read").WithPath(path_);
    }
    const auto head = static_cast<std::int64_t>(head_.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t at = offset + static_cast<std::int64_t>(i);
      char c = '\0';
      if (at < head) c = head_[static_cast<std::size_t>(at)];
      if (at >= head + zeros_) c = tail_[static_cast<std::size_t>(at - head - zeros_)];
      out[i] = static_cast<std::byte>(c);
    }
    return OkStatus();
  }
  [[nodiscard]] Result<io::FileInfo> Info() const override { return io::FileInfo{.size = size()}; }
  void DropCache(std::int64_t, std::int64_t) const override {}
  [[nodiscard]] const std::string& path() const override { return path_; }

  mutable int reads = 0;
  mutable std::int64_t bytes_read = 0;

 private:
  std::string path_ = "bytes.pt";
  std::string head_;
  std::int64_t zeros_;
  std::string tail_;
};

}  // namespace crossdock
