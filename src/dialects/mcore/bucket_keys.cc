// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/bucket_keys.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "dialects/mcore/keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// "<name><number>." at the start of `rest`, taken away.
bool TakeNumber(std::string_view name, std::string_view* rest, std::int64_t* number) {
  if (!rest->starts_with(name)) return false;
  const char* begin = rest->data() + name.size();
  const char* end = rest->data() + rest->size();
  const auto [at, error] = std::from_chars(begin, end, *number);
  if (error != std::errc{} || at == end || *at != '.' || *number < 0) return false;
  rest->remove_prefix(static_cast<std::size_t>(at - rest->data()) + 1);
  return true;
}

Error BadKey(std::string_view key) {
  return MakeError(ErrorCode::kCorrupt, "a bucket of the optimizer has a key that no version of Megatron-Core writes")
      .WithTensor(std::string(key))
      .WithExpected("optimizer.distributed.dp_group_idx_G.gbuf_idx_B.dtype_(P, G).bucket_idx_K.STATE")
      .WithHint("--no-optim leaves the optimizer state behind");
}

Status CheckEntry(const Entry& entry, const BucketKey& key) {
  if (key.chained > 1) {
    return MakeError(ErrorCode::kUnsupported, "the optimizer state is that of more than two optimizers, in flat buckets: dense parameters and experts have one each")
        .WithTensor(entry.name)
        .WithHint("save the run again with --dist-ckpt-optim-fully-reshardable (Megatron-Core 0.15 or newer), or leave the state behind with --no-optim");
  }
  if (entry.shape.size() != 1) {
    return MakeError(ErrorCode::kCorrupt, "a bucket of the optimizer is not flat").WithTensor(entry.name).WithExpected("one axis").WithFound(ToString(entry.shape));
  }
  if (key.state == "param" && !IsFloating(entry.dtype)) {
    return MakeError(ErrorCode::kUnsupported, "the master weights are stored as remainders (--use-precision-aware-optimizer with store_param_remainders)")
        .WithTensor(entry.name)
        .WithFound(std::string(DTypeName(entry.dtype)))
        .WithHint("save the run again with store_param_remainders off, or leave the state behind with --no-optim");
  }
  return OkStatus();
}

}  // namespace

std::string GroupName(const BufferPlace& place) {
  return fmt::format("{}optimizer.distributed.dp_group_idx_{}", place.chained < 0 ? std::string() : fmt::format("chained_{}.", place.chained), place.group);
}

Result<BucketKey> ParseBucketKey(std::string_view key) {
  BucketKey out;
  std::string_view rest = key;
  if (const std::size_t at = rest.find("optimizer.distributed."); at != std::string_view::npos) {
    std::string_view chained = rest.substr(0, at);
    if (!chained.empty() && (!TakeNumber("chained_", &chained, &out.chained) || !chained.empty())) return BadKey(key);
    rest.remove_prefix(at + std::string_view("optimizer.distributed.").size());
  }
  if (!TakeNumber("dp_group_idx_", &rest, &out.group) || !TakeNumber("gbuf_idx_", &rest, &out.buffer)) return BadKey(key);
  constexpr std::string_view kDType = "dtype_";
  const std::size_t close = rest.find(").");
  if (!rest.starts_with(kDType) || close == std::string_view::npos) return BadKey(key);
  out.dtypes = std::string(rest.substr(kDType.size(), close + 1 - kDType.size()));
  rest.remove_prefix(close + 2);
  if (!TakeNumber("bucket_idx_", &rest, &out.bucket)) return BadKey(key);
  out.state = std::string(rest);
  return out;
}

Result<StoredBuffers> FindBuffers(const Catalog& catalog) {
  StoredBuffers buffers;
  const Entry* by_parameter = nullptr;
  for (std::size_t i = 0; i < catalog.entries.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    const TensorKey::Kind kind = ParseTensorKey(entry.name).kind;
    if (kind == TensorKey::Kind::kState) by_parameter = &entry;
    if (kind != TensorKey::Kind::kBucket) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(const BucketKey key, ParseBucketKey(entry.name));
    CROSSDOCK_RETURN_IF_ERROR(CheckEntry(entry, key));
    const auto state = std::find(kBucketStates.begin(), kBucketStates.end(), key.state);
    if (state == kBucketStates.end()) {
      return MakeError(ErrorCode::kUnsupported, "the optimizer state holds what is no state of Adam").WithTensor(entry.name).WithHint("--no-optim leaves the optimizer state behind");
    }
    StoredBuffer& buffer = buffers[{key.chained, key.group, key.buffer}];
    if (buffer.dtypes.empty()) buffer.dtypes = key.dtypes;
    if (buffer.dtypes != key.dtypes) return BadKey(entry.name);
    std::vector<std::int32_t>& buckets = buffer.entries[static_cast<std::size_t>(state - kBucketStates.begin())];
    if (key.bucket >= static_cast<std::int64_t>(catalog.entries.size())) return BadKey(entry.name);
    if (static_cast<std::int64_t>(buckets.size()) <= key.bucket) buckets.resize(static_cast<std::size_t>(key.bucket) + 1, -1);
    buckets[static_cast<std::size_t>(key.bucket)] = static_cast<std::int32_t>(i);
  }
  if (by_parameter != nullptr && !buffers.empty()) {
    // Muon's: what lies in the buckets are the parameters that are not its own, which the run's arguments do not tell.
    return MakeError(ErrorCode::kUnsupported, "the optimizer state is that of several optimizers, in flat buckets and by parameter")
        .WithTensor(by_parameter->name)
        .WithFound(GroupName(buffers.begin()->first) + " beside it")
        .WithHint("save the run again with --dist-ckpt-optim-fully-reshardable (Megatron-Core 0.15 or newer), or leave the state behind with --no-optim");
  }
  for (const auto& [place, buffer] : buffers) {
    for (const std::vector<std::int32_t>& buckets : buffer.entries) {
      const bool complete = !buckets.empty() && std::ranges::find(buckets, -1) == buckets.end() && buckets.size() == buffer.entries[0].size();
      if (complete) continue;
      return MakeError(ErrorCode::kIncomplete, "some buckets of the optimizer state are missing")
          .WithTensor(fmt::format("{}.gbuf_idx_{}", GroupName(place), place.buffer))
          .WithExpected("param, exp_avg and exp_avg_sq for every bucket")
          .WithHint("--no-optim leaves the optimizer state behind");
    }
  }
  return buffers;
}

std::string BufferDTypePrefix(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "(torch.bfloat16,";
    case DType::kF16: return "(torch.float16,";
    case DType::kF32: return "(torch.float32,";
    default: return fmt::format("({},", DTypeName(dtype));
  }
}

}  // namespace crossdock::dialects::mcore
