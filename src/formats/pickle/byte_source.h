// SPDX-License-Identifier: Apache-2.0
/// \file  ByteSource: forward reading over bytes in memory or over a range of a file, through one small window.
/// Invariant: 0 <= offset() <= size(); a view that Take returned is valid until the next call.
/// Errors: kCorrupt when fewer bytes are left than asked for; those of ReadFile.
/// Threads: one source, one thread. Ownership: the bytes or the file must outlive the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "io/storage.h"

namespace crossdock::formats::pickle {

class ByteSource {
 public:
  explicit ByteSource(std::string_view bytes) : window_(bytes), size_(static_cast<std::int64_t>(bytes.size())) {}
  /// [begin, begin + length) of `file`; offsets of this source count from `begin`. REQUIRES: the range lies in the file.
  ByteSource(const io::ReadFile& file, std::int64_t begin, std::int64_t length)
      : file_(&file), begin_(begin), size_(length) {}

  [[nodiscard]] std::int64_t offset() const { return window_start_ + static_cast<std::int64_t>(at_); }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t remaining() const { return size_ - offset(); }
  /// Path of the file, empty for bytes in memory.
  [[nodiscard]] std::string path() const { return file_ == nullptr ? std::string() : file_->path(); }
  /// `offset` of this source as an offset in the file, for messages.
  [[nodiscard]] std::int64_t InFile(std::int64_t offset) const { return begin_ + offset; }
  /// REQUIRES: 0 <= offset <= size().
  void Seek(std::int64_t offset);

  [[nodiscard]] Result<std::string_view> Take(std::int64_t count);
  /// The text before the next newline, which is consumed too. kCorrupt when the line is longer than 1 MiB.
  [[nodiscard]] Result<std::string_view> TakeLine();

 private:
  /// Makes at least `count` bytes (or all that remain) visible in the window.
  [[nodiscard]] Status Fill(std::int64_t count);
  [[nodiscard]] Error Truncated(std::int64_t wanted) const;

  const io::ReadFile* file_ = nullptr;
  std::int64_t begin_ = 0;
  std::string buffer_;           // what window_ views when there is a file
  std::string_view window_;
  std::int64_t window_start_ = 0;
  std::size_t at_ = 0;           // position in window_
  std::int64_t size_ = 0;
};

}  // namespace crossdock::formats::pickle
