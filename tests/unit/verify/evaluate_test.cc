// SPDX-License-Identifier: Apache-2.0
#include "verify/evaluate.h"

#include <numeric>

#include "expr/dequantize.h"
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

TEST(EvaluateBox, QuantizesWhateverBoxIsAskedFor) {
  Checkpoint c;
  const int leaf = c.Store(DType::kF32, {2, 3}, std::vector<float>{448, -224, 1, 0.5F, 7, -2});
  const expr::Expr w = expr::Leaf(leaf, DType::kF32, {2, 3});
  c.Add("codes", *expr::QuantizeValues(w, {{2, 2}}));
  c.Add("scales", *expr::QuantizeScales(w, {{2, 2}}));
  c.Add("whole", *expr::QuantizeScales(w, {{2, 3}, true, expr::ScaleFormat::kUe8m0}));
  const std::vector<dialects::HubTensor>& tensors = c.hub().tensors;
  EXPECT_EQ(*EvaluateBox(c.side("a"), tensors[0], {{0, 0}, {2, 3}}), "\x7E\xF6\x76\x30\x4E\xFE");  // scales 1 and 2 / 448
  EXPECT_EQ(*EvaluateBox(c.side("a"), tensors[0], {{1, 1}, {1, 2}}), "\x4E\xFE");
  const auto floats = [](const std::string& bytes) {
    std::vector<float> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  };
  EXPECT_EQ(floats(*EvaluateBox(c.side("a"), tensors[1], {{0, 0}, {1, 2}})), (std::vector<float>{1, 2.0F / 448}));
  EXPECT_EQ(floats(*EvaluateBox(c.side("a"), tensors[2], {{0}, {1}})), std::vector<float>{1});
}

TEST(EvaluateBox, DequantizesAcrossChunksOfBoth) {
  Checkpoint c;
  // Codes of 1, 2, 4 and -1; scales of 1, 3, 5, 7 in blocks of 2 x 2 that the last row and column leave open.
  const std::vector<std::uint8_t> codes = {0x38, 0x40, 0x48, 0xB8, 0x38, 0x40, 0x48, 0xB8, 0x38};
  const int q = c.Store(DType::kF8E4M3, {3, 3}, codes, {{{0, 0}, {1, 3}}, {{1, 0}, {2, 3}}});
  const int s = c.Store(DType::kF32, {2, 2}, std::vector<float>{1, 3, 5, 7}, {{{0, 0}, {2, 1}}, {{0, 1}, {2, 1}}});
  ASSERT_OK_AND_ASSIGN(const auto w, expr::Dequantize(expr::Leaf(q, DType::kF8E4M3, {3, 3}), expr::Leaf(s, DType::kF32, {2, 2}), {2, 2}, DType::kBF16));
  ASSERT_OK_AND_ASSIGN(const auto turned, expr::Transpose(w, {1, 0}));
  c.Add("w", turned);
  // 1 2 12 / -1 1 6 / 20 -5 7, turned round
  EXPECT_EQ(Evaluate(c.side("a"), c.hub().tensors[0], {{0, 0}, {3, 3}}),
            (std::vector<std::uint16_t>{0x3F80, 0xBF80, 0x41A0, 0x4000, 0x3F80, 0xC0A0, 0x4140, 0x40C0, 0x40E0}));
  EXPECT_EQ(Evaluate(c.side("a"), c.hub().tensors[0], {{1, 1}, {2, 1}}), (std::vector<std::uint16_t>{0x3F80, 0x40C0}));
}

TEST(EvaluateBox, UnpacksMxfp4) {
  Checkpoint c;
  std::vector<std::uint8_t> bytes(32);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0x20});  // low nibble counts, high nibble 2 (1.0) and 3 (1.5)
  const int blocks = c.Store(DType::kU8, {1, 2, 16}, bytes, {{{0, 0, 0}, {1, 1, 16}}, {{0, 1, 0}, {1, 1, 16}}});
  const int scales = c.Store(DType::kU8, {1, 2}, std::vector<std::uint8_t>{127, 128});
  ASSERT_OK_AND_ASSIGN(const auto w, expr::DequantizeMxfp4(expr::Leaf(blocks, DType::kU8, {1, 2, 16}), expr::Leaf(scales, DType::kU8, {1, 2}), DType::kBF16));
  c.Add("w", w);
  // Elements 28 to 35: bytes 0x2E, 0x2F under 1 and 0x30, 0x31 under 2.
  EXPECT_EQ(Evaluate(c.side("a"), c.hub().tensors[0], {{0, 28}, {1, 8}}),
            (std::vector<std::uint16_t>{0xC080, 0x3F80, 0xC0C0, 0x3F80, 0x0000, 0x4040, 0x3F80, 0x4040}));
}

}  // namespace
}  // namespace crossdock::verify
