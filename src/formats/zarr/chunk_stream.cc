// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/chunk_stream.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/checked_math.h"
#include "formats/zarr/decoders.h"
#include "formats/zarr/shard_index.h"

namespace crossdock::formats::zarr {
namespace {

constexpr std::int64_t kMostShrink = std::int64_t{1} << 16U;  // zstd: 128 KiB in a block of 4 bytes
constexpr std::int64_t kSmallFrame = 4096;
constexpr std::int64_t kSkip = std::int64_t{1} << 18U;

class ZeroStream final : public ElementStream {
 public:
  Status Read(std::span<std::byte> out) override {
    std::ranges::fill(out, std::byte{0});
    return OkStatus();
  }
};

/// Takes the runs of the box out of the whole unit.
class UnitStream final : public ElementStream {
 public:
  UnitStream(const ArrayMetadata& array, const Box& box, std::unique_ptr<ByteStream> bytes)
      : nibbles_(array.nibbles), element_(ElementSize(array.dtype)), sizes_(box.sizes), bytes_(std::move(bytes)) {
    const Shape& unit = array.unit_shape();
    strides_ = RowMajorStrides(unit);
    unit_bytes_ = CheckedCount(unit) * element_;
    left_ = box.count() * element_;
    // The inner axes that are not cut, and the first outside them, lie in one run.
    run_axis_ = unit.size();
    run_ = element_;
    while (run_axis_ > 0) {
      --run_axis_;
      run_ *= sizes_[run_axis_];
      if (sizes_[run_axis_] != unit[run_axis_]) break;
    }
    at_ = Dims::Filled(run_axis_, 0);
    run_left_ = left_ == 0 ? 0 : run_;
  }

  Status Read(std::span<std::byte> out) override {
    CROSSDOCK_CHECK(static_cast<std::int64_t>(out.size()) <= left_);
    while (!out.empty()) {
      if (run_left_ == 0) CROSSDOCK_RETURN_IF_ERROR(NextRun());
      const auto part = out.first(static_cast<std::size_t>(std::min(static_cast<std::int64_t>(out.size()), run_left_)));
      CROSSDOCK_RETURN_IF_ERROR(ReadFully(*bytes_, part));
      if (nibbles_) Widen(part);
      const auto n = static_cast<std::int64_t>(part.size());
      position_ += n;
      run_left_ -= n;
      left_ -= n;
      out = out.subspan(part.size());
    }
    return left_ == 0 ? Finish() : OkStatus();
  }

 private:
  /// int4 is a byte whose low half is a signed number.
  static void Widen(std::span<std::byte> values) {
    for (std::byte& value : values) {
      const unsigned low = std::to_integer<unsigned>(value) & 15U;
      value = static_cast<std::byte>(low >= 8 ? low | 0xF0U : low);
    }
  }

  Status Skip(std::int64_t bytes) {
    if (skipped_.empty()) skipped_.resize(static_cast<std::size_t>(std::min(kSkip, unit_bytes_)));
    position_ += bytes;
    while (bytes > 0) {
      const auto part = std::span(skipped_).first(static_cast<std::size_t>(std::min(bytes, static_cast<std::int64_t>(skipped_.size()))));
      CROSSDOCK_RETURN_IF_ERROR(ReadFully(*bytes_, part));
      bytes -= static_cast<std::int64_t>(part.size());
    }
    return OkStatus();
  }

  Status NextRun() {
    for (std::size_t axis = run_axis_; axis-- > 0;) {
      if (++at_[axis] < sizes_[axis]) break;
      at_[axis] = 0;
    }
    std::int64_t start = 0;
    for (std::size_t axis = 0; axis < run_axis_; ++axis) start += at_[axis] * strides_[axis];
    run_left_ = run_;
    return Skip(start * element_ - position_);
  }

  Status Finish() {
    CROSSDOCK_RETURN_IF_ERROR(Skip(unit_bytes_ - position_));
    std::byte more{};
    CROSSDOCK_ASSIGN_OR_RETURN(const std::size_t n, bytes_->Read(std::span(&more, 1)));
    if (n == 0) return OkStatus();
    return MakeError(ErrorCode::kCorrupt, "an encoded chunk holds more bytes than its metadata says")
        .WithExpected(std::to_string(unit_bytes_) + " bytes");
  }

  bool nibbles_;
  std::int64_t element_;
  Shape sizes_;
  std::unique_ptr<ByteStream> bytes_;
  Dims strides_, at_;
  std::size_t run_axis_ = 0;
  std::int64_t unit_bytes_ = 0;
  std::int64_t run_ = 0;       ///< bytes of a run of the box in the unit
  std::int64_t run_left_ = 0;
  std::int64_t position_ = 0;  ///< in the unit
  std::int64_t left_ = 0;      ///< of the box
  std::vector<std::byte> skipped_;
};

}  // namespace

bool Plausible(std::int64_t stored, std::int64_t decoded) {
  const auto most = CheckedMul(stored, kMostShrink);
  return decoded <= kSmallFrame || !most || decoded <= *most;
}

Result<std::unique_ptr<ElementStream>> OpenChunk(const ArrayMetadata& array, const Box& box, StoredBytes stored, bool zero_fill) {
  if (stored.size() == 0) return std::unique_ptr<ElementStream>(std::make_unique<ZeroStream>());
  if (array.sharding && array.sharding->inner == array.chunk_shape) {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto places, ReadShardIndex(*array.sharding, 1, stored));
    if (!places[0] && zero_fill) return std::unique_ptr<ElementStream>(std::make_unique<ZeroStream>());
    if (!places[0]) {
      return MakeError(ErrorCode::kIncomplete, "a shard does not hold its chunk, and what that held is not made up");
    }
    CROSSDOCK_ASSIGN_OR_RETURN(stored, stored.Part(*places[0]));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> bytes, Decode(array.unit_codecs(), stored));
  return std::unique_ptr<ElementStream>(std::make_unique<UnitStream>(array, box, std::move(bytes)));
}

}  // namespace crossdock::formats::zarr
