// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/bucket_view.h"

#include <algorithm>
#include <map>

#include "dialects/mcore/keys.h"
#include "result_matchers.h"
#include "unit/dialects/mcore/mcore_samples.h"
#include "unit/dialects/mcore/row_values.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

/// A model of two layers with only an embedding [8, 4], linear_proj [4, 6] and a final norm [4], by two tensor ranks and
/// two stages. The first stage: the embedding's half (16) after layer 0's half (12); the second: layer 1's and the norm.
struct Sample {
  Catalog catalog;
  std::map<std::string, Value> objects;

  [[nodiscard]] Result<BucketState> Read() const {
    return ReadBuckets(catalog, [this](const ObjectRef& ref) -> Result<Value> { return objects.at(ref.name); });
  }
  Entry& Bucket(std::int64_t group, std::string_view state) {
    return *std::ranges::find_if(catalog.entries, [&](const Entry& e) {
      return e.name.find("dp_group_idx_" + std::to_string(group) + ".") != std::string::npos && e.name.ends_with("." + std::string(state));
    });
  }
};

Chunk At(std::int64_t from, std::int64_t to) {
  Chunk chunk;
  chunk.box.offsets = Dims{from};
  chunk.box.sizes = Dims{to - from};
  return chunk;
}

Sample Make(std::string_view args_json = R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "data_parallel_size": 1, "swiglu": true})") {
  Sample sample;
  const auto model = [&](const char* name, Shape shape) { sample.catalog.entries.push_back({name, Slot::kParam, DType::kBF16, shape, {}}); };
  model("embedding.word_embeddings.weight", {8, 4});
  model("decoder.layers.self_attention.linear_proj.weight", {2, 4, 6});
  model("decoder.final_layernorm.weight", {4});
  model("output_layer.weight", {8, 4});
  for (std::int64_t group = 0; group < 4; ++group) {
    const std::string start = "optimizer.distributed.dp_group_idx_" + std::to_string(group);
    // First stage: linear_proj [4, 3] at 0, embedding [4, 4] at 64. Last: output [4, 4] at 0, norm [4] at 64, linear_proj at 128.
    const bool last = group >= 2;
    const std::int64_t size = last ? 128 + 12 : 64 + 16;
    const std::vector<Chunk> chunks = last ? std::vector{At(0, 16), At(16, 64), At(64, 68), At(68, 128), At(128, 140)} : std::vector{At(0, 12), At(12, 64), At(64, 80)};
    for (const char* state : {"param", "exp_avg", "exp_avg_sq"}) {
      sample.catalog.entries.push_back({start + ".gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0." + state, Slot::kParam, DType::kF32, {size}, chunks});
    }
    const auto object = [&](const char* what, Value value) {
      const std::string name = start + "." + what + "/shard_0_1";
      sample.catalog.object_refs.push_back({name, 0, {}});
      sample.objects[name] = Value::MakeList({std::move(value)});
    };
    const auto sizes = [&](std::int64_t n) {
      const Value key = Value::MakeTuple({Value(DType::kBF16), Value(DType::kF32)});
      return Value::MakeList({Value::MakeDict({{key, Value::MakeList({Value(n)})}})});
    };
    object("per_bucket_numel", sizes(last ? 256 : 128));
    object("per_bucket_numel_unpadded", sizes(size));
    Value groups = Value::MakeDict();
    groups.Set("param_groups", Value::MakeList({Json(R"({"wd_mult": 1.0, "step": 7})"), Json(R"({"wd_mult": 0.0, "step": 7})")}));
    object("optimizer", std::move(groups));
  }
  sample.catalog.SortEntries();
  Value common = Value::MakeDict();
  common.Set("args", Namespace(Json(args_json)));
  sample.catalog.objects["common"] = std::move(common);
  return sample;
}

/// leaf * 1,000,000 + element, of one state of one group.
std::int64_t Where(const Sample& sample, std::int64_t group, std::string_view state, std::int64_t element) {
  const std::string name = "optimizer.distributed.dp_group_idx_" + std::to_string(group) + ".gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0." + std::string(state);
  return static_cast<std::int64_t>(sample.catalog.Find(name)) * 1'000'000 + element;
}

TEST(BucketViewTest, PutsRanksStagesAndLayersTogether) {
  const Sample sample = Make();
  ASSERT_TRUE(HasBuckets(sample.catalog));
  ASSERT_OK_AND_ASSIGN(const BucketState state, sample.Read());
  EXPECT_EQ(state.entries.size(), 12U);
  EXPECT_EQ(state.param_groups.size(), 2U) << "each group once, although every rank stores it";
  for (std::size_t i = 0; i < state.entries.size(); ++i) {
    const TensorKey key = ParseTensorKey(state.entries[i].name);
    const std::int32_t model = sample.catalog.Find(key.model_key);
    ASSERT_GE(model, 0) << state.entries[i].name;
    EXPECT_EQ(state.entries[i].shape, sample.catalog.entries[static_cast<std::size_t>(model)].shape) << state.entries[i].name;
    const std::vector<std::int64_t> values = RowValues(state.exprs[i]);
    if (state.entries[i].name == "optimizer.state.exp_avg.decoder.layers.self_attention.linear_proj.weight") {
      EXPECT_EQ(values[0], Where(sample, 0, "exp_avg", 0)) << "layer 0, columns of rank 0";
      EXPECT_EQ(values[5], Where(sample, 1, "exp_avg", 2)) << "layer 0, last column of rank 1";
      EXPECT_EQ(values[24 + 6], Where(sample, 2, "exp_avg", 128 + 3)) << "layer 1, second row";
    }
    if (state.entries[i].name == "optimizer.state.param.embedding.word_embeddings.weight") {
      EXPECT_EQ(values[0], Where(sample, 0, "param", 64));
      EXPECT_EQ(values[16], Where(sample, 1, "param", 64)) << "rows of rank 1";
    }
    if (state.entries[i].name == "optimizer.state.exp_avg_sq.decoder.final_layernorm.weight") {
      EXPECT_EQ(values[3], Where(sample, 2, "exp_avg_sq", 67)) << "every rank holds it: the first one's";
    }
  }
}

