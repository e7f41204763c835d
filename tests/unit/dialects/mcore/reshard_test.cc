// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "dialects/mcore/mcore_dialect.h"
#include "dialects/mcore/random_state.h"
#include "fmt/format.h"
#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

TargetOptions Layout(int tp, int pp) {
  TargetOptions options;
  options.layout.tp = tp;
  options.layout.pp = pp;
  return options;
}

TEST(ReshardTest, TensorsStayAndChunksFollowTheLayout) {
  for (const bool stacked : {true, false}) {
    const Catalog source = McoreSource("qwen3", TinyArgs(4), stacked, false, 56, true);
    for (const int tp : {1, 2, 4}) {
      for (const int pp : {1, 2, 4}) {
        ASSERT_OK_AND_ASSIGN(const TargetState target, Reshard(source, Layout(tp, pp)));
        ASSERT_EQ(target.catalog.entries.size(), source.entries.size());
        std::set<std::int32_t> shards;
        for (std::size_t i = 0; i < source.entries.size(); ++i) {
          const Entry& entry = target.catalog.entries[i];
          EXPECT_EQ(entry.name, source.entries[i].name);
          EXPECT_EQ(entry.shape, source.entries[i].shape);  // padding rows too
          EXPECT_EQ(target.exprs[i]->op, expr::Op::kLeaf);
          std::vector<Box> boxes;
          for (const Chunk& chunk : entry.chunks) {
            boxes.push_back(chunk.box);
            shards.insert(chunk.shard);
          }
          EXPECT_THAT(CheckCover(entry.shape, boxes), IsOk()) << entry.name;
        }
        EXPECT_EQ(static_cast<int>(shards.size()), tp * pp);
      }
    }
  }
}

TEST(ReshardTest, TheStoredIterationNamesTheTarget) {
  Catalog source = McoreSource("qwen3", TinyArgs(4), true, false, 56, true);
  source.step = 25;
  ASSERT_OK_AND_ASSIGN(const TargetState target, Reshard(source, Layout(1, 1)));
  EXPECT_EQ(target.unit_name, "iter_0000020");
  EXPECT_THAT(target.notices, ::testing::Contains(HasSubstr("named for step 25, but its common state says iteration 20")));
}

TEST(ReshardTest, ChunksAreThoseOfAConversionFromTheHub) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("qwen2", TinyConfig("qwen2", 4)));
  TargetOptions options = Layout(2, 2);
  ASSERT_OK_AND_ASSIGN(const TargetState written, WriteHub(hub, options));
  ASSERT_OK_AND_ASSIGN(const TargetState again, Reshard(written.catalog, options));
  for (std::size_t i = 0; i < written.catalog.entries.size(); ++i) {
    std::set<std::pair<std::int32_t, Box>> a;
    std::set<std::pair<std::int32_t, Box>> b;
    for (const Chunk& chunk : written.catalog.entries[i].chunks) a.emplace(chunk.shard, chunk.box);
    for (const Chunk& chunk : again.catalog.entries[i].chunks) b.emplace(chunk.shard, chunk.box);
    EXPECT_EQ(a, b) << written.catalog.entries[i].name;
  }
}

