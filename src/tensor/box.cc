// SPDX-License-Identifier: Apache-2.0
#include "tensor/box.h"

#include <algorithm>
#include <vector>

#include "base/checked_math.h"

namespace crossdock {

bool Box::empty() const {
  return std::any_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n == 0; });
}

bool Box::Contains(const Box& inner) const {
  CROSSDOCK_CHECK(rank() == inner.rank());
  for (std::size_t i = 0; i < rank(); ++i) {
    if (inner.offsets[i] < offsets[i] || inner.offsets[i] + inner.sizes[i] > offsets[i] + sizes[i]) {
      return false;
    }
  }
  return true;
}

bool Box::FitsIn(const Shape& shape) const {
  if (offsets.size() != shape.size() || sizes.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (offsets[i] < 0 || sizes[i] < 0) return false;
    const auto end = CheckedAdd(offsets[i], sizes[i]);
    if (!end || *end > shape[i]) return false;
  }
  return true;
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  CROSSDOCK_CHECK(a.rank() == b.rank());
  Box out;
  for (std::size_t i = 0; i < a.rank(); ++i) {
    const std::int64_t lo = std::max(a.offsets[i], b.offsets[i]);
    const std::int64_t hi = std::min(a.offsets[i] + a.sizes[i], b.offsets[i] + b.sizes[i]);
    if (hi <= lo) return std::nullopt;
    out.offsets.push_back(lo);
    out.sizes.push_back(hi - lo);
  }
  return out;
}

std::string ToString(const Box& box) {
  std::string out = "[";
  for (std::size_t i = 0; i < box.rank(); ++i) {
    if (i != 0) out += ", ";
    out += std::to_string(box.offsets[i]) + ":" + std::to_string(box.offsets[i] + box.sizes[i]);
  }
  return out + "]";
}

namespace {

Error CoverError(std::string what, const Box& box, const Shape& shape) {
  return MakeError(ErrorCode::kCorrupt, std::move(what))
      .WithExpected("chunks that cover shape " + ToString(shape) + " exactly once")
      .WithFound("chunk " + ToString(box));
}

/// Sweep along `axis`: all boxes of `group` must agree on [lo, hi) or be separable there. Grids separate at
/// once; anything else falls back to the pairwise test, which is quadratic but only for odd small files.
Status PairwiseDisjoint(const Shape& shape, std::span<const Box> boxes) {
  std::vector<const Box*> sorted;
  sorted.reserve(boxes.size());
  for (const Box& b : boxes) sorted.push_back(&b);
  std::sort(sorted.begin(), sorted.end(), [](const Box* a, const Box* b) { return *a < *b; });
  std::vector<const Box*> active;
  for (const Box* box : sorted) {
    std::erase_if(active, [&](const Box* a) {
      return !a->sizes.empty() && a->offsets[0] + a->sizes[0] <= box->offsets[0];
    });
    for (const Box* a : active) {
      if (Intersect(*a, *box)) return CoverError("two chunks overlap", *box, shape);
    }
    active.push_back(box);
  }
  return OkStatus();
}

}  // namespace

Status CheckCover(const Shape& shape, std::span<const Box> boxes) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t total, ElementCount(shape));
  std::int64_t covered = 0;
  std::vector<Box> solid;
  solid.reserve(boxes.size());
  for (const Box& box : boxes) {
    if (!box.FitsIn(shape)) return CoverError("a chunk lies outside its tensor", box, shape);
    if (box.empty()) continue;
    covered += box.count();  // each fits in `total`; a million of them cannot pass 2^63 before the check
    if (covered > total) return CoverError("chunks overlap", box, shape);
    solid.push_back(box);
  }
  if (covered != total) {
    return MakeError(ErrorCode::kIncomplete, "chunks do not cover their tensor")
        .WithExpected(std::to_string(total) + " elements of shape " + ToString(shape))
        .WithFound(std::to_string(covered));
  }
  return solid.size() > 1 ? PairwiseDisjoint(shape, solid) : OkStatus();
}

}  // namespace crossdock
