// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_distributed.h"

#include <algorithm>
#include <array>
#include <vector>

#include "dialects/mcore/args.h"
#include "dialects/mcore/bucket_keys.h"
#include "dialects/mcore/flat_buffer.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/legacy_groups.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "layout/bucket_layout.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;

constexpr const char* kWithoutOptim = "--no-optim leaves the optimizer state behind";

/// Which of the rank's parameters one of the file's states holds.
enum class Share : std::uint8_t { kAll, kDense, kExperts };

bool IsOf(Share share, const LegacyTensor& tensor) {
  return !IsModuleBuffer(tensor.name) && (share == Share::kAll || (share == Share::kExperts) == tensor.meaning.of_experts());
}

const Value* FindInt(const Value& dict, std::int64_t key) {
  for (const auto& [name, value] : dict.as_dict()->items) {
    if (name.as_int() != nullptr && *name.as_int() == key) return &value;
  }
  return nullptr;
}

/// Whether a key is (param dtype, ...).
bool IsOfDType(const Value& key, DType dtype) {
  const ValueList* pair = key.as_sequence();
  const Value* first = pair != nullptr && !pair->empty() ? &pair->front() : &key;
  return first->as_dtype() != nullptr && *first->as_dtype() == dtype;
}

class Splitter {
 public:
  Splitter(const Catalog& source, const LegacyRanks& ranks, const LegacyRank& rank, const LegacyModel& shard) : source_(source), ranks_(ranks), rank_(rank), shard_(shard) {}

  Result<LegacyState> Run() {
    const ValueList* chained = rank_.distributed->as_sequence();
    if (chained == nullptr) {
      if (rank_.distributed->as_dict() == nullptr) return Untold("the file holds no state of a distributed optimizer");
      CROSSDOCK_RETURN_IF_ERROR(One(*rank_.distributed, Share::kAll));
      return std::move(out_);
    }
    if (chained->size() != 2) return Untold("the distributed optimizer's state is that of several optimizers, whose buffers cannot be told apart").WithFound(fmt::format("{}", chained->size()));
    // A rank writes the state of those of the two of which it is the first data-parallel rank, and None for the other.
    constexpr std::array kShares = {Share::kDense, Share::kExperts};
    for (std::size_t i = 0; i < kShares.size(); ++i) {
      if ((*chained)[i].as_dict() != nullptr) CROSSDOCK_RETURN_IF_ERROR(One((*chained)[i], kShares[i]));
    }
    return std::move(out_);
  }

 private:
  Status One(const Value& state, Share share) {
    std::int64_t parameters = 0;
    for (const std::vector<LegacyTensor>& chunk : shard_.chunks) {
      for (const LegacyTensor& tensor : chunk) parameters += IsModuleBuffer(tensor.name) ? 0 : CheckedCount(Param(tensor).shape);
    }
    std::int64_t buffer = 0;
    for (std::size_t chunk = 0; chunk < shard_.chunks.size(); ++chunk) {
      std::vector<DType> dtypes;
      for (const LegacyTensor& tensor : shard_.chunks[chunk]) {
        if (!IsOf(share, tensor)) continue;
        if (std::ranges::find(dtypes, Param(tensor).dtype) == dtypes.end()) dtypes.push_back(Param(tensor).dtype);
      }
      for (const DType dtype : dtypes) CROSSDOCK_RETURN_IF_ERROR(Buffer(state, buffer++, {share, chunk, dtype}, parameters));
    }
    if (FindInt(state, buffer) != nullptr) return Untold("the distributed optimizer has more buffers than the model").WithExpected(fmt::format("{}", buffer));
    return OkStatus();
  }

  struct Which {
    Share share;
    std::size_t chunk;
    DType dtype;
  };

  Error Untold(std::string message) const {
    return MakeError(ErrorCode::kUnsupported, std::move(message)).WithPath(fmt::format("{}/{}", rank_.dir, kLegacyDistributedFile)).WithHint(kWithoutOptim);
  }

  const Entry& Param(const LegacyTensor& tensor) const { return source_.entries[static_cast<std::size_t>(tensor.entry)]; }

