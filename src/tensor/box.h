// SPDX-License-Identifier: Apache-2.0
/// \file  Box: a region of a tensor, offsets and sizes an axis each.
#pragma once

#include <optional>
#include <string>

#include "tensor/dims.h"

namespace crossdock {

struct Box {
  Dims offsets;
  Dims sizes;

  /// The whole of a tensor.
  static Box Whole(const Shape& shape) { return {Dims::Filled(shape.size(), 0), shape}; }
  [[nodiscard]] std::size_t rank() const { return sizes.size(); }
  [[nodiscard]] bool empty() const;                       ///< some axis has size 0
  [[nodiscard]] std::int64_t count() const { return CheckedCount(sizes); }
  [[nodiscard]] bool Contains(const Box& inner) const;    ///< REQUIRES: equal ranks
  [[nodiscard]] bool FitsIn(const Shape& shape) const;    ///< overflow-safe; false on unequal ranks
  bool operator==(const Box&) const = default;
  auto operator<=>(const Box&) const = default;
};

/// The common region, or nothing when it is empty. REQUIRES: equal ranks.
[[nodiscard]] std::optional<Box> Intersect(const Box& a, const Box& b);
[[nodiscard]] std::string ToString(const Box& box);  ///< "[0:2, 4:8]"

/// Checks that `boxes` do not overlap and together cover `shape`; the answer names a gap or an overlap.
/// O(n log n) for grids, which is what checkpoints hold.
[[nodiscard]] Status CheckCover(const Shape& shape, std::span<const Box> boxes);

}  // namespace crossdock
