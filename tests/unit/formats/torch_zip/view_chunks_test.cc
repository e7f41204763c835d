// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/view_chunks.h"

#include "result_matchers.h"

namespace crossdock::formats::torch_zip {
namespace {

using ::testing::HasSubstr;

TensorValue View(Shape shape, Dims strides, std::int64_t offset, std::int64_t stored) {
  TensorValue view;
  view.dtype = DType::kBF16;
  view.shape = shape;
  view.strides = strides;
  view.storage_offset = offset;
  view.storage_numel = stored;
  return view;
}

Result<std::vector<Chunk>> Chunks(const TensorValue& view) { return ChunksOfView(view, {1000, 2 * view.storage_numel}, 3); }

TEST(ViewChunks, TakesAContiguousViewWhole) {
  ASSERT_OK_AND_ASSIGN(const auto chunks, Chunks(View({2, 3}, {3, 1}, 4, 20)));
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(chunks[0].box, Box::Whole({2, 3}));
  EXPECT_EQ(chunks[0].bytes, (ByteRange{1008, 12}));
  EXPECT_EQ(chunks[0].file, 3);
}

TEST(ViewChunks, CutsRowsOfAWiderStorage) {
  ASSERT_OK_AND_ASSIGN(const auto chunks, Chunks(View({2, 3}, {10, 1}, 1, 20)));
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[1].box, (Box{{1, 0}, {1, 3}}));
  EXPECT_EQ(chunks[1].bytes, (ByteRange{1022, 6}));
}

TEST(ViewChunks, CutsATransposedViewIntoElements) {
  ASSERT_OK_AND_ASSIGN(const auto chunks, Chunks(View({3, 2}, {1, 3}, 0, 6)));
  ASSERT_EQ(chunks.size(), 6U);
  EXPECT_EQ(chunks[1].box, (Box{{0, 1}, {1, 1}}));
  EXPECT_EQ(chunks[1].bytes, (ByteRange{1006, 2}));
  std::vector<Box> boxes;
  for (const Chunk& chunk : chunks) boxes.push_back(chunk.box);
  EXPECT_THAT(CheckCover({3, 2}, boxes), IsOk());
}

TEST(ViewChunks, KnowsScalarsAxesOfOneAndEmptyTensors) {
  ASSERT_OK_AND_ASSIGN(const auto scalar, Chunks(View({}, {}, 2, 3)));
  EXPECT_EQ(scalar.at(0).bytes, (ByteRange{1004, 2}));
  ASSERT_OK_AND_ASSIGN(const auto one, Chunks(View({1, 3}, {77, 1}, 0, 3)));
  EXPECT_EQ(one.size(), 1U);
  ASSERT_OK_AND_ASSIGN(const auto empty, Chunks(View({0, 3}, {3, 1}, 0, 0)));
  EXPECT_EQ(empty.at(0).bytes.length, 0);
}

TEST(ViewChunks, RefusesWhatLeavesTheStorage) {
  for (const TensorValue& view : {View({2, 3}, {3, 1}, 15, 20), View({2, 3}, {-3, 1}, 6, 20), View({2, 3}, {3, 1}, -1, 20),
                                  View({2, 3}, {INT64_MAX, 1}, 0, 20), View({2, 3}, {1}, 0, 20), View({3}, {9}, INT64_MAX, 20)}) {
    EXPECT_THAT(Chunks(view), IsError(ErrorCode::kCorrupt, HasSubstr("a view leaves its storage")));
  }
  EXPECT_THAT(Chunks(View({1 << 11, 1 << 10}, {1, 1 << 11}, 0, 1 << 21)), IsError(ErrorCode::kUnsupported, HasSubstr("1048576")));
}

}  // namespace
}  // namespace crossdock::formats::torch_zip