/// Under virtual stages a rank holds layers that do not follow each other, embedding and head where the chunks put them.
TEST(ReshardTest, ChunksFollowTheStageMap) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("qwen2", TinyConfig("qwen2", 5)));
  TargetOptions options;
  options.layout.pp = 2;
  options.layout.pipeline_layout = "Et|t*2||t*2L";
  ASSERT_OK_AND_ASSIGN(const TargetState written, WriteHub(hub, options));
  ASSERT_OK_AND_ASSIGN(const TargetState again, Reshard(written.catalog, options));
  EXPECT_EQ(written.stages.chunks, again.stages.chunks);
  const std::vector<std::int32_t> stage_of = {0, 1, 1, 1, 1};
  for (const TargetState* target : {&written, &again}) {
    const Entry* matrix = FindEntry(target->catalog, "decoder.layers.mlp.linear_fc1.weight");
    ASSERT_NE(matrix, nullptr);
    for (const Chunk& chunk : matrix->chunks) EXPECT_EQ(chunk.shard, stage_of[static_cast<std::size_t>(chunk.box.offsets[0])]);
    EXPECT_EQ(FindEntry(target->catalog, "embedding.word_embeddings.weight")->chunks[0].shard, 0);
    EXPECT_EQ(FindEntry(target->catalog, "output_layer.weight")->chunks[0].shard, 1);
    EXPECT_EQ(FindEntry(target->catalog, "decoder.final_layernorm.weight")->chunks[0].shard, 1);
  }
  options.layout = {};
  options.layout.pp = 2;
  options.layout.vpp = 2;
  ASSERT_OK_AND_ASSIGN(const HubState even, HfHub("qwen2", TinyConfig("qwen2", 4)));
  ASSERT_OK_AND_ASSIGN(const TargetState interleaved, WriteHub(even, options));
  for (const Chunk& chunk : FindEntry(interleaved.catalog, "decoder.layers.mlp.linear_fc1.weight")->chunks) EXPECT_EQ(chunk.shard, chunk.box.offsets[0] % 2);
}

std::int64_t RandomStatesIn(const TargetState& target) {
  return std::ranges::count_if(target.catalog.objects, [](const auto& item) { return item.first.starts_with("object:rng_state/"); });
}

std::string WhyNotCarried(const TargetState& target) {
  const auto left = std::ranges::find(target.left_out, "rng_state", &LeftOut::name);
  return left == target.left_out.end() ? "" : fmt::format("{} of them: {}", left->count, left->reason);
}

TargetOptions With(TargetOptions options, const Catalog& source) {
  options.random = ReadRandomStates(source, {});
  return options;
}

/// Random states are kept when the division is the same, however it is said.
TEST(ReshardTest, ALayoutSaidInAnotherWayIsTheSame) {
  Value args = TinyArgs(4);
  args.Set("pipeline_model_parallel_size", 2);
  args.Set("pipeline_model_parallel_layout", "Ett|ttL");
  Catalog source = McoreSource("llama", args);
  for (const int stage : {0, 1}) {
    for (const int rank : {0, 1}) source.objects["object:" + RandomStateKey(stage, 2, rank, 2)] = Value(5);
  }
  ASSERT_OK_AND_ASSIGN(const TargetState same, Reshard(source, With(Layout(2, 2), source)));
  EXPECT_EQ(RandomStatesIn(same), 4);
  EXPECT_EQ(same.random_states, 4);
  EXPECT_EQ(WhyNotCarried(same), "");
  EXPECT_NE(same.catalog.objects.at("common").Find("args")->as_opaque()->state->GetBool("no_save_rng"), true);
  TargetOptions other = With(Layout(2, 2), source);
  other.layout.vpp = 2;
  ASSERT_OK_AND_ASSIGN(const TargetState changed, Reshard(source, other));
  EXPECT_EQ(RandomStatesIn(changed), 0);
  EXPECT_THAT(WhyNotCarried(changed), HasSubstr("4 of them: random states belong to the ranks of the run"));
  EXPECT_EQ(changed.catalog.objects.at("common").Find("args")->as_opaque()->state->GetBool("no_save_rng"), true);
}

TEST(ReshardTest, UnknownKeysSurviveWhole) {
  Catalog source = McoreSource("llama", TinyArgs());
  AddEntry(&source, "adapter.something.weight", DType::kF16, {7, 3});
  source.SortEntries();
  ASSERT_OK_AND_ASSIGN(const TargetState target, Reshard(source, Layout(2, 1)));
  const Entry* entry = FindEntry(target.catalog, "adapter.something.weight");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->dtype, DType::kF16);
  ASSERT_EQ(entry->chunks.size(), 1U);
  EXPECT_EQ(entry->chunks[0].box, Box::Whole({7, 3}));
}

