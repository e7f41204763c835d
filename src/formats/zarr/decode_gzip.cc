// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "formats/zarr/decoders.h"

namespace crossdock::formats::zarr {
namespace {

constexpr std::size_t kGzipInput = std::size_t{64} << 10U;
constexpr std::size_t kMostOutput = std::size_t{1} << 30U;  // the library counts in unsigned int
constexpr int kGzipOrZlib = 15 + 32;

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(std::unique_ptr<ByteStream> encoded) : encoded_(std::move(encoded)), buffer_(kGzipInput) {}
  ~GzipStream() override {
    if (ready_) inflateEnd(&state_);
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  Status Start() {
    if (inflateInit2(&state_, kGzipOrZlib) != Z_OK) return MakeError(ErrorCode::kIo, "the system gives no memory for a gzip decoder");
    ready_ = true;
    return OkStatus();
  }

  Result<std::size_t> Read(std::span<std::byte> out) override {
    const auto part = out.first(std::min(out.size(), kMostOutput));
    state_.next_out = reinterpret_cast<Bytef*>(part.data());
    state_.avail_out = static_cast<uInt>(part.size());
    while (state_.avail_out == part.size()) {
      if (state_.avail_in == 0) {
        CROSSDOCK_ASSIGN_OR_RETURN(const std::size_t n, encoded_->Read(buffer_));
        if (n == 0) {
          if (!within_) return std::size_t{0};
          return MakeError(ErrorCode::kCorrupt, "a gzip stream ends too early");
        }
        state_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
        state_.avail_in = static_cast<uInt>(n);
      }
      if (!within_ && inflateReset(&state_) != Z_OK) return Damaged();  // another member
      within_ = true;
      const int outcome = inflate(&state_, Z_NO_FLUSH);
      if (outcome == Z_STREAM_END) {
        within_ = false;
      } else if (outcome != Z_OK && outcome != Z_BUF_ERROR) {
        return Damaged();
      }
    }
    return part.size() - state_.avail_out;
  }

 private:
  [[nodiscard]] Error Damaged() const {
    return MakeError(ErrorCode::kCorrupt, "a gzip stream cannot be decoded").WithFound(state_.msg != nullptr ? state_.msg : "damaged data");
  }

  std::unique_ptr<ByteStream> encoded_;
  std::vector<std::byte> buffer_;
  z_stream state_{};
  bool ready_ = false;
  bool within_ = true;
};

}  // namespace

Result<std::unique_ptr<ByteStream>> DecodeGzip(std::unique_ptr<ByteStream> encoded) {
  auto stream = std::make_unique<GzipStream>(std::move(encoded));
  CROSSDOCK_RETURN_IF_ERROR(stream->Start());
  return std::unique_ptr<ByteStream>(std::move(stream));
}

}  // namespace crossdock::formats::zarr
