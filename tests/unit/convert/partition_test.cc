// SPDX-License-Identifier: Apache-2.0
#include "convert/partition.h"

#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

dialects::HubTensor OfLeaf(const char* name, Slot slot, int leaf) {
  return {name, slot, DType::kF32, {4}, expr::Leaf(leaf, DType::kF32, {4})};
}

dialects::HubState MuonAndAdam() {
  dialects::HubState hub;
  hub.tensors = {OfLeaf("a", Slot::kParam, 0),   OfLeaf("a", Slot::kMaster, 1), OfLeaf("a", Slot::kMuonMu, 2), OfLeaf("b", Slot::kParam, 3),
                 OfLeaf("b", Slot::kAdamMu, 4),  OfLeaf("b", Slot::kAdamNu, 5), OfLeaf("c", Slot::kParam, 6),  OfLeaf("d", Slot::kParam, 7),
                 OfLeaf("d", Slot::kMuonMu, 8)};
  return hub;
}

std::vector<expr::Expr> Leaves(const std::vector<int>& leaves) {
  std::vector<expr::Expr> out;
  for (const int leaf : leaves) out.push_back(expr::Leaf(leaf, DType::kF32, {4}));
  return out;
}

TEST(PartitionTest, FollowsTheSourcesOwnKeys) {
  EXPECT_THAT(PartitionLines(PartitionOf(MuonAndAdam()), false),
              ElementsAre("adam: 1 parameters, adam_mu 1, adam_nu 1", "muon: 2 parameters, master 1, muon_mu 2", "no state: 1 parameters (c)"));
  dialects::HubState weights;
  weights.tensors = {OfLeaf("a", Slot::kParam, 0), OfLeaf("a", Slot::kMaster, 1)};
  EXPECT_TRUE(PartitionOf(weights).empty());
}

TEST(PartitionTest, CountsWhatTheTargetReads) {
  const Partition all = PartitionOf(MuonAndAdam(), Leaves({0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_THAT(CheckCarried(all), IsOk());
  EXPECT_EQ(PartitionJson(all, true).GetInt("muon.slots.muon_mu.target"), 2);
  const Partition half = PartitionOf(MuonAndAdam(), Leaves({0, 2, 3, 4, 5, 6, 7}));  // no master, which a target may do without
  EXPECT_THAT(CheckCarried(half), IsOk());
  EXPECT_THAT(PartitionLines(half, true)[1], HasSubstr("master 0 of 1, muon_mu 1 of 2"));
}

TEST(PartitionTest, NoneOfOneOptimizersStateIsAnError) {
  const Partition lost = PartitionOf(MuonAndAdam(), Leaves({0, 3, 4, 5, 6, 7}));
  EXPECT_THAT(CheckCarried(lost), IsError(ErrorCode::kUnsupported, HasSubstr("none of the state of Muon's parameters")));
}

}  // namespace
}  // namespace crossdock::convert
