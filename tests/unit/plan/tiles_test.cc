// SPDX-License-Identifier: Apache-2.0
#include "plan/tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive.h"
#include "result_matchers.h"

namespace crossdock::plan {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

TEST(TaskBytes, IsASixteenthOfTheMemoryWithinBounds) {
  EXPECT_EQ(TaskBytes(64 * kMiB), 4 * kMiB);
  EXPECT_EQ(TaskBytes(512 * kMiB), 16 * kMiB);
  EXPECT_EQ(TaskBytes(1), 256 * kKiB);
}

/// The tiles of `root` into one tensor cut as given: global boxes of the first output of each task.
std::vector<Task> Cut(const expr::Expr& root, const Catalog& source, const Catalog& target, const TileLimits& limits) {
  TaskBuilder builder(source, target);
  std::vector<Task> tasks;
  const Status status = CutJob({root, 0, -1, {}}, target, limits, builder, tasks);
  EXPECT_THAT(status, IsOk());
  return tasks;
}

TEST(CutJob, CutsRowsWhereBothSidesAreRowMajor) {
  const Shape shape = {1000, 512};
  const MemoryCheckpoint source = Place({MakeEntry("w", DType::kBF16, shape)});
  const MemoryCheckpoint target = Place({MakeEntry("w", DType::kBF16, shape)});
  const auto tasks =
      Cut(expr::Leaf(0, DType::kBF16, shape), source.catalog, target.catalog, {256 * kKiB, 0, kMiB, false});
  EXPECT_EQ(tasks.size(), 8U);  // 1 MB each way in tiles of 128 KiB each way
  for (const Task& t : tasks) EXPECT_EQ(t.outputs[0].box.sizes[1], 512);
}

TEST(CutJob, KeepsTilesOfATransposeNearlySquare) {
  const Shape in = {4096, 1024}, out = {1024, 4096};
  const MemoryCheckpoint source = Place({MakeEntry("w", DType::kBF16, in)});
  const MemoryCheckpoint target = Place({MakeEntry("w", DType::kBF16, out)});
  ASSERT_OK_AND_ASSIGN(const expr::Expr turned, expr::Transpose(expr::Leaf(0, DType::kBF16, in), {1, 0}));
  for (const Task& t : Cut(turned, source.catalog, target.catalog, {256 * kKiB, 0, 4 * kMiB, false})) {
    const Dims& sizes = t.outputs[0].box.sizes;
    EXPECT_LE(sizes[0], 4 * sizes[1]);
    EXPECT_LE(sizes[1], 4 * sizes[0]);
  }
}

TEST(CutJob, LetsTilesGrowWhereEveryCutWouldShortenShortRuns) {
  const Shape in = {4096, 1024}, out = {1024, 4096};
  const MemoryCheckpoint source = Place({MakeEntry("w", DType::kBF16, in)});
  const MemoryCheckpoint target = Place({MakeEntry("w", DType::kBF16, out)});
  ASSERT_OK_AND_ASSIGN(const expr::Expr turned, expr::Transpose(expr::Leaf(0, DType::kBF16, in), {1, 0}));
  const TileLimits limits{256 * kKiB, 4 * kMiB, 32 * kMiB, false};
  const auto grown = Cut(turned, source.catalog, target.catalog, limits);
  EXPECT_EQ(grown.size(), 4U);  // 8 MiB each way, 2 MiB each way a tile
  // A plain copy has no short runs to keep: it stays with the common bound.
  const MemoryCheckpoint same = Place({MakeEntry("w", DType::kBF16, in)});
  EXPECT_GE(Cut(expr::Leaf(0, DType::kBF16, in), source.catalog, same.catalog, limits).size(), 64U);
}

TEST(CutJob, CutsLeadingAxesOnlyWhereOutputsMustBeContiguous) {
  const Shape in = {512, 256}, out = {256, 512};
  const MemoryCheckpoint source = Place({MakeEntry("w", DType::kF32, in)});
  const MemoryCheckpoint target = Place({MakeEntry("w", DType::kF32, out)});
  ASSERT_OK_AND_ASSIGN(const expr::Expr turned, expr::Transpose(expr::Leaf(0, DType::kF32, in), {1, 0}));
  const auto tasks = Cut(turned, source.catalog, target.catalog, {64 * kKiB, 0, kMiB, true});
  EXPECT_GT(tasks.size(), 8U);
  for (const Task& t : tasks) EXPECT_EQ(t.outputs[0].box.sizes[1], 512);
  // Not even one row fits: then single rows are cut, which keeps them contiguous too.
  for (const Task& t : Cut(turned, source.catalog, target.catalog, {1 * kKiB, 0, kMiB, true})) {
    EXPECT_EQ(t.outputs[0].box.sizes[0], 1);
  }
}

TEST(CutJob, TakesWholeLayersOfAStackBeforeItCutsOne) {
  const Shape layer = {64, 64}, stack = {8, 64, 64};
  std::vector<Entry> entries;
  std::vector<expr::Expr> leaves;
  for (int i = 0; i < 8; ++i) {
    entries.push_back(MakeEntry("w" + std::to_string(i), DType::kF32, layer));
    leaves.push_back(expr::Leaf(i, DType::kF32, layer));
  }
  const MemoryCheckpoint source = Place(std::move(entries));
  const MemoryCheckpoint target = Place({MakeEntry("w", DType::kF32, stack)});
  ASSERT_OK_AND_ASSIGN(const expr::Expr root, expr::Stack(leaves, 0));
  for (const Task& t : Cut(root, source.catalog, target.catalog, {64 * kKiB, 0, kMiB, false})) {
    EXPECT_EQ(t.outputs[0].box.sizes, (Dims{2, 64, 64}));
    EXPECT_EQ(t.reads.size(), 2U);
  }
  for (const Task& t : Cut(root, source.catalog, target.catalog, {16 * kKiB, 0, kMiB, false})) {
    EXPECT_EQ(t.outputs[0].box.sizes, (Dims{1, 32, 64}));
  }
}

}  // namespace
}  // namespace crossdock::plan