  /// Embedding and head are one weight on different stages.
  bool IsShared(const std::vector<LegacyTensor>& chunk, const LegacyTensor& tensor) const {
    if (ranks_.pp == 1) return false;
    const bool tied = TiesEmbeddings(ranks_.args);
    const bool beside = std::ranges::any_of(chunk, [](const LegacyTensor& other) { return other.name.ends_with(kEmbeddingKey); });
    return (tied && tensor.meaning.head_copy) || IsSharedEmbedding(tensor.name, tied, ranks_.args.GetInt("mtp_num_layers").value_or(0) > 0, beside);
  }

  Status Buffer(const Value& state, std::int64_t buffer, const Which& which, std::int64_t parameters) {
    const auto& [share, chunk, dtype] = which;
    const Value* dtypes = FindInt(state, buffer);
    const Value::Dict* dict = dtypes != nullptr ? dtypes->as_dict() : nullptr;
    if (dict == nullptr || dict->items.size() != 1 || !IsOfDType(dict->items.front().first, dtype) || dict->items.front().second.as_dict() == nullptr) {
      return Untold("the distributed optimizer's buffers are not those of the model's parameters").WithExpected(fmt::format("one of {} as buffer {}", DTypeName(dtype), buffer));
    }
    const Value& states = dict->items.front().second;
    std::vector<const LegacyTensor*> members;
    std::vector<layout::BufferParam> sizes;
    for (const LegacyTensor& tensor : shard_.chunks[chunk]) {
      if (Param(tensor).dtype != dtype || !IsOf(share, tensor)) continue;
      members.push_back(&tensor);
      sizes.push_back({CheckedCount(Param(tensor).shape), IsShared(shard_.chunks[chunk], tensor)});
    }
    std::array<std::vector<Expr>, kBucketStates.size()> flats;
    for (std::size_t s = 0; s < kBucketStates.size(); ++s) {
      CROSSDOCK_ASSIGN_OR_RETURN(flats[s], Flats(states, kBucketStates[s], buffer));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const layout::BucketLayout layout, LayoutOf(state, states, buffer, chunk, sizes, parameters, flats[0]));
    for (std::size_t s = 0; s < kBucketStates.size(); ++s) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        Result<Expr> part = OutOfBuffer(layout, flats[s], i, Param(*members[i]).shape);
        if (!part) return std::move(std::move(part).error()).WithTensor(members[i]->name).WithHint(kWithoutOptim);
        out_.params[members[i]->entry][static_cast<std::size_t>(kBucketSlots[s])] = *std::move(part);
      }
    }
    return OkStatus();
  }

  /// The flat tensors of one state: one, or one a bucket in old files.
  Result<std::vector<Expr>> Flats(const Value& states, std::string_view name, std::int64_t buffer) const {
    const Value* value = states.Find(name);
    if (value == nullptr) return Untold(fmt::format("the distributed optimizer's buffer {} has no {}", buffer, name));
    const ValueList* list = value->as_sequence();
    const ValueList one = list == nullptr ? ValueList{*value} : ValueList();
    std::vector<Expr> flats;
    for (const Value& item : list != nullptr ? *list : one) {
      const std::int32_t index = item.as_tensor() == nullptr ? -1 : source_.Find(item.as_tensor()->storage);
      if (index < 0) return Untold(fmt::format("the distributed optimizer's buffer {} has no data for {}", buffer, name));
      const Entry& entry = source_.entries[static_cast<std::size_t>(index)];
      if (entry.shape.size() != 1 || !IsFloating(entry.dtype)) {
        return Untold("the distributed optimizer's buffer is no flat tensor of floats").WithTensor(entry.name).WithFound(fmt::format("{} {}", DTypeName(entry.dtype), ToString(entry.shape)));
      }
      flats.push_back(expr::Leaf(index, entry.dtype, entry.shape));
    }
    return flats;
  }

  Result<layout::BucketLayout> LayoutOf(const Value& state, const Value& states, std::int64_t buffer, std::size_t chunk, const std::vector<layout::BufferParam>& sizes,
                                        std::int64_t parameters, const std::vector<Expr>& flats) const {
    const bool joined = state.GetBool("buckets_coalesced").value_or(false);
    if (!joined) return ByRecordedSizes(state, buffer, sizes, flats);
    const std::int64_t stored = flats.front()->shape[0];
    if (flats.size() != 1 || states.GetInt("numel_unpadded").value_or(stored) != stored) return Untold("the distributed optimizer's buffer is not of the size that it names");
    // The bucket size is an argument, and decides which gaps are left out; without overlap there is one bucket.
    std::vector<std::int64_t> totals;
    const std::optional<std::int64_t> size = BucketSizeOf(ranks_.args, rank_.pipeline, chunk, parameters);
    for (const std::optional<std::int64_t>& bucket_size : {size, std::optional<std::int64_t>()}) {
      CROSSDOCK_ASSIGN_OR_RETURN(layout::BucketLayout layout, layout::MakeBucketLayout(sizes, {1, bucket_size, false}));
      if (layout.total_unpadded() == stored) return layout;
      totals.push_back(layout.total_unpadded());
      if (!size) break;
    }
    return Untold("the distributed optimizer's buffer has another size than the model's parameters and the run's arguments give")
        .WithExpected(fmt::format("{} elements in buffer {}", fmt::join(totals, " or "), buffer))
        .WithFound(fmt::format("{}", stored));
  }

  Result<layout::BucketLayout> ByRecordedSizes(const Value& state, std::int64_t buffer, const std::vector<layout::BufferParam>& sizes, const std::vector<Expr>& flats) const {
    const Value* all = state.Find("per_bucket_numel_unpadded");
    const ValueList* buffers = all != nullptr ? all->as_sequence() : nullptr;
    const Value::Dict* dtypes = buffers != nullptr && buffer < static_cast<std::int64_t>(buffers->size()) ? (*buffers)[static_cast<std::size_t>(buffer)].as_dict() : nullptr;
    const ValueList* recorded = dtypes != nullptr && dtypes->items.size() == 1 ? dtypes->items.front().second.as_sequence() : nullptr;
    if (recorded == nullptr || recorded->size() != flats.size()) return Untold("the distributed optimizer's buckets are of before February 2024 and do not say their sizes");
    std::vector<std::int64_t> numel;
    for (const Value& value : *recorded) numel.push_back(value.as_int() != nullptr ? *value.as_int() : 0);
    Result<layout::BucketLayout> layout = layout::FitBucketLayout(sizes, numel);
    if (layout) return layout;
    Error error = std::move(layout).error();
    error.hint = kWithoutOptim;
    return std::move(error).WithPath(fmt::format("{}/{}", rank_.dir, kLegacyDistributedFile));
  }

  const Catalog& source_;
  const LegacyRanks& ranks_;
  const LegacyRank& rank_;
  const LegacyModel& shard_;
  LegacyState out_;
};

}  // namespace

