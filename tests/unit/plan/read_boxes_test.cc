// SPDX-License-Identifier: Apache-2.0
#include "plan/read_boxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdock::plan {
namespace {

using testing::ElementsAre;

/// Rows [first, first + rows) of each of `groups` groups of `stride` rows; `cols` whole columns.
expr::Piece Rows(std::int64_t first, std::int64_t rows, std::int64_t groups, std::int64_t stride, std::int64_t cols) {
  expr::Piece piece;
  piece.leaf = 0;
  piece.target_origin = {0, 0};
  piece.leaf_origin = {first, 0};
  piece.loops = {{groups, 0, rows, 0, stride}, {rows, 0, 1, 0, 1}, {cols, 1, 1, 1, 1}};
  return piece;
}

std::vector<Box> BoxesOf(const std::vector<ReadBox>& reads) {
  std::vector<Box> out;
  for (const ReadBox& r : reads) out.push_back(r.box);
  return out;
}

TEST(MakeReadBoxes, ReadsOnceWhatPiecesTogetherFill) {
  // The query, key and value rows of a fused tensor: each has gaps, together they have none.
  const Box chunk = Box::Whole({40, 16});
  const auto reads = MakeReadBoxes({Rows(0, 6, 4, 10, 16), Rows(6, 2, 4, 10, 16), Rows(8, 2, 4, 10, 16)}, chunk, 2);
  EXPECT_THAT(BoxesOf(reads), ElementsAre(chunk));
  EXPECT_EQ(reads[0].pieces.size(), 3U);
}

TEST(MakeReadBoxes, TakesAPieceApartWhereItHasGaps) {
  const auto reads = MakeReadBoxes({Rows(6, 2, 3, 10, 16)}, Box::Whole({40, 16}), 2);
  EXPECT_THAT(BoxesOf(reads), ElementsAre(Box{{6, 0}, {2, 16}}, Box{{16, 0}, {2, 16}}, Box{{26, 0}, {2, 16}}));
  for (const ReadBox& r : reads) {
    ASSERT_EQ(r.pieces.size(), 1U);
    EXPECT_EQ(r.pieces[0].count(), 32);
    EXPECT_EQ(expr::LeafBounds(r.pieces[0]), r.box);
  }
}

TEST(MakeReadBoxes, JoinsPartsThatLieSideBySide) {
  // Key and value of two groups, without the queries between them.
  const auto reads = MakeReadBoxes({Rows(6, 2, 2, 10, 16), Rows(8, 2, 2, 10, 16)}, Box::Whole({40, 16}), 2);
  EXPECT_THAT(BoxesOf(reads), ElementsAre(Box{{6, 0}, {4, 16}}, Box{{16, 0}, {4, 16}}));
}

TEST(MakeReadBoxes, ReadsThroughManySmallGaps) {
  const auto reads = MakeReadBoxes({Rows(0, 1, 100, 2, 16)}, Box::Whole({200, 16}), 2);
  EXPECT_THAT(BoxesOf(reads), ElementsAre(Box{{0, 0}, {199, 16}}));
  const auto wide = MakeReadBoxes({Rows(0, 1, 100, 2, 4096)}, Box::Whole({200, 4096}), 2);
  EXPECT_EQ(wide.size(), 100U) << "runs of 8 KiB are worth their own reads";
}

TEST(RunsIn, CountsWhatIsContiguousInTheChunk) {
  const Box chunk = Box::Whole({4, 6, 8});
  EXPECT_EQ(RunsIn({{1, 0, 0}, {2, 6, 8}}, chunk), 1);
  EXPECT_EQ(RunsIn({{1, 2, 0}, {2, 3, 8}}, chunk), 2);
  EXPECT_EQ(RunsIn({{0, 0, 3}, {4, 6, 2}}, chunk), 24);
  EXPECT_EQ(RunsIn(Box{}, Box{}), 1);
}

TEST(RunsOfPiece, CountsTheGapsOfAPiece) {
  const Box chunk = Box::Whole({40, 16});
  const expr::Piece gaps = Rows(6, 2, 3, 10, 16);
  EXPECT_EQ(RunsOfPiece(gaps, expr::LeafBounds(gaps), chunk), 6);
  const expr::Piece dense = Rows(0, 10, 4, 10, 16);
  EXPECT_EQ(RunsOfPiece(dense, expr::LeafBounds(dense), chunk), 1);
  const expr::Piece columns = Rows(0, 10, 4, 10, 5);
  EXPECT_EQ(RunsOfPiece(columns, expr::LeafBounds(columns), chunk), 40);
}

}  // namespace
}  // namespace crossdock::plan
