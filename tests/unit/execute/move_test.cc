// SPDX-License-Identifier: Apache-2.0
#include "execute/move.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cast.h"

namespace crossdock::execute {
namespace {

std::vector<std::byte> Floats(std::int64_t count) {
  std::vector<std::byte> out(static_cast<std::size_t>(4 * count));
  for (std::int64_t i = 0; i < count; ++i) {
    kernels::StoreFromDouble(0.1 * static_cast<double>(i) - 7.3, out.data() + 4 * i, DType::kF32);
  }
  return out;
}

expr::ElementOp Op(expr::Op op, DType from, DType to, double factor = 1.0) { return {op, from, to, factor}; }

/// Walks the loops of a move one element at a time.
void ByElement(const plan::Move& move, const std::byte* from, std::byte* to) {
  std::vector<std::int64_t> at(move.copy.dims.size(), 0);
  while (true) {
    std::int64_t in = move.copy.from;
    std::int64_t out = move.copy.to;
    for (std::size_t i = 0; i < at.size(); ++i) {
      in += at[i] * move.copy.dims[i].from_stride;
      out += at[i] * move.copy.dims[i].to_stride;
    }
    std::byte value[8];
    std::memcpy(value, from + in * ElementSize(move.from), static_cast<std::size_t>(ElementSize(move.from)));
    for (const expr::ElementOp& op : move.ops) {
      double v = kernels::LoadAsDouble(value, op.from);
      if (op.op == expr::Op::kScale) v *= op.factor;
      if (op.op == expr::Op::kOffset) v += op.factor;
      kernels::StoreFromDouble(v, value, op.to);
    }
    std::memcpy(to + out * ElementSize(move.to), value, static_cast<std::size_t>(ElementSize(move.to)));
    std::size_t i = at.size();
    while (i > 0 && ++at[i - 1] == move.copy.dims[i - 1].count) at[--i] = 0;
    if (i == 0) return;
  }
}

struct Case {
  const char* name;
  std::vector<expr::StridedCopy::Dim> dims;
  std::vector<expr::ElementOp> ops;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class RunMoveTest : public ::testing::TestWithParam<Case> {};

TEST_P(RunMoveTest, GivesWhatElementByElementGives) {
  plan::Move move;
  move.read = 0;
  move.copy.from = 3;
  move.copy.to = 5;
  move.copy.dims = GetParam().dims;
  move.ops = GetParam().ops;
  move.from = DType::kF32;
  move.to = move.ops.empty() ? DType::kF32 : move.ops.back().to;
  const std::vector<std::byte> from = Floats(20'000);
  std::vector<std::byte> to(80'000, std::byte{0xEE});
  std::vector<std::byte> expected = to;
  static_cast<void>(RunMove(move, from.data(), to.data()));
  ByElement(move, from.data(), expected.data());
  EXPECT_EQ(to, expected);
}

const expr::ElementOp kToBf16 = Op(expr::Op::kCast, DType::kF32, DType::kBF16);
INSTANTIATE_TEST_SUITE_P(
    All, RunMoveTest,
    ::testing::Values(Case{"one", {}, {}}, Case{"copy", {{100, 1, 1}}, {}}, Case{"cast", {{5000, 1, 1}}, {kToBf16}},
                      Case{"cast_rows", {{7, 200, 90}, {90, 1, 1}}, {kToBf16}}, Case{"cast_one", {}, {kToBf16}},
                      Case{"cast_transposed", {{30, 1, 40}, {40, 50, 1}}, {kToBf16}},
                      Case{"cast_scattered", {{3, 3000, 1}, {2500, 1, 3}}, {kToBf16}},
                      Case{"scale", {{3000, 2, 1}}, {Op(expr::Op::kScale, DType::kF32, DType::kF32, 1.0 / 3.0)}},
                      Case{"chain",
                           {{2, 4000, 3000}, {3000, 1, 1}},
                           {Op(expr::Op::kOffset, DType::kF32, DType::kF32, 1.0), kToBf16,
                            Op(expr::Op::kScale, DType::kBF16, DType::kBF16, 8.0),
                            Op(expr::Op::kCast, DType::kBF16, DType::kF16)}}),
    [](const auto& row) { return row.param.name; });

TEST(RunMove, CountsValuesThatBecomeInfinite) {
  plan::Move move;
  move.read = 0;
  move.from = DType::kF32;
  move.to = DType::kF16;
  move.ops = {Op(expr::Op::kCast, DType::kF32, DType::kF16)};
  std::vector<float> values(3000, 1.0F);
  for (const std::size_t i : {7U, 1500U, 2999U}) values[i] = -70000.0F;
  values[8] = std::numeric_limits<float>::infinity();  // it was so before
  values[9] = std::numeric_limits<float>::quiet_NaN();
  values[10] = 65504.0F;
  std::vector<std::byte> to(6000);
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  for (const auto& dims : {std::vector<expr::StridedCopy::Dim>{{3000, 1, 1}}, {{3, 1000, 1000}, {1000, 1, 1}}, {{2, 1, 1500}, {1500, 2, 1}}}) {
    move.copy.dims = dims;
    EXPECT_EQ(RunMove(move, from, to.data()), 3) << dims.size();
  }
}

TEST(RunMove, FillsWithZeros) {
  plan::Move move;
  move.read = -1;
  move.copy.to = 1;
  move.copy.dims = {{2, 0, 4}, {2, 0, 1}};
  move.from = move.to = DType::kBF16;
  std::vector<std::byte> to(20, std::byte{0xEE});
  EXPECT_EQ(RunMove(move, nullptr, to.data()), 0);
  for (std::size_t i = 0; i < 10; ++i) {
    const bool filled = i == 1 || i == 2 || i == 5 || i == 6;
    EXPECT_EQ(to[2 * i], filled ? std::byte{0} : std::byte{0xEE}) << i;
  }
}

}  // namespace
}  // namespace crossdock::execute