TEST(ReshardTest, ArgumentsSayTheNewLayout) {
  Catalog source = McoreSource("llama", TinyArgs(4), true, false, 56, true);
  source.object_refs.push_back({"rng_state/shard_0.0_1.2", 0, {0, 100}});
  source.object_refs.push_back({"decoder.layers.mlp.linear_fc1._extra_state/shard_0_4", 0, {0, 100}});
  source.objects["object:kept/shard_0_1"] = Value(5);
  ASSERT_OK_AND_ASSIGN(const TargetState target, Reshard(source, With(Layout(4, 2), source)));
  const Value& args = *target.catalog.objects.at("common").Find("args")->as_opaque()->state;
  EXPECT_EQ(args.GetInt("tensor_model_parallel_size"), 4);
  EXPECT_EQ(args.GetInt("pipeline_model_parallel_size"), 2);
  EXPECT_EQ(args.GetBool("no_save_rng"), true);
  EXPECT_EQ(args.GetInt("hidden_size"), 16);
  EXPECT_EQ(target.catalog.objects.at("common").GetInt("opt_param_scheduler.num_steps"), 56);
  EXPECT_TRUE(target.catalog.objects.contains("object:kept/shard_0_1"));
  EXPECT_TRUE(target.catalog.objects.contains("object:decoder.layers.mlp.linear_fc1._extra_state/shard_0_4"));
  EXPECT_TRUE(std::any_of(target.left_out.begin(), target.left_out.end(), [](const LeftOut& l) { return l.name.starts_with("rng_state"); }));
  EXPECT_EQ(target.unit_name, "iter_0000020");
}

TEST(ReshardTest, ExtraStatesThatAnOlderRunLacksAreMade) {
  Catalog source = McoreSource("qwen3", TinyArgs(4));
  ASSERT_OK_AND_ASSIGN(const TargetState local, Reshard(source, Layout(2, 1)));
  for (const auto& [name, value] : local.catalog.objects) EXPECT_THAT(name, ::testing::Not(HasSubstr("_extra_state")));
  source.object_refs.push_back({"decoder.layers.mlp.linear_fc1._extra_state/shard_0_4", 0, {0, 100}});
  ASSERT_OK_AND_ASSIGN(const TargetState target, Reshard(source, Layout(2, 1)));
  for (const char* name : {"decoder.final_layernorm._extra_state/shard_0_1", "decoder.layers.self_attention.q_layernorm._extra_state/shard_3_4",
                           "decoder.layers.mlp.linear_fc1._extra_state/shard_0_4", "decoder.layers.mlp.linear_fc1._extra_state/shard_2_4"}) {
    EXPECT_TRUE(target.catalog.objects.contains(std::string("object:") + name)) << name;
  }
  EXPECT_THAT(target.notices, ::testing::Contains(HasSubstr("25 _extra_state objects")));  // 4 linear layers, 2 norms a layer, the final norm
}

TEST(ReshardTest, WhatDoesNotDivideIsRefused) {
  const Catalog source = McoreSource("llama", TinyArgs(4));
  EXPECT_THAT(Reshard(source, Layout(3, 1)), IsError(ErrorCode::kUsage, HasSubstr("--tp 3 for num_attention_heads")));
  EXPECT_THAT(Reshard(source, Layout(1, 3)), IsError(ErrorCode::kUsage, HasSubstr("--pipeline-layers 2,1,1")));
}

TEST(ReshardTest, HeadsAreWeighedNotRows) {
  Value args = TinyArgs(4);
  args.Set("num_attention_heads", Value(3));  // as many rows as before: only the arguments know that no rank gets whole heads
  args.Set("num_query_groups", Value(3));
  const Catalog source = McoreSource("llama", TinyArgs(4));
  Catalog odd = source;
  Value common = odd.objects.at("common");
  common.Set("args", args);
  odd.objects["common"] = common;
  EXPECT_THAT(Reshard(odd, Layout(1, 2)), IsOk());
  EXPECT_THAT(Reshard(odd, Layout(2, 1)), IsError(ErrorCode::kUsage, HasSubstr("--tp of 1, 3")));
}

