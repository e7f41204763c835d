// SPDX-License-Identifier: Apache-2.0
#include "expr/pull_back.h"

#include <algorithm>
#include <utility>

#include "expr/region.h"
#include "expr/walk.h"

namespace crossdock::expr {
namespace {

/// The piece with its leaf side as the node, negative steps turned over, loops ordered as a region wants them.
Region LeafRegion(const Piece& piece) {
  Region region{piece.leaf_origin, piece.target_origin, {}};
  for (const Loop& l : piece.loops) {
    RegionLoop loop{l.count, l.leaf_axis, l.leaf_step, l.target_axis, l.target_step};
    if (loop.step < 0) {
      region.offsets[At(loop.axis)] += (loop.count - 1) * loop.step;
      region.target_origin[At(loop.target_axis)] += (loop.count - 1) * loop.target_step;
      loop.step = -loop.step;
      loop.target_step = -loop.target_step;
    }
    region.loops.push_back(loop);
  }
  std::sort(region.loops.begin(), region.loops.end(), [](const RegionLoop& a, const RegionLoop& b) {
    return a.axis != b.axis ? a.axis < b.axis : a.step > b.step;
  });
  return region;
}

Region TargetRegion(const Piece& piece) {
  Region region{piece.target_origin, piece.leaf_origin, {}};
  for (const Loop& l : piece.loops) {
    region.loops.push_back({l.count, l.target_axis, l.target_step, l.leaf_axis, l.leaf_step});
  }
  return region;
}

Region SwapSides(Region region) {
  std::swap(region.offsets, region.target_origin);
  for (RegionLoop& l : region.loops) {
    std::swap(l.axis, l.target_axis);
    std::swap(l.step, l.target_step);
  }
  return region;
}

Box Point(const Dims& origin) { return {origin, Dims::Filled(origin.size(), 1)}; }

void Extend(Box& box, int axis, std::int64_t distance) {
  box.sizes[At(axis)] += distance < 0 ? -distance : distance;
  if (distance < 0) box.offsets[At(axis)] += distance;
}

}  // namespace

std::int64_t Piece::count() const {
  std::int64_t n = 1;
  for (const Loop& l : loops) n *= l.count;
  return n;
}

std::vector<Piece> PullBack(const Expr& root, const Box& box) {
  Walk walk(Walk::End::kLeaves);
  walk.Run(root, box);
  return std::move(walk.pieces());
}

std::vector<Piece> ClipLeaf(const Piece& piece, const Box& box) {
  CROSSDOCK_CHECK(piece.leaf >= 0 && box.rank() == piece.leaf_origin.size());
  std::vector<Piece> out;
  if (box.Contains(LeafBounds(piece))) return {piece};
  for (Region& r : ClipBox(LeafRegion(piece), box)) out.push_back(ToPiece(std::move(r), piece.leaf, piece.ops, piece.dequantize));
  return out;
}

std::vector<Piece> ClipTarget(const Piece& piece, const Box& box) {
  CROSSDOCK_CHECK(box.rank() == piece.target_origin.size());
  std::vector<Piece> out;
  if (box.Contains(TargetBounds(piece))) return {piece};
  for (Region& r : ClipBox(TargetRegion(piece), box)) {
    out.push_back(ToPiece(SwapSides(std::move(r)), piece.leaf, piece.ops, piece.dequantize));
  }
  return out;
}

Box LeafBounds(const Piece& piece) {
  CROSSDOCK_CHECK(piece.leaf >= 0);
  Box box = Point(piece.leaf_origin);
  for (const Loop& l : piece.loops) Extend(box, l.leaf_axis, (l.count - 1) * l.leaf_step);
  return box;
}

Box TargetBounds(const Piece& piece) {
  Box box = Point(piece.target_origin);
  for (const Loop& l : piece.loops) Extend(box, l.target_axis, (l.count - 1) * l.target_step);
  return box;
}

}  // namespace crossdock::expr