TEST(BucketViewTest, RefusesArgumentsThatAreNotTheRuns) {
  constexpr std::string_view kRun = R"({"tensor_model_parallel_size": %, "pipeline_model_parallel_size": %, "data_parallel_size": %})";
  const auto with = [&](const char* tp, const char* pp, const char* dp) {
    std::string text(kRun);
    for (const char* number : {tp, pp, dp}) text.replace(text.find('%'), 1, number);
    return Make(text).Read();
  };
  EXPECT_THAT(with("2", "2", "1"), IsOk());
  EXPECT_THAT(with("1", "2", "1"), IsError(ErrorCode::kCorrupt, HasSubstr("do not fit the layout that the run's arguments say")));
  EXPECT_THAT(with("4", "1", "1"), IsError(ErrorCode::kCorrupt, HasSubstr("4 tensor-parallel ranks")));
  EXPECT_THAT(with("1", "4", "1"), IsError(ErrorCode::kUsage, HasSubstr("2 layers")));
  EXPECT_THAT(with("2", "1", "1"), IsError(ErrorCode::kCorrupt, HasSubstr("dp_group_idx_0")));
  EXPECT_THAT(with("2", "2", "3"), IsError(ErrorCode::kCorrupt, HasSubstr("3 ranks that share it")));
}

TEST(BucketViewTest, NamesTheArgumentsThatAreMissing) {
  EXPECT_THAT(Make(R"({"pipeline_model_parallel_size": 2})").Read(), IsError(ErrorCode::kIncomplete, HasSubstr("tensor_model_parallel_size")));
  EXPECT_THAT(Make(R"({"tensor_model_parallel_size": 2})").Read(), IsError(ErrorCode::kIncomplete, HasSubstr("pipeline_model_parallel_size")));
  Sample sample = Make();
  sample.catalog.objects.clear();
  EXPECT_THAT(sample.Read(), IsError(ErrorCode::kIncomplete, HasSubstr("`args` in the common state")));
  EXPECT_THAT(Make(R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "expert_model_parallel_size": 2})").Read(), IsOk());  // it has no experts
  for (const char* more : {R"("num_distributed_optimizer_instances": 2)", R"("moe_use_legacy_grouped_gemm": true)", R"("expert_tensor_parallel_size": 1)"}) {
    const std::string args = std::string(R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, )") + more + "}";
    EXPECT_THAT(Make(args).Read(), IsError(ErrorCode::kUnsupported, HasSubstr("does not read"))) << more;
  }
}

TEST(BucketViewTest, RefusesSizesAndPiecesThatDoNotAgree) {
  Sample longer = Make();
  longer.Bucket(2, "param").shape = {141};
  EXPECT_THAT(longer.Read(), IsError(ErrorCode::kCorrupt, HasSubstr("dp_group_idx_2")));
  Sample other_state = Make();
  other_state.Bucket(1, "exp_avg").shape = {81};
  EXPECT_THAT(other_state.Read(), IsError(ErrorCode::kCorrupt, HasSubstr("differ in size")));
  Sample pieces = Make();
  pieces.Bucket(0, "exp_avg_sq").chunks = {At(0, 13), At(13, 64), At(64, 80)};
  EXPECT_THAT(pieces.Read(), IsError(ErrorCode::kCorrupt, HasSubstr("a piece at element 12")));
  Sample recorded = Make();
  recorded.objects["optimizer.distributed.dp_group_idx_0.per_bucket_numel_unpadded/shard_0_1"] = Json("[[]]");
  EXPECT_THAT(recorded.Read(), IsError(ErrorCode::kCorrupt, HasSubstr("per_bucket_numel_unpadded")));
  Sample groups = Make();
  groups.objects["optimizer.distributed.dp_group_idx_3.optimizer/shard_0_1"] = Json("[{}]");
  EXPECT_THAT(groups.Read(), IsError(ErrorCode::kIncomplete, HasSubstr("parameter groups")));
}

TEST(BucketViewTest, RefusesExpertsThatItsBucketsDoNotHold) {
  const auto with = [](const char* args) {
    Sample sample = Make(args);
    sample.catalog.entries.push_back({"decoder.layers.mlp.experts.experts.linear_fc1.weight", Slot::kParam, DType::kBF16, {2, 2, 4, 4}, {}});
    sample.catalog.SortEntries();
    return sample.Read();
  };
  EXPECT_THAT(with(R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2})"), IsError(ErrorCode::kCorrupt, HasSubstr("dp_group_idx_0.gbuf_idx_0")));
  // With expert parallelism two optimizers are chained, and this is one.
  EXPECT_THAT(with(R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "expert_model_parallel_size": 2})"),
              IsError(ErrorCode::kCorrupt, HasSubstr("chained_0.optimizer.distributed.dp_group_idx_0")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
