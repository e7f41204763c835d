// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include <vector>

#include "formats/zarr/decoders.h"

namespace crossdock::formats::zarr {
namespace {

constexpr int kLargestWindowLog = 27;  // 128 MiB, what zstd's own command line takes without being asked
constexpr std::size_t kZstdInput = std::size_t{128} << 10U;

class ZstdStream final : public ByteStream {
 public:
  ZstdStream(std::unique_ptr<ByteStream> encoded, ZSTD_DCtx* context) : encoded_(std::move(encoded)), context_(context), buffer_(kZstdInput) {}
  Result<std::size_t> Read(std::span<std::byte> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0) {
      if (from_.pos == from_.size && !flushing_) {
        CROSSDOCK_ASSIGN_OR_RETURN(const std::size_t n, encoded_->Read(buffer_));
        if (n == 0) {
          if (!within_) return std::size_t{0};
          return MakeError(ErrorCode::kCorrupt, "a zstd frame ends too early");
        }
        from_ = {buffer_.data(), n, 0};
      }
      const std::size_t left = ZSTD_decompressStream(context_.get(), &to, &from_);
      if (ZSTD_isError(left) != 0U) {
        return MakeError(ErrorCode::kCorrupt, "a zstd frame cannot be decoded").WithFound(ZSTD_getErrorName(left));
      }
      within_ = left != 0;
      flushing_ = to.pos == to.size && within_;  // there may be more output without more input
    }
    return to.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ByteStream> encoded_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  std::vector<std::byte> buffer_;
  ZSTD_inBuffer from_{nullptr, 0, 0};
  bool within_ = true;  ///< a frame has begun and not ended: nothing at all is no frame
  bool flushing_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteStream>> DecodeZstd(std::unique_ptr<ByteStream> encoded) {
  ZSTD_DCtx* context = ZSTD_createDCtx();
  if (context == nullptr) return MakeError(ErrorCode::kIo, "the system gives no memory for a zstd decoder");
  std::unique_ptr<ByteStream> stream = std::make_unique<ZstdStream>(std::move(encoded), context);
  if (const std::size_t set = ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, kLargestWindowLog); ZSTD_isError(set) != 0U) {
    return MakeError(ErrorCode::kUnsupported, "a zstd decoder cannot be set up").WithFound(ZSTD_getErrorName(set));
  }
  return stream;
}

}  // namespace crossdock::formats::zarr
