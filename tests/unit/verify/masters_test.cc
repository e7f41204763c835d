// SPDX-License-Identifier: Apache-2.0
#include "verify/masters.h"

#include <bit>
#include <limits>

#include "side_fixture.h"

namespace crossdock::verify {
namespace {

using ::testing::HasSubstr;

/// BF16 weights by their bits, and float masters.
MasterPair Pair(Checkpoint* c, const std::vector<std::uint16_t>& weights, const std::vector<float>& masters) {
  const Shape shape = {static_cast<std::int64_t>(weights.size())};
  const int param = c->Store(DType::kBF16, shape, weights);
  const int master = c->Store(DType::kF32, shape, masters);
  return {"w", DType::kBF16, DType::kF32, shape, expr::Leaf(param, DType::kBF16, shape), expr::Leaf(master, DType::kF32, shape)};
}

Status Check(Checkpoint* c, const MasterPair& pair, std::int64_t memory = 1 << 20) { return CheckMasters(c->side("a"), std::vector{pair}, {memory, {}, {}}); }

TEST(CheckMasters, AcceptsMastersThatRoundToTheirWeights) {
  Checkpoint c;
  // 1 + 2^-8 is a tie between 0x3f80 and 0x3f81 and goes to the even one, 1 + 3 * 2^-8 to 0x3f82; a NaN is a NaN.
  const MasterPair pair = Pair(&c, {0x3f80, 0x3f82, 0x8000, 0x7fc1, 0x7f80}, {1.00390625F, 1.01171875F, -0.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()});
  EXPECT_THAT(Check(&c, pair), IsOk());
}

TEST(CheckMasters, NamesTensorCountPlaceAndWhatToDo) {
  Checkpoint c;
  const MasterPair pair = Pair(&c, {0x3f80, 0x3f81, 0x3f82, 0x0000}, {1.0F, 1.0F, 1.0F, -0.0F});
  const Status status = Check(&c, pair);
  EXPECT_THAT(status, IsError(ErrorCode::kCorrupt, HasSubstr("3 of 4 elements differ, the first at 1")));
  EXPECT_THAT(status, IsError(ErrorCode::kCorrupt, HasSubstr("`w`")));
  EXPECT_THAT(status, IsError(ErrorCode::kCorrupt, HasSubstr("--no-optim")));
}

TEST(CheckMasters, EqualDTypesMustHaveEqualBits) {
  Checkpoint c;
  const float one = 1.0F;
  const float next = std::bit_cast<float>(std::bit_cast<std::uint32_t>(one) + 1);
  const int param = c.Store(DType::kF32, {2}, std::vector<float>{one, one});
  const int master = c.Store(DType::kF32, {2}, std::vector<float>{one, next});
  const MasterPair pair{"w", DType::kF32, DType::kF32, {2}, expr::Leaf(param, DType::kF32, {2}), expr::Leaf(master, DType::kF32, {2})};
  EXPECT_THAT(Check(&c, pair), IsError(ErrorCode::kCorrupt, HasSubstr("1 of 2 elements differ, the first at 1")));
}

TEST(CheckMasters, CountsOverAllTiles) {
  Checkpoint c;
  std::vector<std::uint16_t> weights(10000, 0x3f80);
  weights[0] = weights[9999] = 0;
  const MasterPair pair = Pair(&c, weights, std::vector<float>(10000, 1.0F));
  EXPECT_THAT(Check(&c, pair, 1), IsError(ErrorCode::kCorrupt, HasSubstr("2 of 10000 elements differ, the first at 0")));
}

}  // namespace
}  // namespace crossdock::verify
