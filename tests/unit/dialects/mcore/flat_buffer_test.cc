// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/flat_buffer.h"

#include "result_matchers.h"
#include "unit/dialects/mcore/row_values.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

const std::vector<layout::BufferParam> kParams = {{6}, {3}, {8}};  // 8 at 0, 3 at 64, 6 at 128

layout::BucketLayout Layout(std::optional<std::int64_t> bucket_size) {
  Result<layout::BucketLayout> layout = layout::MakeBucketLayout(kParams, {1, bucket_size, false});
  EXPECT_THAT(layout, IsOk());
  return layout ? *layout : layout::BucketLayout();
}

TEST(FlatBufferTest, AParameterComesOutInItsShape) {
  const expr::Expr flat = expr::Leaf(0, DType::kF32, {134});
  ASSERT_OK_AND_ASSIGN(const expr::Expr first, OutOfBuffer(Layout(std::nullopt), std::vector{flat}, 0, {2, 3}));
  EXPECT_EQ(first->shape, (Shape{2, 3}));
  EXPECT_EQ(RowValues(first), (std::vector<std::int64_t>{128, 129, 130, 131, 132, 133}));
}

TEST(FlatBufferTest, BucketsApartAndJoined) {
  const layout::BucketLayout layout = Layout(60);  // {8, 3 at 64}, {6}
  ASSERT_EQ(layout.numel_unpadded, (std::vector<std::int64_t>{67, 6}));
  const std::vector<expr::Expr> apart = {expr::Leaf(0, DType::kF32, {67}), expr::Leaf(1, DType::kF32, {6})};
  ASSERT_OK_AND_ASSIGN(const expr::Expr of_second, OutOfBuffer(layout, apart, 0, {6}));
  EXPECT_EQ(RowValues(of_second).front(), 1'000'000);
  ASSERT_OK_AND_ASSIGN(const expr::Expr of_joined, OutOfBuffer(layout, std::vector{expr::Leaf(0, DType::kF32, {73})}, 0, {6}));
  EXPECT_EQ(RowValues(of_joined).front(), 67);
  EXPECT_THAT(OutOfBuffer(layout, std::vector{expr::Leaf(0, DType::kF32, {72})}, 0, {6}), IsError(ErrorCode::kCorrupt, HasSubstr("at least 73")));
}

TEST(FlatBufferTest, IntoAndOutAgain) {
  for (const std::optional<std::int64_t> size : {std::optional<std::int64_t>(), std::optional<std::int64_t>(60)}) {
    const layout::BucketLayout layout = Layout(size);
    const std::vector<expr::Expr> params = {expr::Leaf(0, DType::kF32, {2, 3}), expr::Leaf(1, DType::kF32, {3}), expr::Leaf(2, DType::kF32, {4, 2})};
    ASSERT_OK_AND_ASSIGN(const expr::Expr buffer, IntoBuffer(layout, params));
    EXPECT_EQ(buffer->shape, (Shape{layout.total_unpadded()}));
    EXPECT_EQ(RowValues(buffer)[8], -1) << "a gap is zeros";
    for (std::size_t i = 0; i < params.size(); ++i) {
      ASSERT_OK_AND_ASSIGN(const expr::Expr again, OutOfBuffer(layout, std::vector{buffer}, i, params[i]->shape));
      EXPECT_EQ(RowValues(again), RowValues(params[i]));
    }
  }
}

}  // namespace
}  // namespace crossdock::dialects::mcore
