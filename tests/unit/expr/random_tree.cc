// SPDX-License-Identifier: Apache-2.0
#include "unit/expr/random_tree.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace crossdock::expr {
namespace {

constexpr std::int64_t kMaxElements = 600;

std::size_t At(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

std::int64_t RandomTree::Between(std::int64_t lo, std::int64_t hi) {
  return lo + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(hi - lo + 1));
}

Shape RandomTree::RandomShape() {
  Shape shape;
  std::int64_t count = 1;
  const std::int64_t rank = Between(0, 5);
  for (std::int64_t a = 0; a < rank; ++a) {
    const std::int64_t n = Between(1, std::min<std::int64_t>(7, kMaxElements / count));
    count *= n;
    shape.push_back(n);
  }
  return shape;
}

Shape RandomTree::Refactor(std::int64_t count) {
  Shape shape;
  while (shape.size() < 4 && count > 1 && Between(0, 4) != 0) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= count; ++d) {
      if (count % d == 0) divisors.push_back(d);
    }
    const std::int64_t d = divisors[At(Between(0, static_cast<std::int64_t>(divisors.size()) - 1))];
    shape.push_back(d);
    count /= d;
  }
  shape.push_back(count);
  return shape;
}

Box RandomTree::RandomBox(const Shape& shape) {
  Box box = Box::Whole(shape);
  for (std::size_t a = 0; a < shape.size(); ++a) {
    if (Between(0, 2) == 0) continue;
    box.offsets[a] = Between(0, shape[a] - 1);
    box.sizes[a] = Between(1, shape[a] - box.offsets[a]);
  }
  return box;
}

Expr RandomTree::Grow() { return GrowTo(RandomShape(), DType::kF32, options_.depth); }

Expr RandomTree::GrowTo(const Shape& shape, DType dtype, int depth) {
  const Expr e = [&]() -> Expr {
    if (depth <= 0) return Leaf(leaves_++, dtype, shape);
    switch (Between(0, options_.compute ? 7 : 6)) {
      case 0:
        return GrowTranspose(shape, dtype, depth);
      case 1:
        return GrowConcat(shape, dtype, depth);
      case 2:
        return GrowPad(shape, dtype, depth);
      case 3:
        if (shape.empty()) return GrowReshape(shape, dtype, depth);
        return Reverse(GrowTo(shape, dtype, depth - 1),
                       static_cast<int>(Between(0, static_cast<int>(shape.size()) - 1)))
            .value();
      case 4:
        if (options_.slices) return GrowSlice(shape, dtype, depth);
        [[fallthrough]];
      case 5:
      case 6:
        return GrowReshape(shape, dtype, depth);
      default:
        return GrowCompute(shape, dtype, depth);
    }
  }();
  if (!options_.marks || shape.empty() || Between(0, 5) != 0) return e;
  return Shard(e, static_cast<int>(Between(0, static_cast<int>(shape.size()) - 1)));
}

Expr RandomTree::GrowReshape(const Shape& shape, DType dtype, int depth) {
  return Reshape(GrowTo(Refactor(CheckedCount(shape)), dtype, depth - 1), shape).value();
}

Expr RandomTree::GrowTranspose(const Shape& shape, DType dtype, int depth) {
  std::vector<int> axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::shuffle(axes.begin(), axes.end(), random_);
  Shape from = shape;
  for (std::size_t i = 0; i < axes.size(); ++i) from[static_cast<std::size_t>(axes[i])] = shape[i];
  return Transpose(GrowTo(from, dtype, depth - 1), axes).value();
}

Expr RandomTree::GrowConcat(const Shape& shape, DType dtype, int depth) {
  if (shape.empty()) return GrowReshape(shape, dtype, depth);
  const auto axis = At(Between(0, static_cast<std::int64_t>(shape.size()) - 1));
  std::vector<Expr> parts;
  for (std::int64_t left = shape[axis]; left > 0;) {
    Shape part = shape;
    part[axis] = Between(1, left);
    left -= part[axis];
    parts.push_back(GrowTo(part, dtype, depth - 1));
  }
  return Concat(std::move(parts), static_cast<int>(axis)).value();
}

Expr RandomTree::GrowSlice(const Shape& shape, DType dtype, int depth) {
  Shape from = shape;
  Box box = Box::Whole(shape);
  for (std::size_t a = 0; a < shape.size(); ++a) {
    if (CheckedCount(from) > kMaxElements) break;
    box.offsets[a] = Between(0, 2);
    from[a] += box.offsets[a] + Between(0, 2);
  }
  return Slice(GrowTo(from, dtype, depth - 1), box).value();
}

Expr RandomTree::GrowPad(const Shape& shape, DType dtype, int depth) {
  Shape from = shape;
  Dims before = Dims::Filled(shape.size(), 0);
  for (std::size_t a = 0; a < shape.size(); ++a) {
    from[a] = std::max<std::int64_t>(1, shape[a] - Between(0, 2));
    before[a] = Between(0, shape[a] - from[a]);
  }
  return Pad(GrowTo(from, dtype, depth - 1), before, shape).value();
}

Expr RandomTree::GrowCompute(const Shape& shape, DType dtype, int depth) {
  static constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF16};
  switch (Between(0, 3)) {
    case 0:
      return Scale(GrowTo(shape, dtype, depth - 1), static_cast<double>(Between(2, 5))).value();
    case 1: {
      const Expr in = GrowTo(shape, dtype, depth - 1);
      Result<Expr> offset = Offset(in, static_cast<double>(Between(1, 3)));
      return offset.has_value() ? *offset : in;  // refused over padding
    }
    default:
      return Cast(GrowTo(shape, kTypes[At(Between(0, 2))], depth - 1), dtype).value();
  }
}

Expr RandomTree::GrowOver(std::vector<Expr> inputs) {
  std::shuffle(inputs.begin(), inputs.end(), random_);
  for (Expr& e : inputs) e = Reshape(e, {CheckedCount(e->shape)}).value();
  Expr e = Concat(std::move(inputs), 0).value();
  for (int i = 0; i < 3; ++i) {
    e = Reshape(e, Refactor(CheckedCount(e->shape))).value();
    std::vector<int> axes(e->shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), random_);
    e = Transpose(e, axes).value();
    e = Reverse(e, axes.front()).value();
  }
  return e;
}

void ForSeeds(int count, const std::function<void(std::uint64_t seed)>& test) {
  const char* text = std::getenv("CROSSDOCK_TEST_SEED");
  const std::uint64_t first = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(count); ++seed) {
    SCOPED_TRACE("CROSSDOCK_TEST_SEED=" + std::to_string(seed));
    test(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace crossdock::expr
