// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/range_reader.h"

#include <algorithm>
#include <span>

#include "base/checked_math.h"

namespace crossdock::formats::torch_zip {
namespace {

/// A blob's pickle and headers take under 1 KiB, its directory about as much.
constexpr std::int64_t kWindow = 4096;

Status Fill(const io::ReadFile& file, std::int64_t offset, std::int64_t length, std::string& out) {
  out.resize(static_cast<std::size_t>(length));
  return file.ReadAt(offset, std::as_writable_bytes(std::span(out)));
}

}  // namespace

Result<RangeReader> RangeReader::Open(const io::ReadFile& file, ByteRange range) {
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file.Info());
  const auto end = CheckedAdd(range.offset, range.length);
  if (range.offset < 0 || range.length < 0 || !end || *end > info.size) {
    return MakeError(ErrorCode::kCorrupt, "a file ends before the data it should hold")
        .WithPath(file.path())
        .WithOffset(range.offset)
        .WithExpected(std::to_string(range.length) + " bytes")
        .WithFound("a file of " + std::to_string(info.size) + " bytes");
  }
  RangeReader out(file, range);
  const std::int64_t head = range.length <= 2 * kWindow ? range.length : kWindow;
  CROSSDOCK_RETURN_IF_ERROR(Fill(file, range.offset, head, out.head_));
  if (head < range.length) CROSSDOCK_RETURN_IF_ERROR(Fill(file, *end - kWindow, kWindow, out.tail_));
  return out;
}

Result<std::string> RangeReader::Read(std::int64_t offset, std::int64_t length) const {
  const auto end = CheckedAdd(offset, length);
  if (offset < 0 || length < 0 || !end || *end > size()) {
    return Corrupt("a zip refers to bytes that it does not have", offset).WithFound(std::to_string(length) + " bytes");
  }
  if (*end <= static_cast<std::int64_t>(head_.size())) {
    return head_.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
  }
  const std::int64_t tail_start = size() - static_cast<std::int64_t>(tail_.size());
  if (offset >= tail_start) {
    return tail_.substr(static_cast<std::size_t>(offset - tail_start), static_cast<std::size_t>(length));
  }
  std::string out;
  CROSSDOCK_RETURN_IF_ERROR(Fill(*file_, range_.offset + offset, length, out));
  return out;
}

Error RangeReader::Corrupt(std::string what, std::int64_t offset) const {
  return MakeError(ErrorCode::kCorrupt, std::move(what)).WithPath(file_->path()).WithOffset(range_.offset + offset);
}

}  // namespace crossdock::formats::torch_zip