TEST(ReshardTest, AVocabularyThatMegatronPaddedIsPaddedForTheTarget) {
  Value args = TinyArgs(4);                                  // 50 words, saved with two tensor-parallel ranks
  args.Set("padded_vocab_size", Value(256));
  const Catalog source = McoreSource("llama", args, true, false, 256, true);
  for (const auto& [tp, rows] : {std::pair{1, 128}, {2, 256}, {4, 512}}) {
    ASSERT_OK_AND_ASSIGN(const TargetState target, Reshard(source, Layout(tp, 1)));
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < target.catalog.entries.size(); ++i) {
      const Entry& entry = target.catalog.entries[i];
      EXPECT_EQ(target.exprs[i]->shape, entry.shape) << entry.name;
      if (!entry.name.ends_with("word_embeddings.weight") && !entry.name.ends_with("output_layer.weight")) continue;
      EXPECT_EQ(entry.shape[0], rows) << entry.name << " for " << tp;
      ++seen;
    }
    EXPECT_EQ(seen, 8);                                      // with masters and two moments
    EXPECT_EQ(target.catalog.objects.at("common").Find("args")->as_opaque()->state->GetInt("padded_vocab_size"), rows);
    EXPECT_EQ(std::ranges::any_of(target.notices, [](const std::string& n) { return n.find("as Megatron pads it for") != std::string::npos; }), tp != 2);
  }
  args.Set("make_vocab_size_divisible_by", Value(64));       // then 256 rows were not computed for two ranks: they are somebody's wish
  ASSERT_OK_AND_ASSIGN(const TargetState kept, Reshard(McoreSource("llama", args, true, false, 256, true), Layout(4, 1)));
  EXPECT_EQ(FindEntry(kept.catalog, "output_layer.weight")->shape[0], 256);
}

TEST(ReshardTest, OfARunConfigArgumentsAreMade) {
  Catalog source = McoreSource("llama", TinyArgs(4));
  Value common = source.objects.at("common");
  for (const char* absent : {"args", "num_floating_point_operations_so_far"}) common.Erase(absent);
  source.objects["common"] = std::move(common);
  Value model = TinyArgs(4);
  model.Set("_target_", Value("megatron.bridge.X"));
  model.Set("cross_entropy_fusion_impl_of_bridge", Value(true));
  Value whole = Value::MakeDict();
  whole.Set("model", std::move(model));
  source.objects["run_config.yaml"] = std::move(whole);
  source.objects["train_state.pt"] = Json(R"({"step": 20, "consumed_train_samples": 161, "skipped_train_samples": 3, "consumed_valid_samples": 16, "floating_point_operations_so_far": 9000})");
  ASSERT_OK_AND_ASSIGN(const TargetState target, Reshard(source, Layout(4, 2)));
  const Value& made = target.catalog.objects.at("common");
  const Value& args = *made.Find("args")->as_opaque()->state;
  EXPECT_EQ(args.GetInt("num_layers"), 4);
  EXPECT_EQ(args.GetInt("tensor_model_parallel_size"), 4);
  EXPECT_EQ(args.GetInt("consumed_train_samples"), 161);
  EXPECT_EQ(args.GetInt("skipped_train_samples"), 3);
  EXPECT_EQ(args.GetInt("consumed_valid_samples"), 16);
  EXPECT_EQ(made.GetInt("num_floating_point_operations_so_far"), 9000);
  EXPECT_EQ(args.Find("cross_entropy_fusion_impl_of_bridge"), nullptr);
  EXPECT_THAT(target.load_line.front(), HasSubstr("--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2"));
  EXPECT_THAT(ReadHub(target.catalog, {}), IsOk());
}

TEST(ReshardTest, BucketsHoldUnderTheirOwnLayoutOnly) {
  Catalog source = McoreSource("llama", TinyArgs(4));
  AddEntry(&source, "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(a, b).bucket_idx_0.param", DType::kF32, {1000});
  source.SortEntries();
  EXPECT_THAT(Reshard(source, Layout(2, 1)), IsOk());
  EXPECT_THAT(Reshard(source, Layout(2, 2)), IsError(ErrorCode::kUnsupported, HasSubstr("dp_reshardable")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
