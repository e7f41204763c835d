// SPDX-License-Identifier: Apache-2.0
/// Random trees between random chunk grids: whatever the shapes, a plan gives what the expression says.
#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expr/dequantize.h"
#include "naive.h"
#include "plan/planner.h"
#include "result_matchers.h"

namespace crossdock::plan {
namespace {

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : rng_(seed) {}

  std::int64_t Below(std::int64_t n) { return static_cast<std::int64_t>(rng_() % static_cast<std::uint64_t>(n)); }

  Shape RandomShape() {
    Shape out;
    for (std::int64_t rank = Below(4); rank > 0; --rank) out.push_back(1 + Below(13));
    return out;
  }

  /// Cuts at random: a grid, or halves of halves (which is no grid).
  std::vector<Box> RandomBoxes(const Shape& shape) {
    if (shape.empty() || Below(4) == 0) return {Box::Whole(shape)};
    if (Below(3) != 0) {
      std::vector<std::int64_t> parts;
      for (const std::int64_t n : shape) parts.push_back(1 + Below(std::min<std::int64_t>(n, 3)));
      return Grid(shape, parts);
    }
    std::vector<Box> boxes = {Box::Whole(shape)};
    for (std::int64_t cuts = Below(5); cuts > 0; --cuts) {
      Box& box = boxes[static_cast<std::size_t>(Below(static_cast<std::int64_t>(boxes.size())))];
      const auto axis = static_cast<std::size_t>(Below(static_cast<std::int64_t>(shape.size())));
      if (box.sizes[axis] < 2) continue;
      Box high = box;
      const std::int64_t low = 1 + Below(box.sizes[axis] - 1);
      box.sizes[axis] = low;
      high.offsets[axis] += low;
      high.sizes[axis] -= low;
      boxes.push_back(high);
    }
    return boxes;
  }

  /// A tree of the given shape; its leaves become source entries.
  Result<expr::Expr> Tree(const Shape& shape, DType dtype, int depth) {
    const auto rank = static_cast<std::int64_t>(shape.size());
    switch (depth == 0 ? 0 : Below(9)) {
      case 1: {  // transpose
        std::vector<int> axes(shape.size());
        std::iota(axes.begin(), axes.end(), 0);
        std::shuffle(axes.begin(), axes.end(), rng_);
        Shape in = shape;
        for (std::size_t i = 0; i < axes.size(); ++i) in[static_cast<std::size_t>(axes[i])] = shape[i];
        CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr e, Tree(in, dtype, depth - 1));
        return expr::Transpose(e, axes);
      }
      case 2: {  // merge the input's axes
        if (CheckedCount(shape) % 2 != 0) break;
        CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr e, Tree({2, CheckedCount(shape) / 2}, dtype, depth - 1));
        return expr::Reshape(e, shape);
      }
      case 3: {
        CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr e, Tree({CheckedCount(shape)}, dtype, depth - 1));
        return expr::Reshape(e, shape);
      }
      case 4:
        if (rank > 0) {
          CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr e, Tree(shape, dtype, depth - 1));
          return expr::Reverse(e, static_cast<int>(Below(rank)));
        }
        break;
      case 5:
        if (rank > 0) return Halves(shape, dtype, depth);
        break;
      case 6: {
        Shape big = shape;
        Dims at = shape;
        for (std::size_t i = 0; i < shape.size(); ++i) {
          at[i] = Below(3);
          big[i] += at[i] + Below(3);
        }
        CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr e, Tree(big, dtype, depth - 1));
        return expr::Slice(e, {at, shape});
      }
      case 7: {
        Shape small = shape;
        Dims before = Dims::Filled(shape.size(), 0);
        for (std::size_t i = 0; i < shape.size(); ++i) {
          small[i] = 1 + Below(shape[i]);
          before[i] = Below(shape[i] - small[i] + 1);
        }
        CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr e, Tree(small, dtype, depth - 1));
        return expr::Pad(e, before, shape);
      }
      case 8: {
        const DType other = dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
        CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr e, Tree(shape, other, depth - 1));
        return expr::Cast(e, dtype);
      }
      default:
        break;
    }
    if (dequantize_ && rank >= 2 && Below(2) == 0) return Below(3) == 0 ? Mxfp4(shape, dtype) : Dequantized(shape, dtype);
    return Stored(dtype, shape, RandomBoxes(shape));
  }

  /// From now on leaves may be dequantized.
  void Dequantize() { dequantize_ = true; }

  std::vector<Entry> TakeEntries() { return std::move(entries_); }

 private:
  expr::Expr Stored(DType dtype, const Shape& shape, std::vector<Box> boxes) {
    entries_.push_back(MakeEntry("t" + std::to_string(entries_.size()), dtype, shape, std::move(boxes)));
    return expr::Leaf(static_cast<int>(entries_.size()) - 1, dtype, shape);
  }

  Result<expr::Expr> Dequantized(const Shape& shape, DType dtype) {
    static constexpr std::array kScales = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0, DType::kU8};
    const std::size_t rank = shape.size();
    expr::BlockFormat block{1 + Below(6), 1 + Below(6)};
    if (Below(3) == 0) block = {1, shape[rank - 1]};               // channel
    if (Below(4) == 0) block = {shape[rank - 2], shape[rank - 1]};  // tensor
    Shape grid = shape;
    grid[rank - 2] = (shape[rank - 2] + block.rows - 1) / block.rows;
    grid[rank - 1] = (shape[rank - 1] + block.cols - 1) / block.cols;
    if (grid[rank - 2] == 1 && grid[rank - 1] == 1 && Below(2) == 0) {
      grid = Below(2) == 0 ? Shape{} : Shape{1};
    } else if (grid[rank - 1] == 1 && Below(2) == 0) {
      grid.erase(rank - 1);
    }
    const expr::Expr q = Stored(Below(4) == 0 ? DType::kF8E5M2 : DType::kF8E4M3, shape, RandomBoxes(shape));
    const expr::Expr s = Stored(kScales[static_cast<std::size_t>(Below(5))], grid, RandomBoxes(grid));
    return expr::Dequantize(q, s, block, dtype);
  }

  /// Whole groups are stored; the shape is a part of them.
  Result<expr::Expr> Mxfp4(const Shape& shape, DType dtype) {
    Shape groups = shape;
    Box part{Dims::Filled(shape.size(), 0), shape};
    const std::int64_t before = Below(70);
    part.offsets[shape.size() - 1] = before;
    groups[shape.size() - 1] = (before + shape.back() + 31) / 32 + Below(2);
    std::vector<Box> boxes = RandomBoxes(groups);
    for (Box& box : boxes) {
      box.offsets.push_back(0);
      box.sizes.push_back(16);
    }
    Shape bytes = groups;
    bytes.push_back(16);
    const expr::Expr q = Stored(DType::kU8, bytes, std::move(boxes));
    const expr::Expr s = Stored(DType::kU8, groups, RandomBoxes(groups));
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr w, expr::DequantizeMxfp4(q, s, dtype));
    return expr::Slice(std::move(w), part);
  }

  Result<expr::Expr> Halves(const Shape& shape, DType dtype, int depth) {
    const auto axis = static_cast<std::size_t>(Below(static_cast<std::int64_t>(shape.size())));
    Shape low = shape, high = shape;
    low[axis] = 1 + Below(shape[axis]);
    high[axis] = shape[axis] - low[axis];
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr a, Tree(low, dtype, depth - 1));
    if (high[axis] == 0) return a;
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr b, Tree(high, dtype, depth - 1));
    return expr::Concat({a, b}, static_cast<int>(axis));
  }

  std::mt19937_64 rng_;
  bool dequantize_ = false;
  std::vector<Entry> entries_;
};

