// SPDX-License-Identifier: Apache-2.0
#include "tensor/box.h"

#include <vector>

#include "result_matchers.h"

namespace crossdock {
namespace {

using ::testing::HasSubstr;

TEST(Box, IntersectsOrNot) {
  const Box a{{0, 0}, {4, 4}};
  EXPECT_EQ(Intersect(a, Box{{2, 3}, {4, 4}}), (Box{{2, 3}, {2, 1}}));
  EXPECT_EQ(Intersect(a, Box{{4, 0}, {1, 4}}), std::nullopt);
}

TEST(Box, FitsInIsSafeAgainstOverflow) {
  EXPECT_FALSE((Box{{INT64_MAX}, {INT64_MAX}}.FitsIn({10})));
  EXPECT_FALSE((Box{{-1}, {1}}.FitsIn({10})));
  EXPECT_TRUE((Box{{9}, {1}}.FitsIn({10})));
}

TEST(CheckCover, AcceptsUnevenChunksAndRejectsGapsAndOverlaps) {
  const std::vector<Box> good = {{{0, 0}, {2, 3}}, {{2, 0}, {1, 1}}, {{2, 1}, {1, 2}}};
  EXPECT_THAT(CheckCover({3, 3}, good), IsOk());
  const std::vector<Box> gap = {{{0, 0}, {2, 3}}};
  EXPECT_THAT(CheckCover({3, 3}, gap), IsError(ErrorCode::kIncomplete, HasSubstr("expected 9 elements")));
  const std::vector<Box> overlap = {{{0, 0}, {2, 3}}, {{1, 0}, {1, 3}}};
  EXPECT_THAT(CheckCover({3, 3}, overlap), IsError(ErrorCode::kCorrupt, HasSubstr("overlap")));
  const std::vector<Box> outside = {{{0, 0}, {4, 3}}};
  EXPECT_THAT(CheckCover({3, 3}, outside), IsError(ErrorCode::kCorrupt, HasSubstr("outside")));
}

TEST(CheckCover, ScalarsAndEmptyTensors) {
  const std::vector<Box> scalar = {Box{}};
  EXPECT_THAT(CheckCover({}, scalar), IsOk());
  EXPECT_THAT(CheckCover({0, 4}, {}), IsOk());
}

}  // namespace
}  // namespace crossdock
