// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_shards.h"

#include <algorithm>

namespace crossdock::dialects::mcore {
namespace {

/// The boxes of one rank, sorted, without the axes that `part` fixes.
std::vector<Box> BoxesOf(const ChunksByRank& chunks, int rank, const LegacyPart& part) {
  std::vector<std::int64_t> fixed;
  for (const std::int64_t at : {part.layer, part.expert}) {
    if (at >= 0) fixed.push_back(at);
  }
  std::vector<Box> out;
  for (const Chunk* chunk : chunks.Of(rank, part.layer)) {
    const Box& box = chunk->box;
    bool inside = true;
    for (std::size_t i = 0; i < fixed.size(); ++i) inside = inside && fixed[i] >= box.offsets[i] && fixed[i] < box.offsets[i] + box.sizes[i];
    if (!inside) continue;
    Box rest;
    for (std::size_t i = fixed.size(); i < box.rank(); ++i) {
      rest.offsets.push_back(box.offsets[i]);
      rest.sizes.push_back(box.sizes[i]);
    }
    out.push_back(std::move(rest));
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

ChunksByRank::ChunksByRank(const Entry& entry, int size, bool stacked) : entry_(&entry) {
  for (const Chunk& chunk : entry.chunks) {
    const int rank = chunk.shard % size;
    if (!stacked) {
      chunks_[{rank, -1}].push_back(&chunk);
      continue;
    }
    for (std::int64_t layer = chunk.box.offsets[0]; layer < chunk.box.offsets[0] + chunk.box.sizes[0]; ++layer) chunks_[{rank, layer}].push_back(&chunk);
  }
}

std::span<const Chunk* const> ChunksByRank::Of(int rank, std::int64_t layer) const {
  const auto found = chunks_.find({rank, layer});
  return found == chunks_.end() ? std::span<const Chunk* const>() : std::span<const Chunk* const>(found->second);
}

Result<expr::Expr> PartOf(const expr::Expr& stacked, const LegacyPart& part) {
  expr::Expr one = stacked;
  for (const std::int64_t index : {part.layer, part.expert}) {
    if (index < 0) continue;
    // Of a join only the input that holds the part is walked: each of 10^4 experts is asked for once.
    std::int64_t at = index;
    while (one->op == expr::Op::kConcat && one->axis == 0) {
      const std::vector<std::int64_t>& starts = one->starts();
      const std::size_t input = static_cast<std::size_t>(std::ranges::upper_bound(starts, at) - starts.begin()) - 1;
      at -= starts[input];
      one = expr::Expr(one->inputs[input]);
    }
    CROSSDOCK_ASSIGN_OR_RETURN(one, expr::Index(std::move(one), 0, at));
    one = expr::Simplify(one);
  }
  return one;
}

Result<LegacyShard> ShardOf(const ChunksByRank& chunks, const expr::Expr& whole, int rank, int first, const LegacyPart& part) {
  std::vector<Box> boxes = BoxesOf(chunks, rank, part);
  if (boxes.empty()) boxes = BoxesOf(chunks, first, part);
  if (boxes.empty()) {
    return MakeError(ErrorCode::kUnsupported, "no rank holds a part of a tensor").WithTensor(chunks.entry().name);
  }
  std::vector<expr::Expr> parts;
  int axis = 0;
  for (const Box& box : boxes) {
    for (std::size_t i = 0; i < box.rank(); ++i) {
      if (box.offsets[i] != boxes[0].offsets[i]) axis = static_cast<int>(i);
    }
    const bool all = box == Box::Whole(whole->shape);
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr piece, all ? Result<expr::Expr>(whole) : expr::Slice(whole, box));
    parts.push_back(std::move(piece));
  }
  expr::Expr made = parts[0];
  if (parts.size() > 1) {
    CROSSDOCK_ASSIGN_OR_RETURN(made, expr::Concat(std::move(parts), axis));
  }
  made = expr::Simplify(made);
  return LegacyShard{made->shape, made};
}

}  // namespace crossdock::dialects::mcore