class RandomPlans : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomPlans, testing::Range(0, 12));

void CheckRandomPlans(int first, bool dequantize) {
  for (int round = 0; round < 25; ++round) {
    const std::uint64_t seed = static_cast<std::uint64_t>(first) * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Maker maker(seed);
    if (dequantize) maker.Dequantize();
    std::vector<expr::Expr> exprs;
    std::vector<Entry> targets;
    for (std::int64_t n = 1 + maker.Below(4); n > 0; --n) {
      const Shape shape = maker.RandomShape();
      const DType dtype = maker.Below(2) == 0 ? DType::kF32 : DType::kBF16;
      ASSERT_OK_AND_ASSIGN(expr::Expr e, maker.Tree(shape, dtype, static_cast<int>(maker.Below(5))));
      exprs.push_back(e);
      targets.push_back(MakeEntry("o" + std::to_string(n), dtype, shape, maker.RandomBoxes(shape)));
    }
    MemoryCheckpoint source = Place(maker.TakeEntries(), 3);
    for (std::size_t i = 0; i < source.catalog.entries.size(); ++i) {
      const Entry& e = source.catalog.entries[i];
      StoreArray(source, i, Numbered(e.dtype, e.shape, seed + i));
    }
    const MemoryCheckpoint target = Place(std::move(targets), 2);
    for (const std::int64_t bound : {std::int64_t{128}, std::int64_t{1000}, std::int64_t{1} << 20U}) {
      PlanOptions options;
      options.task_bytes = bound;
      options.contiguous_outputs = maker.Below(2) == 0;
      ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(source.catalog, target.catalog, exprs, options));
      ExpectPlanGives(plan, source, target, exprs);
      if (options.contiguous_outputs) ExpectContiguousOutputs(plan, target.catalog);
      if (testing::Test::HasFailure()) return;  // one counterexample is enough to read
    }
  }
}

TEST_P(RandomPlans, GiveWhatTheirExpressionsSay) { CheckRandomPlans(GetParam(), false); }
TEST_P(RandomPlans, OverDequantizedLeavesGiveWhatTheirExpressionsSay) { CheckRandomPlans(GetParam(), true); }

}  // namespace
}  // namespace crossdock::plan
