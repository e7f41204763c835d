// SPDX-License-Identifier: Apache-2.0
#include "execute/segments.h"

#include <gtest/gtest.h>

namespace crossdock::execute {
namespace {

/// One read of `rows` x 40000 bytes, all of a chunk at 100 of file 2.
std::vector<ReadPlace> OneRead(std::int64_t rows) {
  return {{2, 100, BoxRuns({rows, 40'000}, Box::Whole({rows, 40'000}), 1), false}};
}

plan::Task OneOutput(std::int64_t bytes) {
  plan::Task task;
  task.reads.resize(1);
  task.outputs.resize(1);
  task.outputs[0].bytes = bytes;
  return task;
}

plan::Move Copy(std::int64_t from, std::int64_t to, std::vector<expr::StridedCopy::Dim> dims) {
  plan::Move move;
  move.read = 0;
  move.copy.from = from;
  move.copy.to = to;
  move.copy.dims = std::move(dims);
  move.from = move.to = DType::kU8;
  return move;
}

TEST(Segments, LongRunsAreListedInTheOrderOfTheOutput) {
  plan::Task task = OneOutput(160'000);
  task.moves = {Copy(0, 40'000, {{2, 40'000, 80'000}, {40'000, 1, 1}}),
                Copy(80'000, 0, {{2, 40'000, 80'000}, {40'000, 1, 1}})};
  const auto segments = SegmentsOf(task, 0, OneRead(4));
  ASSERT_TRUE(segments.has_value());
  ASSERT_EQ(segments->size(), 4U);
  const std::int64_t expected[] = {80'100, 100, 120'100, 40'100};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*segments)[i].at, static_cast<std::int64_t>(i) * 40'000);
    EXPECT_EQ((*segments)[i].file, 2);
    EXPECT_EQ((*segments)[i].offset, expected[i]);
    EXPECT_EQ((*segments)[i].length, 40'000);
  }
}

TEST(Segments, ShortRunsAndChangedValuesAreNotStreamed) {
  plan::Task task = OneOutput(40'000);
  task.moves = {Copy(0, 0, {{4, 10'000, 10'000}, {10'000, 1, 1}})};
  EXPECT_FALSE(SegmentsOf(task, 0, OneRead(1)).has_value());
  task.moves = {Copy(0, 0, {{40'000, 1, 1}})};
  EXPECT_TRUE(SegmentsOf(task, 0, OneRead(1)).has_value());
  task.moves[0].ops = {{expr::Op::kScale, DType::kU8, DType::kU8, 2.0}};
  EXPECT_FALSE(SegmentsOf(task, 0, OneRead(1)).has_value());
}

TEST(Segments, AReversedRunIsNotStreamed) {
  plan::Task task = OneOutput(40'000);
  task.moves = {Copy(39'999, 0, {{40'000, -1, 1}})};
  EXPECT_FALSE(SegmentsOf(task, 0, OneRead(1)).has_value());
}

TEST(Segments, ReadsInPlaceAreFoundByTheirPlaceInTheBuffer) {
  plan::Task task = OneOutput(120'000);
  task.outputs[0].buffer_offset = 64;
  task.reads[0].buffer_offset = 64 + 40'000;
  task.moves = {Copy(0, 0, {{40'000, 1, 1}})};
  task.moves[0].read = -1;
  // Two rows of 40000 out of 50000: two runs.
  const std::vector<ReadPlace> places = {{2, 100, BoxRuns({2, 50'000}, {{0, 10'000}, {2, 40'000}}, 1), true}};
  const auto segments = SegmentsOf(task, 0, places);
  ASSERT_TRUE(segments.has_value());
  ASSERT_EQ(segments->size(), 3U);
  EXPECT_EQ((*segments)[0].file, -1) << "zeros";
  EXPECT_EQ((*segments)[1].offset, 10'100);
  EXPECT_EQ((*segments)[2].offset, 60'100);
  EXPECT_EQ((*segments)[2].at, 80'000);
}

}  // namespace
}  // namespace crossdock::execute