std::optional<std::int64_t> BucketSizeOf(const Value& args, int stage, std::size_t chunk, std::int64_t parameters) {
  if (!args.GetBool("overlap_grad_reduce").value_or(false) || stage > 0 || chunk > 0) return std::nullopt;
  if (const std::optional<std::int64_t> count = args.GetInt("ddp_num_buckets"); count && *count > 0) return parameters / *count;
  if (const std::optional<std::int64_t> size = args.GetInt("ddp_bucket_size")) return size;
  constexpr std::int64_t kLeast = 40'000'000;
  constexpr std::int64_t kPerRank = 1'000'000;
  const std::int64_t ranks = std::clamp<std::int64_t>(args.GetInt("data_parallel_size").value_or(1), 1, 1 << 20) * std::clamp<std::int64_t>(args.GetInt("context_parallel_size").value_or(1), 1, 1 << 20);
  return std::max(kLeast, kPerRank * ranks);
}

Result<LegacyState> ReadDistributedOptimizer(const Catalog& source, const LegacyRanks& ranks, const LegacyRank& rank, const LegacyModel& shard) {
  if (rank.distributed != nullptr) return Splitter(source, ranks, rank, shard).Run();
  if (ranks.ep > 1) return LegacyState();
  return MakeError(ErrorCode::kUnsupported, "a rank has no state of its distributed optimizer").WithPath(fmt::format("{}/{}", rank.dir, kLegacyDistributedFile)).WithHint(kWithoutOptim);
}

}  // namespace crossdock::dialects::mcore
