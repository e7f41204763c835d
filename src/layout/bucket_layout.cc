// SPDX-License-Identifier: Apache-2.0
#include "layout/bucket_layout.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/checked_math.h"
#include "fmt/format.h"

namespace crossdock::layout {
namespace {

constexpr std::int64_t kParamStart = 64;
/// Far beyond any buffer, and small enough that no rounding below can overflow.
constexpr std::int64_t kMostElements = std::int64_t{1} << 56U;

Status CheckSizes(std::span<const BufferParam> params) {
  std::int64_t total = 0;
  for (const BufferParam& param : params) {
    if (param.numel < 1 || param.numel > kMostElements) {
      return MakeError(ErrorCode::kCorrupt, "a buffer of the optimizer cannot hold such a parameter").WithFound(fmt::format("{} elements", param.numel));
    }
    const std::optional<std::int64_t> sum = CheckedAdd(total, RoundUp(param.numel, kParamStart));
    if (!sum || *sum > kMostElements) return MakeError(ErrorCode::kCorrupt, "the parameters of a buffer have more elements than any file");
    total = *sum;
  }
  return OkStatus();
}

/// Gathers buckets; starts count from the bucket's own start, which is a multiple of 128 in the buffer.
class Builder {
 public:
  explicit Builder(std::size_t params) { layout_.params.resize(params); }

  [[nodiscard]] std::int64_t start() const { return RoundUp(end_, kParamStart); }
  [[nodiscard]] std::int64_t bucket() const { return static_cast<std::int64_t>(layout_.numel_unpadded.size()); }
  [[nodiscard]] bool empty() const { return empty_; }

  std::int64_t Add(std::size_t param, std::int64_t numel) {
    layout_.params[param] = {bucket(), start(), closed_ + start()};
    end_ = start() + numel;
    empty_ = false;
    return end_;
  }
  void Close(std::int64_t unpadded, std::optional<std::int64_t> divisor) {
    layout_.numel_unpadded.push_back(unpadded);
    if (divisor) layout_.numel.push_back(RoundUp(unpadded, *divisor));
    closed_ += unpadded;
    end_ = 0;
    empty_ = true;
  }
  [[nodiscard]] std::int64_t end() const { return end_; }
  BucketLayout Take() { return std::move(layout_); }

 private:
  BucketLayout layout_;
  std::int64_t closed_ = 0;  ///< elements of the buckets that are closed
  std::int64_t end_ = 0;     ///< of the last parameter, in the open bucket
  bool empty_ = true;
};

}  // namespace

std::int64_t BucketLayout::total_unpadded() const { return std::accumulate(numel_unpadded.begin(), numel_unpadded.end(), std::int64_t{0}); }

std::int64_t BucketEndDivisor(std::int64_t data_parallel, bool high_busbw) {
  return std::lcm(data_parallel, high_busbw ? std::int64_t{1} << 16U : std::int64_t{128});
}

Result<BucketLayout> MakeBucketLayout(std::span<const BufferParam> params, const BucketRules& rules) {
  CROSSDOCK_RETURN_IF_ERROR(CheckSizes(params));
  if (rules.data_parallel > (std::int64_t{1} << 30U)) {
    return MakeError(ErrorCode::kCorrupt, "no run has so many data-parallel ranks").WithFound(fmt::format("{}", rules.data_parallel));
  }
  const std::int64_t divisor = BucketEndDivisor(rules.data_parallel, rules.high_busbw);
  Builder builder(params.size());
  for (std::size_t i = params.size(); i-- > 0;) {
    const BufferParam& param = params[i];
    if (param.shared_embedding && !builder.empty()) builder.Close(builder.start(), divisor);  // its end is rounded to the next start
    const std::int64_t end = builder.Add(i, param.numel);
    if (param.shared_embedding || (rules.bucket_size && end >= *rules.bucket_size)) builder.Close(end, divisor);
  }
  if (!builder.empty()) builder.Close(builder.end(), divisor);
  return builder.Take();
}

Result<BucketLayout> FitBucketLayout(std::span<const BufferParam> params, std::span<const std::int64_t> numel_unpadded) {
  CROSSDOCK_RETURN_IF_ERROR(CheckSizes(params));
  const auto mismatch = [&](std::int64_t bucket, const std::string& expected, const std::string& found) {
    return MakeError(ErrorCode::kCorrupt, "the optimizer's buckets do not have the sizes that the model's parameters and the run's arguments give")
        .WithExpected(fmt::format("{} in bucket {}", expected, bucket))
        .WithFound(found);
  };
  Builder builder(params.size());
  const auto recorded = static_cast<std::int64_t>(numel_unpadded.size());
  for (std::size_t i = params.size(); i-- > 0;) {
    const std::int64_t bucket = builder.bucket();
    if (bucket >= recorded) return mismatch(bucket, fmt::format("{} more parameters", i + 1), fmt::format("{} buckets", recorded));
    const std::int64_t size = numel_unpadded[static_cast<std::size_t>(bucket)];
    const std::int64_t end = builder.start() + params[i].numel;
    if (end > size) {
      // A shared embedding begins a new bucket; the one before it ends at the next multiple of 64.
      if (builder.empty() || builder.start() != size) return mismatch(bucket, fmt::format("at least {} elements", end), fmt::format("{}", size));
      builder.Close(size, std::nullopt);
      ++i;  // this parameter once more, in the next bucket
      continue;
    }
    builder.Add(i, params[i].numel);
    if (end == size) builder.Close(size, std::nullopt);
  }
  if (!builder.empty()) {
    const std::int64_t size = numel_unpadded[static_cast<std::size_t>(builder.bucket())];
    return mismatch(builder.bucket(), fmt::format("{} elements", builder.end()), fmt::format("{}", size));
  }
  if (builder.bucket() != recorded) return mismatch(builder.bucket(), "no further parameters", fmt::format("{} buckets", recorded));
  return builder.Take();
}

Status CheckPieces(const BucketLayout& layout, std::span<const BufferParam> params, std::int64_t bucket, std::span<const std::int64_t> edges,
                   std::optional<std::int64_t> share) {
  const std::int64_t size = layout.numel_unpadded[static_cast<std::size_t>(bucket)];
  std::set<std::int64_t> wanted = {0};
  for (std::size_t i = 0; i < params.size(); ++i) {
    const BucketLayout::Place& place = layout.params[i];
    if (place.bucket != bucket) continue;
    wanted.insert(place.start);
    if (place.start + params[i].numel < size) wanted.insert(place.start + params[i].numel);
  }
  const auto is_share = [&](std::int64_t edge) { return !share || (*share > 0 && edge % *share == 0); };
  const Error error = MakeError(ErrorCode::kCorrupt, "the pieces of the optimizer's bucket do not end where parameters end under the run's arguments");
  auto next = wanted.begin();
  for (const std::int64_t edge : edges) {
    if (next != wanted.end() && edge > *next) break;
    if (next != wanted.end() && edge == *next) {
      ++next;
    } else if (!is_share(edge)) {
      return Error(error).WithExpected(next == wanted.end() ? "no further piece" : fmt::format("a piece at element {}", *next)).WithFound(fmt::format("one at {}", edge));
    }
  }
  if (next != wanted.end()) return Error(error).WithExpected(fmt::format("a piece at element {}", *next)).WithFound("none");
  return OkStatus();
}

}  // namespace crossdock::layout
