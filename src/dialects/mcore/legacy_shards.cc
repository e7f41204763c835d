// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_shards.h"

#include <algorithm>

namespace crossdock::dialects::mcore {
namespace {

Dims WithoutFirst(const Dims& dims) {
  Dims out;
  for (std::size_t i = 1; i < dims.size(); ++i) out.push_back(dims[i]);
  return out;
}

/// The boxes of one rank, sorted, without the layer axis.
std::vector<Box> BoxesOf(const Entry& entry, int tp, int rank, std::int64_t layer) {
  std::vector<Box> out;
  for (const Chunk& chunk : entry.chunks) {
    if (chunk.shard % tp != rank) continue;
    const Box& box = chunk.box;
    if (layer < 0) {
      out.push_back(box);
    } else if (layer >= box.offsets[0] && layer < box.offsets[0] + box.sizes[0]) {
      out.push_back({WithoutFirst(box.offsets), WithoutFirst(box.sizes)});
    }
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

Result<expr::Expr> LayerOf(const expr::Expr& stacked, std::int64_t layer) {
  if (layer < 0) return stacked;
  CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr one, expr::Index(stacked, 0, layer));
  return expr::Simplify(one);
}

Result<LegacyShard> ShardOf(const Entry& entry, const expr::Expr& whole, int tp, int rank, std::int64_t layer) {
  std::vector<Box> boxes = BoxesOf(entry, tp, rank, layer);
  if (boxes.empty()) boxes = BoxesOf(entry, tp, 0, layer);
  if (boxes.empty()) {
    return MakeError(ErrorCode::kUnsupported, "no rank holds a part of a tensor").WithTensor(entry.name);
  }
  std::vector<expr::Expr> parts;
  int axis = 0;
  for (const Box& box : boxes) {
    for (std::size_t i = 0; i < box.rank(); ++i) {
      if (box.offsets[i] != boxes[0].offsets[i]) axis = static_cast<int>(i);
    }
    const bool all = box == Box::Whole(whole->shape);
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr part, all ? Result<expr::Expr>(whole) : expr::Slice(whole, box));
    parts.push_back(std::move(part));
  }
  expr::Expr made = parts[0];
  if (parts.size() > 1) {
    CROSSDOCK_ASSIGN_OR_RETURN(made, expr::Concat(std::move(parts), axis));
  }
  made = expr::Simplify(made);
  return LegacyShard{made->shape, made};
}

}  // namespace crossdock::dialects::mcore
