// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/chunk_grid.h"

#include <algorithm>
#include <utility>

namespace crossdock::dialects::maxtext {
namespace {

constexpr std::int64_t kLeastBytes = std::int64_t{4} << 20U;
constexpr std::int64_t kMostChunks = std::int64_t{1} << 18U;

/// The largest divisor of `size` that is at most `most`; REQUIRES: both at least 1.
std::int64_t DivisorBelow(std::int64_t size, std::int64_t most) {
  const std::int64_t parts = (size + most - 1) / most;
  for (std::int64_t n = parts; n * n <= size; ++n) {
    if (size % n == 0) return size / n;
  }
  for (std::int64_t divisor = std::min(most, size); divisor > 1; --divisor) {
    if (size % divisor == 0) return divisor;
  }
  return 1;
}

/// No axis before it is longer than one.
bool IsFirst(const Shape& chunk, std::size_t axis) {
  return std::all_of(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(axis), [](std::int64_t size) { return size == 1; });
}

}  // namespace

std::int64_t ChunkBytes(std::int64_t total) {
  std::int64_t bytes = kLeastBytes;
  while (total / bytes > kMostChunks) bytes *= 2;
  return bytes;
}

Shape ChunkShape(const Shape& shape, std::int64_t element, const std::vector<int>& stacks, std::int64_t most) {
  Shape chunk = shape;
  const auto bytes = [&] { return CheckedCount(chunk) * element; };
  for (const int axis : stacks) {
    const auto at = static_cast<std::size_t>(axis);
    if (axis < 0 || bytes() <= most || chunk[at] < 2) continue;
    const std::int64_t one = bytes() / chunk[at];
    chunk[at] = DivisorBelow(shape[at], std::max<std::int64_t>(most / one, 1));
  }
  while (bytes() > most) {
    const auto longest = static_cast<std::size_t>(std::max_element(chunk.begin(), chunk.end()) - chunk.begin());
    std::int64_t& size = chunk[longest];
    if (size < 2) break;  // a single element
    const std::int64_t divisor = DivisorBelow(shape[longest], size / 2);
    // Of a length with few divisors the last chunk may be shorter, where zarr and the writer allow it.
    size = divisor < size / 4 && IsFirst(chunk, longest) ? (size + 1) / 2 : divisor;
  }
  return chunk;
}

std::vector<Chunk> CutIntoChunks(const Shape& shape, const Shape& chunk) {
  std::vector<Chunk> out;
  Box box{Dims::Filled(shape.size(), 0), chunk};
  while (true) {
    Chunk next;
    next.box = box;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) next.box.sizes[axis] = std::min(chunk[axis], shape[axis] - box.offsets[axis]);
    out.push_back(std::move(next));
    std::size_t axis = shape.size();
    while (axis > 0) {
      --axis;
      box.offsets[axis] += chunk[axis];
      if (box.offsets[axis] < shape[axis]) break;
      box.offsets[axis] = 0;
      if (axis == 0) return out;
    }
    if (shape.empty()) return out;
  }
}

}  // namespace crossdock::dialects::maxtext
