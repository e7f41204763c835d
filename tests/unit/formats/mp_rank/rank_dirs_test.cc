// SPDX-License-Identifier: Apache-2.0
#include "formats/mp_rank/rank_dirs.h"

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::mp_rank {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<io::MemoryStorage> With(const std::vector<std::string>& files) {
  auto storage = std::make_unique<io::MemoryStorage>();
  for (const std::string& file : files) {
    EXPECT_THAT(io::MakeDirs(*storage, io::ParentPath("/c/" + file)), IsOk());
    EXPECT_THAT(io::WriteSmallFile(*storage, "/c/" + file, "x"), IsOk());
  }
  return storage;
}

TEST(RankDirs, KnowsTheirNames) {
  for (const char* name : {"mp_rank_00", "mp_rank_07_001", "mp_rank_00_001_002", "mp_rank_123_1024"}) EXPECT_TRUE(IsRankDir(name)) << name;
  for (const char* name : {"mp_rank_", "mp_rank", "mp_rank_a", "mp_rank_00_", "mp_rank_0_0_0_0", "mp_rank__1", "xmp_rank_00", "mp_rank_00.old"}) {
    EXPECT_FALSE(IsRankDir(name)) << name;
  }
}

TEST(RankDirs, ListsWhatIsThereAndNoGrid) {
  const auto storage = With({"mp_rank_01_000_001/model_optim_rng.pt", "mp_rank_00_000_000/model_optim_rng.pt", "mp_rank_00_000_000/distrib_optim.pt",
                             "mp_rank_00_000_000/layer_wise_optimizer_1.pt", "mp_rank_00_000_000/layer_wise_optimizer_0.pt", "hf/config.json"});
  ASSERT_OK_AND_ASSIGN(const auto ranks, ListRankDirs(*storage, "/c"));
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].name, "mp_rank_00_000_000");
  EXPECT_TRUE(ranks[0].distributed);
  EXPECT_THAT(ranks[0].others, ElementsAre("layer_wise_optimizer_0.pt", "layer_wise_optimizer_1.pt"));
  EXPECT_FALSE(ranks[1].distributed);
}

/// TP2 EP3 ETP1 with a distributed optimizer: megatron-core 0.19.2 makes six directories and writes into three.
TEST(RankDirs, PassesOverEmptyOnes) {
  const auto storage = With({"mp_rank_00_000/model_optim_rng.pt"});
  ASSERT_THAT(io::MakeDirs(*storage, "/c/mp_rank_01_000"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto ranks, ListRankDirs(*storage, "/c"));
  ASSERT_EQ(ranks.size(), 1U);
}

TEST(RankDirs, RefusesRanksWithoutTheirModel) {
  const auto cut = With({"mp_rank_00/model_optim_rng.pt", "mp_rank_01/distrib_optim.pt"});
  EXPECT_THAT(ListRankDirs(*cut, "/c"), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("`mp_rank_01`"), Not(HasSubstr("mp_rank_00")))));
  const auto ancient = With({"mp_rank_00/model_rng.pt", "mp_rank_00_000/optim.pt"});
  EXPECT_THAT(ListRankDirs(*ancient, "/c"), IsError(ErrorCode::kUnsupported, HasSubstr("2022")));
  EXPECT_THAT(ListRankDirs(*With({"a"}), "/c"), IsError(ErrorCode::kIncomplete, HasSubstr("mp_rank_00")));
}

}  // namespace
}  // namespace crossdock::formats::mp_rank
