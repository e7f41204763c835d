// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "crossdock/live.h"
#include "result_matchers.h"

namespace crossdock {
namespace {

using ::testing::HasSubstr;

LayoutOptions Of(int tp, int pp, int ep = 1, int etp = 0) {
  LayoutOptions layout;
  layout.tp = tp;
  layout.pp = pp;
  layout.ep = ep;
  layout.etp = etp;
  return layout;
}

TEST(RankPlace, CountsTensorRanksFastestAndStagesSlowest) {
  struct Case {
    LayoutOptions layout;
    GlobalRank rank;
    RankPlace place;
  };
  const Case cases[] = {
      {Of(1, 1), {0}, {}},
      {Of(2, 2), {3}, {1, 1, 0, 1}},
      {Of(2, 2), {4, 8}, {0, 1, 0, 0}},                  // two copies: each stage is four ranks
      {Of(2, 2), {2, 8}, {0, 0, 0, 0}},
      {Of(2, 1, 2), {3}, {1, 0, 1, 1}},                  // etp as tp: ranks 0, 1 hold the first experts
      {Of(2, 1, 2, 1), {1}, {1, 0, 1, 0}},               // experts whole: a tensor rank each
      {Of(1, 2, 4), {6}, {0, 1, 2, 0}},
      {Of(2, 2), {5, 8, 2}, {1, 1, 0, 1}},               // context parallelism between tensor ranks and copies
      {Of(4, 1, 2, 4), {6}, {2, 0, 1, 2}},
  };
  for (const Case& one : cases) {
    ASSERT_OK_AND_ASSIGN(const RankPlace place, PlaceOfRank(one.layout, one.rank));
    EXPECT_EQ(place, one.place) << one.layout.tp << one.layout.pp << one.layout.ep << " rank " << one.rank.rank;
  }
}

TEST(RankPlace, RefusesWhatIsNoRank) {
  EXPECT_THAT(PlaceOfRank(Of(2, 2), {4}), IsError(ErrorCode::kUsage, HasSubstr("a rank from 0 to 3")));
  EXPECT_THAT(PlaceOfRank(Of(2, 2), {-1, 4}), IsError(ErrorCode::kUsage, HasSubstr("not of the world")));
  EXPECT_THAT(PlaceOfRank(Of(2, 2), {0, 6}), IsError(ErrorCode::kUsage, HasSubstr("a multiple of tp 2 x cp 1 x pp 2")));
  EXPECT_THAT(PlaceOfRank(Of(2, 1, 4, 1), {0, 2}), IsError(ErrorCode::kUsage, HasSubstr("a multiple of etp 1 x ep 4 x pp 1")));
  EXPECT_THAT(PlaceOfRank(Of(0, 1), {0}), IsError(ErrorCode::kUsage, HasSubstr("at least 1")));
}

}  // namespace
}  // namespace crossdock
