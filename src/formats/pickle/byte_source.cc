// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/byte_source.h"

#include <algorithm>

#include "base/check.h"

namespace crossdock::formats::pickle {
namespace {

constexpr std::int64_t kWindow = 256 << 10;
constexpr std::int64_t kLongestLine = 1 << 20;

}  // namespace

void ByteSource::Seek(std::int64_t offset) {
  CROSSDOCK_CHECK(offset >= 0 && offset <= size_);
  const std::int64_t window_end = window_start_ + static_cast<std::int64_t>(window_.size());
  if (offset >= window_start_ && offset <= window_end) {
    at_ = static_cast<std::size_t>(offset - window_start_);
    return;
  }
  window_ = {};
  window_start_ = offset;
  at_ = 0;
}

Result<std::string_view> ByteSource::Take(std::int64_t count) {
  if (count < 0 || count > remaining()) return Truncated(count);
  const auto wanted = static_cast<std::size_t>(count);
  if (window_.size() - at_ < wanted) CROSSDOCK_RETURN_IF_ERROR(Fill(count));
  const std::string_view out = window_.substr(at_, wanted);
  at_ += wanted;
  return out;
}

Result<std::string_view> ByteSource::TakeLine() {
  std::int64_t visible = 256;
  while (true) {
    visible = std::min(visible, remaining());
    if (static_cast<std::int64_t>(window_.size() - at_) < visible) CROSSDOCK_RETURN_IF_ERROR(Fill(visible));
    const std::size_t end = window_.find('\n', at_);
    if (end != std::string_view::npos) {
      const std::string_view out = window_.substr(at_, end - at_);
      at_ = end + 1;
      return out;
    }
    if (visible == remaining()) return Truncated(visible + 1);
    if (visible >= kLongestLine) {
      return MakeError(ErrorCode::kCorrupt, "a line in a pickle is too long").WithPath(path()).WithOffset(InFile(offset()));
    }
    visible *= 4;
  }
}

Status ByteSource::Fill(std::int64_t count) {
  if (file_ == nullptr) return OkStatus();  // the window is everything
  const std::int64_t start = offset();
  const std::int64_t length = std::min(std::max(count, kWindow), size_ - start);
  buffer_.resize(static_cast<std::size_t>(length));
  CROSSDOCK_RETURN_IF_ERROR(file_->ReadAt(begin_ + start, std::as_writable_bytes(std::span(buffer_))));
  window_ = buffer_;
  window_start_ = start;
  at_ = 0;
  return OkStatus();
}

Error ByteSource::Truncated(std::int64_t wanted) const {
  return MakeError(ErrorCode::kCorrupt, "a pickle ends before it is complete")
      .WithPath(path())
      .WithOffset(InFile(offset()))
      .WithExpected(std::to_string(wanted) + " more bytes")
      .WithFound(std::to_string(remaining()));
}

}  // namespace crossdock::formats::pickle
