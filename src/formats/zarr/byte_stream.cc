// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/byte_stream.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"

namespace crossdock::formats::zarr {
namespace {

class RangeStream final : public ByteStream {
 public:
  explicit RangeStream(StoredBytes bytes) : bytes_(bytes) {}
  Result<std::size_t> Read(std::span<std::byte> out) override {
    const auto left = static_cast<std::size_t>(bytes_.size() - at_);
    const auto part = out.first(std::min(out.size(), left));
    if (part.empty()) return std::size_t{0};
    CROSSDOCK_RETURN_IF_ERROR(bytes_.ReadAt(at_, part));
    at_ += static_cast<std::int64_t>(part.size());
    return part.size();
  }

 private:
  StoredBytes bytes_;
  std::int64_t at_ = 0;
};

Error Beyond(std::int64_t offset, std::int64_t length, std::int64_t size) {
  return MakeError(ErrorCode::kCorrupt, "a stored chunk names bytes beyond its end")
      .WithExpected("at most " + std::to_string(size) + " bytes")
      .WithFound(std::to_string(length) + " bytes at " + std::to_string(offset));
}

}  // namespace

Status StoredBytes::ReadAt(std::int64_t offset, std::span<std::byte> out) const {
  const auto length = static_cast<std::int64_t>(out.size());
  const auto end = CheckedAdd(offset, length);
  if (offset < 0 || !end || *end > range_.length) return Beyond(offset, length, range_.length);
  if (file_ != nullptr) return file_->ReadAt(range_.offset + offset, out);
  std::memcpy(out.data(), bytes_.data() + range_.offset + offset, out.size());
  return OkStatus();
}

Result<StoredBytes> StoredBytes::Part(ByteRange part) const {
  const auto end = CheckedAdd(part.offset, part.length);
  if (part.offset < 0 || part.length < 0 || !end || *end > range_.length) return Beyond(part.offset, part.length, range_.length);
  StoredBytes out = *this;
  out.range_ = {range_.offset + part.offset, part.length};
  return out;
}

std::unique_ptr<ByteStream> StreamOf(StoredBytes bytes) { return std::make_unique<RangeStream>(bytes); }

Status ReadFully(ByteStream& stream, std::span<std::byte> out) {
  while (!out.empty()) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::size_t n, stream.Read(out));
    if (n == 0) {
      return MakeError(ErrorCode::kCorrupt, "an encoded chunk holds too few bytes")
          .WithExpected(std::to_string(out.size()) + " bytes more");
    }
    out = out.subspan(n);
  }
  return OkStatus();
}

}  // namespace crossdock::formats::zarr
