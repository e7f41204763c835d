// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy_strided.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/transpose.h"

namespace crossdock::kernels {
namespace {

/// Loops beyond this are our own bug: each axis of a tensor (at most 8) is split in two at the very most by a
/// reshape on either side.
constexpr std::size_t kMaxLoops = 64;

struct Loops {
  std::array<StrideDim, kMaxLoops> dims;
  std::size_t size = 0;
  bool nothing = false;  ///< some count is 0

  void Push(const StrideDim& d) {
    CROSSDOCK_CHECK(size < kMaxLoops);
    dims[size++] = d;
  }
  void Erase(std::size_t at) {
    for (std::size_t i = at; i + 1 < size; ++i) dims[i] = dims[i + 1];
    --size;
  }
};

/// Drops loops of one iteration and joins neighbours that are one loop on both sides.
Loops Normalise(std::span<const StrideDim> in) {
  Loops out;
  for (const StrideDim& d : in) {
    if (d.count <= 0) out.nothing = true;
    if (d.count <= 1) continue;
    if (out.size > 0) {
      StrideDim& outer = out.dims[out.size - 1];
      if (outer.from_stride == d.from_stride * d.count && outer.to_stride == d.to_stride * d.count) {
        outer = {outer.count * d.count, d.from_stride, d.to_stride};
        continue;
      }
    }
    out.Push(d);
  }
  return out;
}

/// Calls body(from_byte_offset, to_byte_offset) for every iteration of the loops.
template <typename Body>
void ForEach(const Loops& loops, std::int64_t element, const Body& body) {
  std::array<std::int64_t, kMaxLoops> at{};
  std::int64_t from = 0, to = 0;
  while (true) {
    body(from * element, to * element);
    std::size_t k = loops.size;
    while (k > 0) {
      const StrideDim& d = loops.dims[k - 1];
      from += d.from_stride;
      to += d.to_stride;
      if (++at[k - 1] < d.count) break;
      at[k - 1] = 0;
      from -= d.from_stride * d.count;
      to -= d.to_stride * d.count;
      --k;
    }
    if (k == 0) return;
  }
}

template <typename T>
void CopyRow(const std::byte* from, std::byte* to, const StrideDim& d) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < d.count; ++i) {
    std::memcpy(to + i * d.to_stride * kSize, from + i * d.from_stride * kSize, sizeof(T));
  }
}

void CopyRowOf(const std::byte* from, std::byte* to, const StrideDim& d, std::int64_t element) {
  switch (element) {
    case 1:
      return CopyRow<std::uint8_t>(from, to, d);
    case 2:
      return CopyRow<std::uint16_t>(from, to, d);
    case 4:
      return CopyRow<std::uint32_t>(from, to, d);
    case 8:
      return CopyRow<std::uint64_t>(from, to, d);
    default:
      CROSSDOCK_CHECK(false);
  }
}

/// The loop that steps by one element on the given side, or `none`.
template <std::int64_t StrideDim::* kStride>
std::size_t UnitLoop(const Loops& loops) {
  for (std::size_t i = loops.size; i > 0; --i) {
    if (loops.dims[i - 1].*kStride == 1) return i - 1;
  }
  return kMaxLoops;
}

}  // namespace

void CopyStrided(const std::byte* from, std::int64_t from_offset, std::byte* to, std::int64_t to_offset,
                 std::span<const StrideDim> dims, std::int64_t element) {
  Loops loops = Normalise(dims);
  if (loops.nothing) return;
  from += from_offset * element;
  to += to_offset * element;
  const std::size_t unit_from = UnitLoop<&StrideDim::from_stride>(loops);
  const std::size_t unit_to = UnitLoop<&StrideDim::to_stride>(loops);
  if (loops.size == 0 || (unit_from < kMaxLoops && unit_from == unit_to)) {
    std::size_t run = static_cast<std::size_t>(element);
    if (loops.size > 0) {
      run *= static_cast<std::size_t>(loops.dims[unit_from].count);
      loops.Erase(unit_from);
    }
    ForEach(loops, element, [&](std::int64_t f, std::int64_t t) { std::memcpy(to + t, from + f, run); });
    return;
  }
  if (unit_from < kMaxLoops && unit_to < kMaxLoops) {
    const StrideDim row = loops.dims[unit_from];
    const StrideDim col = loops.dims[unit_to];
    loops.Erase(std::max(unit_from, unit_to));
    loops.Erase(std::min(unit_from, unit_to));
    ForEach(loops, element, [&](std::int64_t f, std::int64_t t) {
      Transpose2D(from + f, col.from_stride, to + t, row.to_stride, row.count, col.count, element);
    });
    return;
  }
  const StrideDim inner = loops.dims[loops.size - 1];
  loops.Erase(loops.size - 1);
  ForEach(loops, element, [&](std::int64_t f, std::int64_t t) { CopyRowOf(from + f, to + t, inner, element); });
}

void CopyStridedReference(const std::byte* from, std::int64_t from_offset, std::byte* to, std::int64_t to_offset,
                          std::span<const StrideDim> dims, std::int64_t element) {
  if (dims.empty()) {
    std::memcpy(to + to_offset * element, from + from_offset * element, static_cast<std::size_t>(element));
    return;
  }
  for (std::int64_t i = 0; i < dims[0].count; ++i) {
    CopyStridedReference(from, from_offset + i * dims[0].from_stride, to, to_offset + i * dims[0].to_stride,
                         dims.subspan(1), element);
  }
}

void FillStrided(std::byte* to, std::int64_t to_offset, std::span<const StrideDim> dims, std::int64_t element) {
  // The source side of a fill means nothing; making it equal to the target's lets contiguous loops join.
  Loops same;
  for (const StrideDim& d : dims) same.Push({d.count, d.to_stride, d.to_stride});
  Loops loops = Normalise(std::span(same.dims.data(), same.size));
  if (loops.nothing) return;
  to += to_offset * element;
  std::size_t run = static_cast<std::size_t>(element);
  const std::size_t unit = UnitLoop<&StrideDim::to_stride>(loops);
  if (unit < kMaxLoops) {
    run *= static_cast<std::size_t>(loops.dims[unit].count);
    loops.Erase(unit);
  }
  ForEach(loops, element, [&](std::int64_t, std::int64_t t) { std::memset(to + t, 0, run); });
}

}  // namespace crossdock::kernels
