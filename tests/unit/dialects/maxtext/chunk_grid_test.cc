// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/chunk_grid.h"

#include "result_matchers.h"

namespace crossdock::dialects::maxtext {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

TEST(ChunkGrid, GrowsWithTheCheckpoint) {
  EXPECT_EQ(ChunkBytes(0), 4 * kMiB);
  EXPECT_EQ(ChunkBytes(kMiB * kMiB), 4 * kMiB);
  EXPECT_EQ(ChunkBytes(10 * kMiB * kMiB), 64 * kMiB);
}

TEST(ChunkGrid, LayersAndExpertsAreCutFirst) {
  EXPECT_EQ(ChunkShape({4096, 36}, 4, {1, -1}, 4 * kMiB), (Shape{4096, 36}));                            // small enough
  EXPECT_EQ(ChunkShape({2048, 28, 2048}, 2, {1, -1}, 8 * kMiB), (Shape{2048, 1, 2048}));                 // one layer
  EXPECT_EQ(ChunkShape({512, 28, 512}, 2, {1, -1}, 4 * kMiB), (Shape{512, 7, 512}));                     // as many as fit
  EXPECT_EQ(ChunkShape({128, 48, 2048, 768}, 2, {1, 0}, 4 * kMiB), (Shape{1, 1, 2048, 768}));            // one expert of one layer
  const Shape cut = ChunkShape({4096, 36, 12288}, 2, {1, -1}, 4 * kMiB);
  EXPECT_EQ(cut[1], 1);
  EXPECT_LE(cut[0] * cut[2] * 2, 4 * kMiB);
  EXPECT_GE(std::min(cut[0], cut[2]), 512);                                                             // both sides long
}

TEST(ChunkGrid, OnlyTheFirstAxisEndsInAShorterChunk) {
  const Shape cut = ChunkShape({100003, 1024}, 2, {-1, -1}, 4 * kMiB);  // a prime number of rows
  EXPECT_EQ(cut[1], 1024);
  EXPECT_GT(cut[0], 1000);
  const Shape divided = ChunkShape({64, 100003}, 4, {-1, -1}, 4 * kMiB);
  EXPECT_EQ(100003 % divided[1], 0);
  EXPECT_LE(divided[0] * divided[1] * 4, 4 * kMiB);
}

TEST(ChunkGrid, ChunksCoverTheArrayInOrder) {
  for (const auto& [shape, chunk] : std::vector<std::pair<Shape, Shape>>{{{7, 4}, {3, 2}}, {{5}, {5}}, {{}, {}}, {{2, 3, 4}, {1, 3, 2}}}) {
    const std::vector<Chunk> chunks = CutIntoChunks(shape, chunk);
    std::vector<Box> boxes;
    for (const Chunk& one : chunks) boxes.push_back(one.box);
    EXPECT_THAT(CheckCover(shape, boxes), IsOk()) << ToString(shape);
    EXPECT_EQ(boxes.front().offsets, Dims::Filled(shape.size(), 0));
  }
  EXPECT_EQ(CutIntoChunks({7, 4}, {3, 2}).size(), 6U);
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
