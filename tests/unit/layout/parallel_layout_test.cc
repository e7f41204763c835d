// SPDX-License-Identifier: Apache-2.0
#include "layout/parallel_layout.h"

#include <gtest/gtest.h>

#include "result_matchers.h"

namespace crossdock::layout {
namespace {

std::vector<std::int64_t> Counts(const Result<StageMap>& map) {
  std::vector<std::int64_t> counts;
  std::int64_t next = 0;
  if (!map) return counts;
  for (const StageMap::Stage& stage : map->stages) {
    EXPECT_EQ(stage.first, next);
    next += stage.count;
    counts.push_back(stage.count);
  }
  return counts;
}

ParallelLayout Pp(int pp) {
  ParallelLayout layout;
  layout.pp = pp;
  return layout;
}

TEST(StageMapTest, EvenStages) {
  EXPECT_EQ(Counts(MakeStageMap(Pp(1), 4)), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(Counts(MakeStageMap(Pp(4), 8)), (std::vector<std::int64_t>{2, 2, 2, 2}));
}

TEST(StageMapTest, FirstAndLastStageDiffer) {
  ParallelLayout layout = Pp(4);
  layout.first_stage_layers = 1;
  layout.last_stage_layers = 3;
  EXPECT_EQ(Counts(MakeStageMap(layout, 8)), (std::vector<std::int64_t>{1, 2, 2, 3}));
  layout.last_stage_layers.reset();
  EXPECT_EQ(Counts(MakeStageMap(layout, 7)), (std::vector<std::int64_t>{1, 2, 2, 2}));
  layout.last_stage_layers = 3;
  layout.pp = 2;
  EXPECT_EQ(Counts(MakeStageMap(layout, 4)), (std::vector<std::int64_t>{1, 3}));
}

TEST(StageMapTest, ExplicitListHoldsEveryLayer) {
  ParallelLayout layout = Pp(3);
  layout.pipeline_layers = {2, 1, 1};
  const Result<StageMap> map = MakeStageMap(layout, 4);
  EXPECT_EQ(Counts(map), (std::vector<std::int64_t>{2, 1, 1}));
  EXPECT_EQ(map->StageOf(0), 0);
  EXPECT_EQ(map->StageOf(1), 0);
  EXPECT_EQ(map->StageOf(2), 1);
  EXPECT_EQ(map->StageOf(3), 2);
}

TEST(StageMapTest, LayersThatDoNotDivideAreRefusedWithTheWayOut) {
  const Result<StageMap> map = MakeStageMap(Pp(3), 4);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, ErrorCode::kUsage);
  EXPECT_EQ(map.error().message, "4 layers do not divide by pp 3");
  EXPECT_NE(map.error().hint.find("--pipeline-layers 2,1,1"), std::string::npos) << map.error().hint;
}

TEST(StageMapTest, ImpossibleListsAreRefused) {
  ParallelLayout layout = Pp(3);
  layout.pipeline_layers = {2, 1};
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pipeline_layers = {2, 1, 2};
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pipeline_layers = {3, 1, 0};
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pipeline_layers = {INT64_MAX, INT64_MAX, 2};
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pipeline_layers = {2, 1, 1};
  layout.first_stage_layers = 2;
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
}

TEST(StageMapTest, ImpossibleEndsAreRefused) {
  ParallelLayout layout = Pp(3);
  layout.first_stage_layers = 1;
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());  // 3 layers for 2 stages
  layout.pp = 1;
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pp = 4;
  layout.first_stage_layers = 3;
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  EXPECT_FALSE(MakeStageMap(Pp(5), 4).has_value());
  EXPECT_FALSE(MakeStageMap(Pp(0), 4).has_value());
}

}  // namespace
}  // namespace crossdock::layout
