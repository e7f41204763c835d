// SPDX-License-Identifier: Apache-2.0
#include "plan/chunk_index.h"

#include <algorithm>

#include "base/check.h"

namespace crossdock::plan {
namespace {

/// Intersect makes a box of the answer; here only whether there is one counts, a million times.
bool Overlap(const Box& a, const Box& b) {
  for (std::size_t axis = 0; axis < a.rank(); ++axis) {
    const bool before = a.offsets[axis] + a.sizes[axis] <= b.offsets[axis];
    const bool after = b.offsets[axis] + b.sizes[axis] <= a.offsets[axis];
    if (before || after || a.sizes[axis] == 0 || b.sizes[axis] == 0) return false;
  }
  return true;
}

}  // namespace

ChunkIndex::ChunkIndex(const Entry& entry) : entry_(&entry) {
  if (entry.chunks.size() > 1 && !MakeGrid()) MakeSweep();
}

bool ChunkIndex::MakeGrid() {
  const std::vector<Chunk>& chunks = entry_->chunks;
  const std::size_t rank = entry_->shape.size();
  starts_.resize(rank);
  std::size_t cells = 1;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    std::vector<std::int64_t>& starts = starts_[axis];
    for (const Chunk& chunk : chunks) starts.push_back(chunk.box.offsets[axis]);
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    cells *= starts.size();
    if (cells > 4 * chunks.size()) return false;  // a staircase; the table would be mostly empty
  }
  cells_.assign(cells, -1);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].box.empty()) continue;
    std::size_t cell = 0;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const std::vector<std::int64_t>& starts = starts_[axis];
      const std::int64_t offset = chunks[i].box.offsets[axis];
      const auto at = static_cast<std::size_t>(std::lower_bound(starts.begin(), starts.end(), offset) - starts.begin());
      if (at + 1 < starts.size() && offset + chunks[i].box.sizes[axis] > starts[at + 1]) return false;
      cell = cell * starts.size() + at;
    }
    if (cells_[cell] >= 0) return false;
    cells_[cell] = static_cast<std::int32_t>(i);
  }
  return true;
}

void ChunkIndex::MakeSweep() {
  starts_.clear();
  cells_.clear();
  for (std::size_t i = 0; i < entry_->chunks.size(); ++i) {
    if (!entry_->chunks[i].box.empty()) order_.push_back(static_cast<std::int32_t>(i));
  }
  const auto box = [&](std::int32_t i) -> const Box& { return entry_->chunks[static_cast<std::size_t>(i)].box; };
  std::sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) { return box(a) < box(b); });
  std::int64_t reach = 0;
  for (const std::int32_t i : order_) {
    reach = std::max(reach, box(i).offsets[0] + box(i).sizes[0]);
    reach_.push_back(reach);
  }
}

void ChunkIndex::CollectGrid(const Box& region, std::size_t axis, std::size_t cell,
                             std::vector<std::int32_t>& out) const {
  if (axis == starts_.size()) {
    const std::int32_t i = cells_[cell];
    if (i >= 0 && Overlap(entry_->chunks[static_cast<std::size_t>(i)].box, region)) out.push_back(i);
    return;
  }
  const std::vector<std::int64_t>& starts = starts_[axis];
  const auto after = std::upper_bound(starts.begin(), starts.end(), region.offsets[axis]);
  auto at = static_cast<std::size_t>(after - starts.begin());
  if (at > 0) --at;
  for (; at < starts.size() && starts[at] < region.offsets[axis] + region.sizes[axis]; ++at) {
    CollectGrid(region, axis + 1, cell * starts.size() + at, out);
  }
}

std::vector<std::int32_t> ChunkIndex::Overlapping(const Box& region) const {
  CROSSDOCK_CHECK(region.rank() == entry_->shape.size());
  std::vector<std::int32_t> out;
  if (region.empty()) return out;
  if (entry_->chunks.size() == 1) {
    if (Overlap(entry_->chunks[0].box, region)) out.push_back(0);
  } else if (!cells_.empty()) {
    CollectGrid(region, 0, 0, out);
  } else {
    const auto box = [&](std::int32_t i) -> const Box& { return entry_->chunks[static_cast<std::size_t>(i)].box; };
    const std::int64_t end = region.offsets[0] + region.sizes[0];
    const auto stop =
        std::partition_point(order_.begin(), order_.end(), [&](std::int32_t i) { return box(i).offsets[0] < end; });
    for (auto k = static_cast<std::size_t>(stop - order_.begin()); k > 0 && reach_[k - 1] > region.offsets[0]; --k) {
      if (Overlap(box(order_[k - 1]), region)) out.push_back(order_[k - 1]);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace crossdock::plan
