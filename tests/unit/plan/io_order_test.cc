// SPDX-License-Identifier: Apache-2.0
#include "plan/io_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive.h"

namespace crossdock::plan {
namespace {

using testing::ElementsAre;

/// A task that copies `rows` rows from `row` of source entry `entry` to target entry `to`.
Task CopyRows(std::int32_t entry, std::int64_t row, std::int64_t rows, std::int32_t to) {
  Task task;
  task.reads.push_back({entry, 0, {{row, 0}, {rows, 8}}, 64, rows * 32});
  task.outputs.push_back({to, 0, {{0, 0}, {rows, 8}}, 0, rows * 32});
  task.moves.push_back({0, 0, {}, DType::kF32, DType::kF32, false, {}});
  task.buffer_bytes = 64 * rows;
  return task;
}

std::vector<std::int32_t> TargetsOf(const std::vector<Task>& tasks) {
  std::vector<std::int32_t> out;
  for (const Task& t : tasks) out.push_back(t.outputs[0].entry);
  return out;
}

TEST(InSourceOrder, GoesByFileThenOffsetThenTarget) {
  // Two files, round-robin: entries 0 and 2 lie in file 0, entry 1 in file 1.
  const MemoryCheckpoint source = Place({MakeEntry("a", DType::kF32, {16, 8}), MakeEntry("b", DType::kF32, {16, 8}),
                                         MakeEntry("c", DType::kF32, {16, 8})},
                                        2);
  Task padding = CopyRows(0, 0, 1, 9);
  padding.reads.clear();
  const auto sorted = InSourceOrder({CopyRows(1, 0, 1, 1), CopyRows(2, 0, 1, 2), CopyRows(0, 5, 1, 3),
                                     CopyRows(0, 1, 1, 5), CopyRows(0, 1, 1, 4), padding},
                                    source.catalog);
  EXPECT_THAT(TargetsOf(sorted), ElementsAre(9, 4, 5, 3, 2, 1));
}

TEST(JoinSmall, ShiftsWhatItAppends) {
  const auto joined = JoinSmall({CopyRows(0, 0, 2, 0), CopyRows(1, 0, 3, 1), CopyRows(2, 0, 10, 2)}, 400);
  ASSERT_EQ(joined.size(), 2U);  // 128 + 192 bytes fit in 400, 640 more do not
  const Task& first = joined[0];
  EXPECT_EQ(first.buffer_bytes, 320);
  ASSERT_EQ(first.moves.size(), 2U);
  EXPECT_EQ(first.moves[1].read, 1);
  EXPECT_EQ(first.moves[1].output, 1);
  EXPECT_EQ(first.reads[1].buffer_offset, 128 + 64);
  EXPECT_EQ(first.outputs[1].buffer_offset, 128);
  EXPECT_EQ(joined[1].outputs[0].entry, 2);
}

TEST(JoinSmall, LeavesPaddingItsMinusOneAndQuantizersAlone) {
  Task padding = CopyRows(0, 0, 1, 0);
  padding.reads.clear();
  padding.moves[0].read = -1;
  const auto joined = JoinSmall({CopyRows(0, 0, 1, 0), padding}, 4096);
  ASSERT_EQ(joined.size(), 1U);
  EXPECT_EQ(joined[0].moves[1].read, -1);
  Task quantizer = CopyRows(0, 0, 1, 0);
  quantizer.quantize = std::make_shared<const Quantize>();
  EXPECT_EQ(JoinSmall({quantizer, quantizer, CopyRows(0, 0, 1, 0)}, 4096).size(), 3U);
}

}  // namespace
}  // namespace crossdock::plan
