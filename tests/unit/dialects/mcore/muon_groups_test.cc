// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/muon_groups.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

TEST(MuonGroupsTest, AChainHasMuonFirstAndAdamLast) {
  const MuonSettings settings{1e-3, 9e-4, 1e-5, 0.1, 0.95};
  const ValueList adam = {Json(R"({"betas": [0.9, 0.95], "wd_mult": 1.0, "step": 7})"), Json(R"({"betas": [0.9, 0.95], "wd_mult": 0.0, "step": 7})")};
  for (const bool experts : {false, true}) {
    const Value chain = ChainMuon(settings, adam, experts);
    const ValueDict& items = chain.as_dict()->items;
    ASSERT_EQ(items.size(), experts ? 3U : 2U);
    for (std::size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(*items[i].first.as_int(), static_cast<std::int64_t>(i));
      const ValueList& groups = *items[i].second.FindPath("optimizer.param_groups")->as_sequence();
      const bool last = i + 1 == items.size();
      EXPECT_EQ(groups.size(), last ? 2U : 1U);
      EXPECT_EQ(IsMuonGroup(groups.front()), !last);
      EXPECT_EQ(groups.front().GetString("optimizer").has_value(), last);
      if (last) continue;
      EXPECT_EQ(groups.front().GetBool("is_expert_parallel"), i == 1);
      EXPECT_EQ(groups.front().GetFloat("momentum"), 0.95);
    }
  }
}

}  // namespace
}  // namespace crossdock::dialects::mcore
