// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_shards.h"

#include <algorithm>

namespace crossdock::dialects::mcore {
namespace {

/// The boxes of one rank, sorted, without the axes that `part` fixes.
std::vector<Box> BoxesOf(const Entry& entry, int size, int rank, const LegacyPart& part) {
  std::vector<std::int64_t> fixed;
  for (const std::int64_t at : {part.layer, part.expert}) {
    if (at >= 0) fixed.push_back(at);
  }
  std::vector<Box> out;
  for (const Chunk& chunk : entry.chunks) {
    if (chunk.shard % size != rank) continue;
    const Box& box = chunk.box;
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

Result<expr::Expr> PartOf(const expr::Expr& stacked, const LegacyPart& part) {
  expr::Expr one = stacked;
  for (const std::int64_t at : {part.layer, part.expert}) {
    if (at < 0) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(one, expr::Index(std::move(one), 0, at));
    one = expr::Simplify(one);
  }
  return one;
}

Result<LegacyShard> ShardOf(const Entry& entry, const expr::Expr& whole, const LegacyDivision& ranks, const LegacyPart& part) {
  std::vector<Box> boxes = BoxesOf(entry, ranks.size, ranks.rank, part);
  if (boxes.empty()) boxes = BoxesOf(entry, ranks.size, ranks.first, part);
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
