// SPDX-License-Identifier: Apache-2.0
/// \file  ChunkIndex: which chunks of an entry a region meets, without walking over all of them.
/// Checkpoints cut tensors in grids (stages x ranks x experts, thousands of cells), so the index is a table of cells
/// found by one binary search an axis. What is no grid is kept sorted along its first axis and swept.
/// Invariant: answers are in ascending order of chunk number. Ownership: the entry must outlive the index.
/// Threads: immutable once made.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/catalog.h"

namespace crossdock::plan {

class ChunkIndex {
 public:
  explicit ChunkIndex(const Entry& entry);

  /// The chunks that share an element with `region`. REQUIRES: the region has the entry's rank.
  [[nodiscard]] std::vector<std::int32_t> Overlapping(const Box& region) const;

 private:
  [[nodiscard]] bool MakeGrid();
  void MakeSweep();
  void CollectGrid(const Box& region, std::size_t axis, std::size_t cell, std::vector<std::int32_t>& out) const;

  const Entry* entry_;
  std::vector<std::vector<std::int64_t>> starts_;  ///< grid: where cells begin, an axis each
  std::vector<std::int32_t> cells_;                ///< grid: chunk of each cell, row-major; -1 = none
  std::vector<std::int32_t> order_;                ///< sweep: chunks by their first offset
  std::vector<std::int64_t> reach_;                ///< sweep: the farthest end among order_[0..i]
};

}  // namespace crossdock::plan
