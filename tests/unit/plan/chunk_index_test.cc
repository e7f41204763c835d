// SPDX-License-Identifier: Apache-2.0
#include "plan/chunk_index.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive.h"

namespace crossdock::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::int32_t> ByWalking(const Entry& entry, const Box& region) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < entry.chunks.size(); ++i) {
    if (Intersect(entry.chunks[i].box, region)) out.push_back(static_cast<std::int32_t>(i));
  }
  return out;
}

Box RandomBox(const Shape& shape, std::mt19937_64& rng) {
  Box box;
  for (const std::int64_t n : shape) {
    const auto begin = static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n));
    box.offsets.push_back(begin);
    box.sizes.push_back(1 + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n - begin)));
  }
  return box;
}

struct Case {
  std::string_view name;
  std::vector<Box> boxes;
};

class Cuts : public testing::TestWithParam<Case> {};
const Shape kWhole = {12, 10, 9};
INSTANTIATE_TEST_SUITE_P(
    All, Cuts,
    testing::Values(
        Case{"Whole", {Box::Whole(kWhole)}}, Case{"Grid", Grid(kWhole, {3, 2, 4})},
        Case{"UnevenGrid", Grid(kWhole, {5, 3, 2})},
        Case{"Staircase",
             {{{0, 0, 0}, {4, 10, 9}}, {{4, 0, 0}, {8, 3, 9}}, {{4, 3, 0}, {5, 7, 9}}, {{9, 3, 0}, {3, 7, 9}}}},
        Case{"LayersCutDifferently",
             {{{0, 0, 0}, {6, 10, 4}}, {{0, 0, 4}, {6, 10, 5}}, {{6, 0, 0}, {6, 5, 9}}, {{6, 5, 0}, {6, 5, 9}}}}),
    [](const auto& row) { return std::string(row.param.name); });

TEST_P(Cuts, AreFoundAsByWalkingOverAllOfThem) {
  const Entry entry = MakeEntry("w", DType::kF32, kWhole, GetParam().boxes);
  const ChunkIndex index(entry);
  std::mt19937_64 rng(11);
  for (int i = 0; i < 300; ++i) {
    const Box region = RandomBox(kWhole, rng);
    ASSERT_EQ(index.Overlapping(region), ByWalking(entry, region)) << ToString(region);
  }
}

TEST(ChunkIndex, FindsTheOneChunkOfAScalarAndNothingForAnEmptyRegion) {
  const Entry scalar = MakeEntry("step", DType::kI64, {});
  EXPECT_THAT(ChunkIndex(scalar).Overlapping(Box{}), ElementsAre(0));
  const Entry empty = MakeEntry("none", DType::kF32, {0, 3});
  EXPECT_THAT(ChunkIndex(empty).Overlapping(Box::Whole({0, 3})), IsEmpty());
}

}  // namespace
}  // namespace crossdock::plan
