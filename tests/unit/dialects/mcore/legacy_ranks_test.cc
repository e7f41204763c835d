// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_ranks.h"

#include "legacy_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Rank directories that hold nothing but arguments.
Catalog Directories(const std::vector<std::string>& names, std::int64_t tp, std::int64_t pp, std::int64_t ep, std::optional<std::int64_t> etp = {}) {
  Catalog catalog;
  catalog.format = "mp_rank";
  catalog.root = "/run/iter_0000020";
  Value args = Value::MakeDict();
  args.Set("tensor_model_parallel_size", Value(tp));
  args.Set("pipeline_model_parallel_size", Value(pp));
  args.Set("expert_model_parallel_size", Value(ep));
  args.Set("expert_tensor_parallel_size", etp ? Value(*etp) : Value());
  for (const std::string& name : names) {
    Value file = Json(R"({"iteration": 20})");
    file.Set("args", Namespace(args));
    catalog.objects[name + "/model_optim_rng.pt"] = std::move(file);
  }
  return catalog;
}

TEST(LegacyRanksTest, AnAmbiguousNameIsDecidedByTheArguments) {
  const Catalog stages = Directories({"mp_rank_00_000", "mp_rank_00_001"}, 1, 2, 1);
  ASSERT_OK_AND_ASSIGN(const LegacyRanks by_stage, FindLegacyRanks(stages));
  ASSERT_EQ(by_stage.ranks.size(), 2U);
  EXPECT_EQ(by_stage.ranks[1].pipeline, 1);
  EXPECT_EQ(by_stage.ranks[1].expert, 0);

  const Catalog experts = Directories({"mp_rank_00_000", "mp_rank_00_001"}, 1, 1, 2);
  ASSERT_OK_AND_ASSIGN(const LegacyRanks by_expert, FindLegacyRanks(experts));
  ASSERT_EQ(by_expert.ranks.size(), 2U);
  EXPECT_EQ(by_expert.ranks[1].pipeline, 0);
  EXPECT_EQ(by_expert.ranks[1].expert, 1);
  EXPECT_EQ(by_expert.ep, 2);
  EXPECT_EQ(by_expert.experts, (std::vector<std::size_t>{0, 1}));
}

TEST(LegacyRanksTest, NotEveryPairOfTensorAndExpertRankExists) {

  // Expert tensor parallelism below TP: not every pair exists.
  const Catalog pairs = Directories({"mp_rank_00_000_000", "mp_rank_01_000_001", "mp_rank_00_001_000", "mp_rank_01_001_001"}, 2, 2, 2, 1);
  ASSERT_OK_AND_ASSIGN(const LegacyRanks both, FindLegacyRanks(pairs));
  ASSERT_EQ(both.ranks.size(), 4U);
  EXPECT_EQ(both.ranks[3].dir, "mp_rank_01_001_001");
  EXPECT_EQ(both.experts, (std::vector<std::size_t>{0, 1, 2, 3}));

  // What a run of 6 ranks with TP 2, EP 3, ETP 1 writes: data-parallel rank 0 of either division.
  const Catalog three = Directories({"mp_rank_00_000", "mp_rank_01_001", "mp_rank_00_002"}, 2, 1, 3, 1);
  ASSERT_OK_AND_ASSIGN(const LegacyRanks found, FindLegacyRanks(three));
  ASSERT_EQ(found.ranks.size(), 3U);
  EXPECT_EQ(found.ranks[1].dir, "mp_rank_01_001");       // one a tensor rank
  EXPECT_EQ(found.ranks[2].dir, "mp_rank_00_002");
  EXPECT_EQ(found.experts, (std::vector<std::size_t>{0, 1, 2}));

  // Tensor ranks of an expert that no directory tells apart.
  ASSERT_OK_AND_ASSIGN(const LegacyRanks overwritten, FindLegacyRanks(Directories({"mp_rank_00"}, 1, 1, 1, 2)));
  EXPECT_TRUE(overwritten.experts.empty());
}

TEST(LegacyRanksTest, MissingRanksAreNamed) {
  EXPECT_THAT(FindLegacyRanks(Directories({"mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_001"}, 2, 2, 1)), IsError(ErrorCode::kIncomplete, HasSubstr("mp_rank_01_000")));
  EXPECT_THAT(FindLegacyRanks(Directories({"mp_rank_00"}, 4, 1, 1)), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("mp_rank_01"), HasSubstr("mp_rank_03"))));
  EXPECT_THAT(FindLegacyRanks(Directories({"mp_rank_00_000", "mp_rank_01_000", "mp_rank_00_001"}, 2, 1, 2)), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("mp_rank_01_001"), HasSubstr("EP 2"))));
  EXPECT_THAT(FindLegacyRanks(Directories({}, 1, 1, 1)), IsError(ErrorCode::kIncomplete, HasSubstr("mp_rank_00/model_optim_rng.pt")));
}

TEST(LegacyRanksTest, NamesAndArgumentsThatContradictAreRefused) {
  EXPECT_THAT(FindLegacyRanks(Directories({"mp_rank_00_000"}, 1, 1, 1)), IsError(ErrorCode::kCorrupt, HasSubstr("mp_rank_00_000")));
  EXPECT_THAT(FindLegacyRanks(Directories({"mp_rank_00", "mp_rank_01"}, 1, 1, 1)), IsError(ErrorCode::kCorrupt, HasSubstr("mp_rank_01")));
  Catalog mixed = Directories({"mp_rank_00", "mp_rank_01"}, 2, 1, 1);
  mixed.objects["mp_rank_01/model_optim_rng.pt"].Set("iteration", Value(40));
  EXPECT_THAT(FindLegacyRanks(mixed), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("different iterations"), HasSubstr("40"))));
  Catalog versions = Directories({"mp_rank_00", "mp_rank_01"}, 2, 1, 1);
  versions.objects["mp_rank_01/model_optim_rng.pt"].Set("checkpoint_version", Value(1.0));
  EXPECT_THAT(FindLegacyRanks(versions), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("different versions"), HasSubstr("checkpoint_version"))));
  EXPECT_THAT(FindLegacyRanks(Directories({"mp_rank_00"}, std::int64_t{1} << 40U, 1, 1)), IsError(ErrorCode::kCorrupt, HasSubstr("parallel sizes")));
}

TEST(LegacyRanksTest, WithoutArgumentsTheNamesHaveToDo) {
  Catalog catalog = Directories({"mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"}, 2, 2, 1);
  for (auto& [name, file] : catalog.objects) file.Erase("args");
  ASSERT_OK_AND_ASSIGN(const LegacyRanks ranks, FindLegacyRanks(catalog));
  EXPECT_EQ(ranks.tp, 2);
  EXPECT_EQ(ranks.pp, 2);
}

TEST(LegacyRanksTest, NumbersOfNamesAreBounded) {
  for (const char* name : {"mp_rank_2147483647", "mp_rank_00_1048576"}) {
    Catalog catalog = Directories({name}, 1, 1, 1);
    for (auto& [file, value] : catalog.objects) value.Erase("args");
    EXPECT_THAT(FindLegacyRanks(catalog), IsError(ErrorCode::kIncomplete, HasSubstr("no rank's file"))) << name;
  }
  Catalog wide = Directories({"mp_rank_65535_65535"}, 1, 1, 1);
  for (auto& [file, value] : wide.objects) value.Erase("args");
  EXPECT_THAT(FindLegacyRanks(wide), IsError(ErrorCode::kCorrupt, HasSubstr("parallel sizes")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
