// SPDX-License-Identifier: Apache-2.0
#include "plan/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive.h"
#include "result_matchers.h"

namespace crossdock::plan {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr expr::Fp8Format kBlock = {{8, 8}};

/// Target entries q, s and exprs for them over a leaf of 20 x 16.
struct Pair {
  expr::Expr w = expr::Leaf(0, DType::kBF16, {20, 16});
  expr::Expr q = *expr::QuantizeValues(w, kBlock);
  expr::Expr s = *expr::QuantizeScales(w, kBlock);
};

TEST(MakeJobs, JoinsValuesWithScalesOverEqualInputsInWhateverOrder) {
  const Pair a;
  const Pair b;  // another tree of the same meaning
  const MemoryCheckpoint target =
      Place({MakeEntry("a_scale", DType::kF32, {3, 2}), MakeEntry("w", DType::kF8E4M3, {20, 16})});
  ASSERT_OK_AND_ASSIGN(const auto jobs, MakeJobs(target.catalog, std::vector{a.s, b.q}));
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].entry, 1);
  EXPECT_EQ(jobs[0].scales, 0);
  EXPECT_EQ(jobs[0].expr->op, expr::Op::kLeaf);
}

TEST(MakeJobs, RefusesAHalfOfAPair) {
  const Pair pair;
  const MemoryCheckpoint target = Place({MakeEntry("w", DType::kF8E4M3, {20, 16})});
  EXPECT_THAT(MakeJobs(target.catalog, std::vector{pair.q}),
              IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("`w`"), HasSubstr("a tensor of its scales"))));
}

TEST(MakeJobs, RefusesChunksThatCutABlock) {
  const Pair pair;
  const MemoryCheckpoint target =
      Place({MakeEntry("s", DType::kF32, {3, 2}),
             MakeEntry("w", DType::kF8E4M3, {20, 16}, {{{0, 0}, {12, 16}}, {{12, 0}, {8, 16}}})});
  EXPECT_THAT(MakeJobs(target.catalog, std::vector{pair.s, pair.q}),
              IsError(ErrorCode::kUnsupported, HasSubstr("cuts a quantization block")));
}

TEST(MakeJobs, LeavesOutTensorsWithoutElements) {
  const MemoryCheckpoint target = Place({MakeEntry("none", DType::kF32, {0, 4})});
  ASSERT_OK_AND_ASSIGN(const auto jobs, MakeJobs(target.catalog, std::vector{expr::Leaf(0, DType::kF32, {0, 4})}));
  EXPECT_TRUE(jobs.empty());
}

TEST(PairRegions, MeetTheChunksOfBothHalves) {
  const Pair pair;
  const MemoryCheckpoint target =
      Place({MakeEntry("q", DType::kF8E4M3, {20, 16}, {{{0, 0}, {8, 16}}, {{8, 0}, {12, 16}}}),
             MakeEntry("s", DType::kF32, {3, 2}, {{{0, 0}, {3, 1}}, {{0, 1}, {3, 1}}})});
  ASSERT_OK_AND_ASSIGN(const auto jobs, MakeJobs(target.catalog, std::vector{pair.q, pair.s}));
  EXPECT_THAT(PairRegions(jobs[0], target.catalog),
              ElementsAre(Box{{0, 0}, {8, 8}}, Box{{0, 8}, {8, 8}}, Box{{8, 0}, {12, 8}}, Box{{8, 8}, {12, 8}}));
  EXPECT_EQ(ScalesBox(jobs[0], {{8, 8}, {12, 8}}), (Box{{1, 1}, {2, 1}}));
}

}  // namespace
}  // namespace crossdock::plan
