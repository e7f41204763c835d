// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/bucket_keys.h"

#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kStart = "optimizer.distributed.dp_group_idx_3.gbuf_idx_1.dtype_(torch.bfloat16, torch.float32).bucket_idx_2.";

Catalog With(const std::vector<std::string>& names, DType dtype = DType::kF32, const Shape& shape = {7}) {
  Catalog catalog;
  for (const std::string& name : names) catalog.entries.push_back({name, Slot::kParam, dtype, shape, {}});
  catalog.SortEntries();
  return catalog;
}

std::string Key(std::int64_t bucket, std::string_view state) {
  return "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_" + std::to_string(bucket) + "." + std::string(state);
}

TEST(BucketKeysTest, AKeySaysWhereItsBufferLies) {
  ASSERT_OK_AND_ASSIGN(const BucketKey key, ParseBucketKey(std::string(kStart) + "exp_avg_sq"));
  EXPECT_EQ(key.group, 3);
  EXPECT_EQ(key.buffer, 1);
  EXPECT_EQ(key.bucket, 2);
  EXPECT_EQ(key.dtypes, "(torch.bfloat16, torch.float32)");
  EXPECT_EQ(key.state, "exp_avg_sq");
  EXPECT_EQ(key.chained, -1);
  EXPECT_TRUE(key.dtypes.starts_with(BufferDTypePrefix(DType::kBF16)));
  ASSERT_OK_AND_ASSIGN(const BucketKey member, ParseBucketKey("chained_1." + std::string(kStart) + "param"));
  EXPECT_EQ(member.chained, 1);
}

TEST(BucketKeysTest, RefusesOtherKeysByName) {
  for (const char* name : {"optimizer.distributed.dp_group_idx_x.gbuf_idx_1", "optimizer.distributed.dp_group_idx_0.param_state", "optimizer.distributed.dp_group_idx_-1.gbuf_idx_0.dtype_(a, b).bucket_idx_0.param",
                           "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(a, b).bucket_idx_99999999999999999999.param"}) {
    EXPECT_THAT(ParseBucketKey(name), IsError(ErrorCode::kCorrupt, HasSubstr(name)));
  }
}

TEST(BucketKeysTest, FindsEveryBucketOfEveryState) {
  const Catalog catalog = With({Key(0, "param"), Key(1, "param"), Key(0, "exp_avg"), Key(1, "exp_avg"), Key(0, "exp_avg_sq"), Key(1, "exp_avg_sq"), "embedding.word_embeddings.weight"});
  ASSERT_OK_AND_ASSIGN(const StoredBuffers buffers, FindBuffers(catalog));
  ASSERT_EQ(buffers.size(), 1U);
  const StoredBuffer& buffer = buffers.begin()->second;
  for (std::size_t s = 0; s < kBucketStates.size(); ++s) {
    ASSERT_EQ(buffer.entries[s].size(), 2U);
    for (std::size_t k = 0; k < 2; ++k) EXPECT_EQ(catalog.entries[static_cast<std::size_t>(buffer.entries[s][k])].name, Key(static_cast<std::int64_t>(k), kBucketStates[s]));
  }
}

/// Muon for matrices, a distributed Adam for the rest: which parameters that rest is, nothing here tells.
TEST(BucketKeysTest, RefusesBucketsBesideStatesByParameter) {
  const std::string other = "chained_1.";
  EXPECT_THAT(FindBuffers(With({"chained_0.optimizer.state.momentum_buffer.decoder.layers.mlp.linear_fc2.weight", other + Key(0, "param"), other + Key(0, "exp_avg"), other + Key(0, "exp_avg_sq")})),
              IsError(ErrorCode::kUnsupported, HasSubstr("several optimizers")));
}

TEST(BucketKeysTest, RefusesWhatIsNoWholeAdamState) {
  EXPECT_THAT(FindBuffers(With({Key(0, "param"), Key(0, "exp_avg")})), IsError(ErrorCode::kIncomplete, HasSubstr("exp_avg_sq")));
  EXPECT_THAT(FindBuffers(With({Key(1, "param"), Key(1, "exp_avg"), Key(1, "exp_avg_sq")})), IsError(ErrorCode::kIncomplete, HasSubstr("missing")));
  EXPECT_THAT(FindBuffers(With({Key(0, "momentum_buffer")})), IsError(ErrorCode::kUnsupported, HasSubstr("no state of Adam")));
  EXPECT_THAT(FindBuffers(With({Key(0, "param")}, DType::kI16)), IsError(ErrorCode::kUnsupported, HasSubstr("store_param_remainders")));
  EXPECT_THAT(FindBuffers(With({Key(0, "param")}, DType::kF32, {2, 3})), IsError(ErrorCode::kCorrupt, HasSubstr("not flat")));
  EXPECT_THAT(FindBuffers(With({"chained_2." + Key(0, "param")})), IsError(ErrorCode::kUnsupported, HasSubstr("more than two optimizers")));
  EXPECT_THAT(ParseBucketKey("chain_0." + Key(0, "param")), IsError(ErrorCode::kCorrupt, HasSubstr("chain_0")));
}

TEST(BucketKeysTest, KeepsTwoOptimizersApart) {
  std::vector<std::string> names;
  for (const std::string_view state : kBucketStates) {
    names.push_back("chained_0." + Key(0, state));
    names.push_back("chained_1." + Key(0, state));
  }
  ASSERT_OK_AND_ASSIGN(const StoredBuffers buffers, FindBuffers(With(names)));
  ASSERT_EQ(buffers.size(), 2U);
  EXPECT_EQ(buffers.begin()->first.chained, 0);
  EXPECT_EQ(buffers.rbegin()->first.chained, 1);
  EXPECT_EQ(GroupName({1, 3, 0}), "chained_1.optimizer.distributed.dp_group_idx_3");
  EXPECT_EQ(GroupName({-1, 3, 0}), "optimizer.distributed.dp_group_idx_3");
}

}  // namespace
}  // namespace crossdock::dialects::mcore
