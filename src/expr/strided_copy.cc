// SPDX-License-Identifier: Apache-2.0
#include "expr/pull_back.h"

namespace crossdock::expr {
namespace {

/// Where `origin` lies in a buffer that holds `box` row-major.
std::int64_t Position(const Dims& origin, const Box& box, const Dims& strides) {
  std::int64_t at = 0;
  for (std::size_t a = 0; a < origin.size(); ++a) at += (origin[a] - box.offsets[a]) * strides[a];
  return at;
}

}  // namespace

StridedCopy ToCopy(const Piece& piece, const Box& leaf_box, const Box& target_box) {
  const bool fill = piece.leaf < 0;
  CROSSDOCK_CHECK(target_box.Contains(TargetBounds(piece)));
  CROSSDOCK_CHECK(fill || leaf_box.Contains(LeafBounds(piece)));
  const Dims from_strides = fill ? Dims() : RowMajorStrides(leaf_box.sizes);
  const Dims to_strides = RowMajorStrides(target_box.sizes);
  StridedCopy copy;
  copy.from = fill ? 0 : Position(piece.leaf_origin, leaf_box, from_strides);
  copy.to = Position(piece.target_origin, target_box, to_strides);
  for (const Loop& l : piece.loops) {
    const std::int64_t from = fill ? 0 : l.leaf_step * from_strides[static_cast<std::size_t>(l.leaf_axis)];
    const std::int64_t to = l.target_step * to_strides[static_cast<std::size_t>(l.target_axis)];
    if (!copy.dims.empty() && copy.dims.back().from_stride == l.count * from &&
        copy.dims.back().to_stride == l.count * to) {
      copy.dims.back() = {copy.dims.back().count * l.count, from, to};
    } else {
      copy.dims.push_back({l.count, from, to});
    }
  }
  return copy;
}

}  // namespace crossdock::expr
