// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/decoders.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/endian.h"

namespace crossdock::formats::zarr {
namespace {

class CheckedStream final : public ByteStream {
 public:
  explicit CheckedStream(std::unique_ptr<ByteStream> encoded) : encoded_(std::move(encoded)) {}
  Result<std::size_t> Read(std::span<std::byte> out) override {
    // What was read last may be the checksum: four bytes are always kept back.
    while (true) {
      if (held_.size() > kSum) {
        const std::size_t n = std::min(out.size(), held_.size() - kSum);
        std::copy_n(held_.begin(), n, out.begin());
        held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(n));
        crc_ = Crc32c(crc_, out.first(n));
        return n;
      }
      const std::size_t held = held_.size();
      held_.resize(held + kPiece);
      CROSSDOCK_ASSIGN_OR_RETURN(const std::size_t n, encoded_->Read(std::span(held_).subspan(held)));
      held_.resize(held + n);
      if (n == 0) break;
    }
    if (held_.size() < kSum) return MakeError(ErrorCode::kCorrupt, "a chunk is too short for its CRC-32C");
    if (LoadLittle<std::uint32_t>(held_.data()) != crc_) return MakeError(ErrorCode::kCorrupt, "the CRC-32C of a chunk is another than its bytes'");
    return std::size_t{0};
  }

 private:
  static constexpr std::size_t kSum = 4;
  static constexpr std::size_t kPiece = std::size_t{64} << 10U;
  std::unique_ptr<ByteStream> encoded_;
  std::vector<std::byte> held_;
  std::uint32_t crc_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> CheckCrc32c(std::unique_ptr<ByteStream> encoded) { return std::make_unique<CheckedStream>(std::move(encoded)); }

Result<std::unique_ptr<ByteStream>> Decode(const Codecs& codecs, StoredBytes stored) {
  if (codecs == Codecs{Codec::kBlosc}) return DecodeBlosc(stored);
  std::unique_ptr<ByteStream> stream = StreamOf(stored);
  for (const Codec codec : std::views::reverse(codecs)) {
    switch (codec) {
      case Codec::kZstd: {
        CROSSDOCK_ASSIGN_OR_RETURN(stream, DecodeZstd(std::move(stream)));
        break;
      }
      case Codec::kGzip: {
        CROSSDOCK_ASSIGN_OR_RETURN(stream, DecodeGzip(std::move(stream)));
        break;
      }
      case Codec::kCrc32c:
        stream = CheckCrc32c(std::move(stream));
        break;
      case Codec::kBlosc:
        CROSSDOCK_CHECK(false);  // see REQUIRES
    }
  }
  return stream;
}

}  // namespace crossdock::formats::zarr
