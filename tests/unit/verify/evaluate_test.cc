// SPDX-License-Identifier: Apache-2.0
#include "verify/evaluate.h"

#include <numeric>

#include "side_fixture.h"

namespace crossdock::verify {
namespace {

std::vector<std::uint16_t> Count(std::size_t n) {
  std::vector<std::uint16_t> v(n);
  std::iota(v.begin(), v.end(), std::uint16_t{0});
  return v;
}

std::vector<std::uint16_t> Evaluate(const Side& side, const dialects::HubTensor& tensor, const Box& box) {
  const auto text = EvaluateBox(side, tensor, box);
  EXPECT_THAT(text, IsOk());
  std::vector<std::uint16_t> out(text->size() / 2);
  std::memcpy(out.data(), text->data(), text->size());
  return out;
}

TEST(RowMajorTiles, CoverAShapeInOrder) {
  for (std::int64_t limit : {1, 2, 5, 7, 24, 1000}) {
    std::int64_t next = 0;
    for (const Box& box : RowMajorTiles({2, 3, 4}, limit)) {
      EXPECT_LE(box.count(), limit);
      EXPECT_EQ(box.offsets[0] * 12 + box.offsets[1] * 4 + box.offsets[2], next);
      next += box.count();
    }
    EXPECT_EQ(next, 24);
  }
  EXPECT_EQ(RowMajorTiles({}, 10).size(), 1U);
  EXPECT_TRUE(RowMajorTiles({3, 0}, 10).empty());
}

TEST(EvaluateBox, ReadsAcrossChunksOfAnyGrid) {
  Checkpoint c;
  const int leaf = c.Store(DType::kBF16, {4, 6}, Count(24),
                           {{{0, 0}, {4, 3}}, {{0, 3}, {1, 3}}, {{1, 3}, {3, 3}}});
  c.Add("w", expr::Leaf(leaf, DType::kBF16, {4, 6}));
  EXPECT_EQ(Evaluate(c.side("a"), c.hub().tensors[0], {{0, 0}, {4, 6}}), Count(24));
  EXPECT_EQ(Evaluate(c.side("a"), c.hub().tensors[0], {{1, 2}, {2, 2}}), (std::vector<std::uint16_t>{8, 9, 14, 15}));
}

TEST(EvaluateBox, FollowsTransposesStacksAndPadding) {
  Checkpoint c;
  const int leaf = c.Store(DType::kBF16, {2, 3}, Count(6));
  ASSERT_OK_AND_ASSIGN(const auto turned, expr::Transpose(expr::Leaf(leaf, DType::kBF16, {2, 3}), {1, 0}));
  ASSERT_OK_AND_ASSIGN(const auto padded, expr::Pad(turned, {0, 0}, {4, 2}));
  c.Add("w", padded);
  EXPECT_EQ(Evaluate(c.side("a"), c.hub().tensors[0], {{0, 0}, {4, 2}}),
            (std::vector<std::uint16_t>{0, 3, 1, 4, 2, 5, 0, 0}));
}

TEST(EvaluateBox, CastsElementByElement) {
  Checkpoint c;
  const int leaf = c.Store(DType::kF32, {2}, std::vector<float>{1.0F, 1.00390625F});  // the second is a tie
  ASSERT_OK_AND_ASSIGN(const auto cast, expr::Cast(expr::Leaf(leaf, DType::kF32, {2}), DType::kBF16));
  c.Add("w", cast);
  EXPECT_EQ(Evaluate(c.side("a"), c.hub().tensors[0], {{0}, {2}}), (std::vector<std::uint16_t>{0x3f80, 0x3f80}));
}

}  // namespace
}  // namespace crossdock::verify
