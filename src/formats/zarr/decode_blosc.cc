// SPDX-License-Identifier: Apache-2.0
// c-blosc decodes whole buffers only, but its blocks are independent: each is handed to it as a buffer of one block, so that a
// chunk of 2 GiB needs the memory of a block. A buffer (c-blosc 1.21, README_CHUNK_FORMAT.rst): u8 version, u8 version of the
// codec, u8 flags, u8 typesize, u32 nbytes, u32 blocksize, u32 cbytes; then, unless the flag "memcpyed" says that the bytes lie
// there as they are, an i32 for each block with its place in the buffer.
#include <blosc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked_math.h"
#include "base/endian.h"
#include "formats/zarr/decoders.h"

namespace crossdock::formats::zarr {
namespace {

constexpr std::int64_t kHeader = BLOSC_MIN_HEADER_LENGTH;
constexpr std::int64_t kLargestBlock = std::int64_t{64} << 20U;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 22U;
constexpr unsigned kMemcpyed = 0x2;

Error Damaged(std::string found) {
  return MakeError(ErrorCode::kCorrupt, "a blosc buffer cannot be decoded").WithFound(std::move(found));
}

class BloscStream final : public ByteStream {
 public:
  explicit BloscStream(StoredBytes encoded) : encoded_(encoded) {}

  Status Start() {
    header_.resize(kHeader);
    CROSSDOCK_RETURN_IF_ERROR(encoded_.ReadAt(0, header_));
    total_ = LoadLittle<std::uint32_t>(header_.data() + 4);
    block_ = LoadLittle<std::uint32_t>(header_.data() + 8);
    const std::int64_t stored = LoadLittle<std::uint32_t>(header_.data() + 12);
    if (stored != encoded_.size()) return Damaged("a header that speaks of " + std::to_string(stored) + " bytes, and " + std::to_string(encoded_.size()) + " bytes");
    if ((std::to_integer<unsigned>(header_[2]) & kMemcpyed) != 0) {
      if (stored != kHeader + total_) return Damaged("another number of copied bytes than its header says");
      plain_ = true;
      return OkStatus();
    }
    if (total_ == 0) return OkStatus();
    if (block_ == 0) return Damaged("blocks of no bytes");
    block_ = std::min(block_, total_);
    const std::int64_t blocks = CeilDiv(total_, block_);
    if (block_ > kLargestBlock || blocks > kMostBlocks) {
      return MakeError(ErrorCode::kUnsupported, "a blosc buffer is cut in a way that is not read")
          .WithExpected("blocks of at most 64 MiB, at most 2^22 of them")
          .WithFound(std::to_string(blocks) + " blocks of " + std::to_string(block_) + " bytes");
    }
    std::vector<std::byte> table(static_cast<std::size_t>(4 * blocks));
    CROSSDOCK_RETURN_IF_ERROR(encoded_.ReadAt(kHeader, table));
    starts_.reserve(static_cast<std::size_t>(blocks));
    for (std::size_t i = 0; i < table.size(); i += 4) {
      const std::int64_t start = LoadLittle<std::int32_t>(table.data() + i);
      if (start < kHeader + 4 * blocks || start >= stored) return Damaged("a block beyond the end");
      starts_.push_back(start);
    }
    // Threads write blocks in the order in which they are done: a block ends where the next one in the buffer begins.
    sorted_ = starts_;
    std::ranges::sort(sorted_);
    return OkStatus();
  }

  Result<std::size_t> Read(std::span<std::byte> out) override {
    if (plain_) return ReadPlain(out);
    if (used_ == decoded_.size()) {
      if (next_ == starts_.size()) return std::size_t{0};
      CROSSDOCK_RETURN_IF_ERROR(DecodeBlocks());
    }
    const std::size_t n = std::min(out.size(), decoded_.size() - used_);
    std::memcpy(out.data(), decoded_.data() + used_, n);
    used_ += n;
    return n;
  }

 private:
  Result<std::size_t> ReadPlain(std::span<std::byte> out) {
    const auto n = static_cast<std::size_t>(std::min(static_cast<std::int64_t>(out.size()), total_ - at_));
    CROSSDOCK_RETURN_IF_ERROR(encoded_.ReadAt(kHeader + at_, out.first(n)));
    at_ += static_cast<std::int64_t>(n);
    return n;
  }

  [[nodiscard]] ByteRange PlaceOf(std::size_t index) const {
    const auto after = std::ranges::upper_bound(sorted_, starts_[index]);
    const std::int64_t end = after == sorted_.end() ? encoded_.size() : *after;
    return {starts_[index], end - starts_[index]};
  }

  /// One block; of the last two both when the last is shorter, for a buffer must not be smaller than its block size.
  Status DecodeBlocks() {
    const std::size_t left = starts_.size() - next_;
    const std::size_t count = left == 2 && total_ % block_ != 0 ? 2 : 1;
    const std::int64_t bytes = std::min(static_cast<std::int64_t>(count) * block_, total_ - static_cast<std::int64_t>(next_) * block_);
    std::vector<std::byte> buffer(header_);
    std::int64_t size = kHeader + 4 * static_cast<std::int64_t>(count);
    buffer.resize(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < count; ++i) {
      const ByteRange place = PlaceOf(next_ + i);
      StoreLittle(buffer.data() + kHeader + 4 * i, static_cast<std::int32_t>(size));
      if (place.length > 2 * block_ + 4096) return Damaged("a block larger than what it holds");
      buffer.resize(static_cast<std::size_t>(size + place.length));
      CROSSDOCK_RETURN_IF_ERROR(encoded_.ReadAt(place.offset, std::span(buffer).subspan(static_cast<std::size_t>(size))));
      size += place.length;
    }
    StoreLittle(buffer.data() + 4, static_cast<std::uint32_t>(bytes));
    StoreLittle(buffer.data() + 12, static_cast<std::uint32_t>(size));
    std::size_t told = 0;
    if (blosc_cbuffer_validate(buffer.data(), buffer.size(), &told) != 0 || told != static_cast<std::size_t>(bytes)) {
      return Damaged("a header that contradicts itself");
    }
    decoded_.resize(static_cast<std::size_t>(bytes));
    if (blosc_decompress_ctx(buffer.data(), decoded_.data(), decoded_.size(), 1) != bytes) {
      return Damaged("a damaged block, or a codec that c-blosc was built without");
    }
    next_ += count;
    used_ = 0;
    return OkStatus();
  }

  StoredBytes encoded_;
  std::vector<std::byte> header_;
  std::int64_t total_ = 0;
  std::int64_t block_ = 0;
  bool plain_ = false;
  std::int64_t at_ = 0;  ///< of plain bytes
  std::vector<std::int64_t> starts_, sorted_;
  std::size_t next_ = 0;  ///< block
  std::vector<std::byte> decoded_;
  std::size_t used_ = 0;
};

}  // namespace

Result<std::unique_ptr<ByteStream>> DecodeBlosc(StoredBytes encoded) {
  auto stream = std::make_unique<BloscStream>(encoded);
  CROSSDOCK_RETURN_IF_ERROR(stream->Start());
  return std::unique_ptr<ByteStream>(std::move(stream));
}

}  // namespace crossdock::formats::zarr
