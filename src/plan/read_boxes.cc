// SPDX-License-Identifier: Apache-2.0
#include "plan/read_boxes.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <utility>

namespace crossdock::plan {
namespace {

constexpr std::int64_t kSmallRead = 4096;  ///< bytes; below this many small reads are worse than waste
constexpr std::int64_t kFewRuns = 64;     ///< so many reads are fine whatever their size
constexpr std::int64_t kWasteShare = 64;  ///< a box may hold 1/64 more than was asked for

bool Dense(std::int64_t box_count, std::int64_t asked) { return box_count - asked <= asked / kWasteShare; }

Box Union(const Box& a, const Box& b) {
  Box out = a;
  for (std::size_t i = 0; i < a.rank(); ++i) {
    const std::int64_t end = std::max(a.offsets[i] + a.sizes[i], b.offsets[i] + b.sizes[i]);
    out.offsets[i] = std::min(a.offsets[i], b.offsets[i]);
    out.sizes[i] = end - out.offsets[i];
  }
  return out;
}

/// How far the loops inside loop `k` reach on the same leaf axis, in elements.
std::int64_t InnerSpan(const expr::Piece& piece, std::size_t k) {
  std::int64_t span = 1;
  for (const expr::Loop& l : piece.loops) {
    const bool inside = std::abs(l.leaf_step) < std::abs(piece.loops[k].leaf_step);
    if (l.leaf_axis == piece.loops[k].leaf_axis && inside) span += std::abs(l.leaf_step) * (l.count - 1);
  }
  return span;
}

/// The outermost loop (by the leaf's order) that leaves a gap between its iterations.
std::optional<std::size_t> GapLoop(const expr::Piece& piece) {
  std::optional<std::size_t> best;
  for (std::size_t k = 0; k < piece.loops.size(); ++k) {
    const expr::Loop& l = piece.loops[k];
    if (l.count <= 1 || std::abs(l.leaf_step) <= InnerSpan(piece, k)) continue;
    const bool outer =
        !best || l.leaf_axis < piece.loops[*best].leaf_axis ||
        (l.leaf_axis == piece.loops[*best].leaf_axis && std::abs(l.leaf_step) > std::abs(piece.loops[*best].leaf_step));
    if (outer) best = k;
  }
  return best;
}

expr::Piece Iteration(const expr::Piece& piece, std::size_t loop, std::int64_t i) {
  expr::Piece out = piece;
  const expr::Loop& l = piece.loops[loop];
  out.leaf_origin[static_cast<std::size_t>(l.leaf_axis)] += i * l.leaf_step;
  out.target_origin[static_cast<std::size_t>(l.target_axis)] += i * l.target_step;
  out.loops.erase(out.loops.begin() + static_cast<std::ptrdiff_t>(loop));
  return out;
}

/// The bytes of one contiguous run of `box` in `chunk`.
std::int64_t RunBytes(const Box& box, const Box& chunk, std::int64_t element) {
  return box.count() / std::max<std::int64_t>(RunsIn(box, chunk), 1) * element;
}

/// Takes a piece apart until its parts have no gaps worth minding.
void TakeApart(expr::Piece piece, const Box& chunk, std::int64_t element, std::vector<ReadBox>& out) {
  const Box bounds = expr::LeafBounds(piece);
  const std::optional<std::size_t> gap = GapLoop(piece);
  if (!gap || Dense(bounds.count(), piece.count())) {
    out.push_back({bounds, {std::move(piece)}});
    return;
  }
  const expr::Piece first = Iteration(piece, *gap, 0);
  const std::int64_t times = piece.loops[*gap].count;
  if (times > kFewRuns && RunBytes(expr::LeafBounds(first), chunk, element) < kSmallRead) {
    out.push_back({bounds, {std::move(piece)}});
    return;
  }
  for (std::int64_t i = 0; i < times; ++i) TakeApart(Iteration(piece, *gap, i), chunk, element, out);
}

std::int64_t Asked(const ReadBox& read) {
  std::int64_t n = 0;
  for (const expr::Piece& p : read.pieces) n += p.count();
  return n;
}

}  // namespace

std::int64_t RunsIn(const Box& box, const Box& chunk) {
  std::size_t axis = box.rank();
  while (axis > 0 && box.sizes[axis - 1] == chunk.sizes[axis - 1]) --axis;
  std::int64_t runs = 1;
  for (std::size_t i = 0; i + 1 < axis; ++i) runs *= box.sizes[i];
  return runs;
}

std::int64_t RunsOfPiece(const expr::Piece& piece, const Box& bounds, const Box& chunk) {
  std::int64_t runs = 1;
  bool whole_below = true;
  for (std::size_t axis = bounds.rank(); axis > 0; --axis) {
    std::int64_t positions = 1;
    for (const expr::Loop& l : piece.loops) {
      if (static_cast<std::size_t>(l.leaf_axis) == axis - 1) positions *= l.count;
    }
    const bool dense = positions >= bounds.sizes[axis - 1];
    positions = std::min(positions, bounds.sizes[axis - 1]);
    if (!whole_below || !dense) runs *= positions;
    whole_below = whole_below && dense && bounds.sizes[axis - 1] == chunk.sizes[axis - 1];
  }
  return runs;
}

std::vector<ReadBox> MakeReadBoxes(std::vector<expr::Piece> pieces, const Box& chunk, std::int64_t element) {
  std::vector<ReadBox> out;
  if (pieces.empty()) return out;
  ReadBox all{expr::LeafBounds(pieces[0]), {}};
  std::int64_t asked = 0;
  for (const expr::Piece& p : pieces) {
    all.box = Union(all.box, expr::LeafBounds(p));
    asked += p.count();
  }
  if (Dense(all.box.count(), asked)) {
    all.pieces = std::move(pieces);
    out.push_back(std::move(all));
    return out;
  }
  std::vector<ReadBox> parts;
  for (expr::Piece& p : pieces) TakeApart(std::move(p), chunk, element, parts);
  std::stable_sort(parts.begin(), parts.end(), [](const ReadBox& a, const ReadBox& b) { return a.box < b.box; });
  std::int64_t last_asked = 0;
  for (ReadBox& part : parts) {
    const std::int64_t part_asked = Asked(part);
    if (!out.empty()) {
      const Box both = Union(out.back().box, part.box);
      if (Dense(both.count(), last_asked + part_asked)) {
        out.back().box = both;
        last_asked += part_asked;
        for (expr::Piece& p : part.pieces) out.back().pieces.push_back(std::move(p));
        continue;
      }
    }
    last_asked = part_asked;
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace crossdock::plan
