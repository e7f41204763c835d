// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dialects/mcore/extra_state.h"
#include "dialects/mcore/mcore_dialect.h"
#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Common(const TargetState& target) { return ToJson(target.catalog.objects.at("common"), 0); }
const Value& Args(const TargetState& target) { return *target.catalog.objects.at("common").Find("args")->as_opaque()->state; }

TEST(WriteHubTest, HoldsWhatMegatronItselfWrote) {
  const Value golden = Golden();
  const Value* expected = golden.FindPath("adam_tp2_pp2");
  ASSERT_NE(expected, nullptr);
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("qwen3", TinyConfig("qwen3"), true));
  TargetOptions options = WithAdamSettings();
  options.layout.tp = 2;
  options.layout.pp = 2;
  options.layout.first_stage_layers = 1;
  options.vocab_divisor = 4;
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
  const Value::Dict* tensors = expected->Find("tensors")->as_dict();
  EXPECT_EQ(target.catalog.entries.size(), tensors->items.size());
  for (const auto& [key, info] : tensors->items) {
    const Entry* entry = FindEntry(target.catalog, *key.as_string());
    ASSERT_NE(entry, nullptr) << *key.as_string();
    EXPECT_EQ(DTypeName(entry->dtype), info.GetString("dtype")) << *key.as_string();
    Shape shape;
    for (const Value& size : *info.Find("shape")->as_sequence()) shape.push_back(*size.as_int());
    EXPECT_EQ(entry->shape, shape) << *key.as_string();
  }
  EXPECT_EQ(target.unit_name, "iter_0000020");
  EXPECT_EQ(Args(target).GetInt("padded_vocab_size"), expected->GetInt("padded_vocab_size"));
  EXPECT_EQ(target.catalog.objects.at("common").GetInt("iteration"), expected->GetInt("iteration"));
  // As in that checkpoint: gate and up cut on their own, one part a layer and tensor-parallel rank.
  const Entry* fc1 = FindEntry(target.catalog, "decoder.layers.mlp.linear_fc1.weight");
  ASSERT_EQ(fc1->chunks.size(), 12U);
  std::vector<Box> boxes;
  std::vector<std::int32_t> shards;
  for (const Chunk& chunk : fc1->chunks) {
    if (chunk.box.offsets[0] == 1) boxes.push_back(chunk.box);
    if (chunk.box.offsets[0] == 1) shards.push_back(chunk.shard);
  }
  std::sort(boxes.begin(), boxes.end());
  EXPECT_THAT(boxes, ::testing::ElementsAre(Box{{1, 0, 0}, {1, 12, 16}}, Box{{1, 12, 0}, {1, 12, 16}}, Box{{1, 24, 0}, {1, 12, 16}}, Box{{1, 36, 0}, {1, 12, 16}}));
  EXPECT_THAT(shards, ::testing::UnorderedElementsAre(2, 3, 2, 3));  // layer 1 is on the second stage
}

TEST(WriteHubTest, ChunksCoverEveryTensorUnderEveryLayout) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub(family, TinyConfig(family, 4)));
    for (const int tp : {1, 2, 4}) {
      for (const int pp : {1, 2, 3}) {
        TargetOptions options;
        options.layout.tp = tp;
        options.layout.pp = pp;
        if (pp == 3) options.layout.pipeline_layers = {2, 1, 1};
        ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
        std::set<std::int32_t> shards;
        for (const Entry& entry : target.catalog.entries) {
          std::vector<Box> boxes;
          for (const Chunk& chunk : entry.chunks) {
            boxes.push_back(chunk.box);
            shards.insert(chunk.shard);
          }
          EXPECT_THAT(CheckCover(entry.shape, boxes), IsOk()) << entry.name << " tp " << tp << " pp " << pp;
        }
        EXPECT_EQ(static_cast<int>(shards.size()), tp * pp);
        EXPECT_EQ(*shards.rbegin(), tp * pp - 1);
      }
    }
  }
}

TEST(WriteHubTest, WhatIsWrittenReadsBackElementByElement) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    const Value config = TinyConfig(family);
    const Catalog source = HfSource(family, config, true);
    ASSERT_OK_AND_ASSIGN(const HubState hub, hf::ReadFullState(source, {}));
    TargetOptions options = WithAdamSettings();
    options.layout.tp = 2;
    ASSERT_OK_AND_ASSIGN(TargetState target, WriteHub(hub, options));
    target.catalog.objects["hf/config.json"] = config;
    ASSERT_OK_AND_ASSIGN(const HubState back, ReadHub(target.catalog, {}));
    ASSERT_EQ(back.tensors.size(), hub.tensors.size());
    EXPECT_EQ(back.counters, hub.counters);
    for (std::size_t i = 0; i < hub.tensors.size(); ++i) {
      EXPECT_EQ(back.tensors[i].name, hub.tensors[i].name);
      EXPECT_EQ(back.tensors[i].slot, hub.tensors[i].slot);
      EXPECT_EQ(back.tensors[i].dtype, hub.tensors[i].dtype);
      ASSERT_OK_AND_ASSIGN(const expr::Expr whole, expr::Substitute(back.tensors[i].expr, [&](int leaf) -> Result<expr::Expr> { return target.exprs[static_cast<std::size_t>(leaf)]; }));
      EXPECT_EQ(Elements(whole), Elements(hub.tensors[i].expr)) << hub.tensors[i].name;
    }
  }
}

TEST(WriteHubTest, TheSourcesPaddingStaysWhereTheLayoutAllowsIt) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(McoreSource("llama", TinyArgs(), true, false, 56, true), {}));
  TargetOptions options = WithAdamSettings();
  for (const auto& [tp, divisor, rows] : {std::tuple{2, 0, 56}, {1, 0, 56}, {2, 128, 256}, {2, 3, 54}}) {
    options.layout.tp = tp;
    options.vocab_divisor = divisor == 0 ? std::nullopt : std::optional<std::int64_t>(divisor);
    ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
    EXPECT_EQ(FindEntry(target.catalog, "embedding.word_embeddings.weight")->shape[0], rows) << tp << " " << divisor;
    EXPECT_EQ(FindEntry(target.catalog, "optimizer.state.exp_avg.output_layer.weight")->shape[0], rows);
    EXPECT_EQ(Args(target).GetInt("padded_vocab_size"), rows);
    const std::string kept = "keeps the source's 56 rows; those from 50 on are padding and become zeros";
    const auto says = [&](const std::string& notice) { return notice.find(kept) != std::string::npos; };
    EXPECT_EQ(std::ranges::any_of(target.notices, says), divisor == 0);
  }
  ASSERT_OK_AND_ASSIGN(const HubState odd, ReadHub(McoreSource("llama", TinyArgs(), true, false, 57), {}));
  Value computed = TinyArgs();                              // by Megatron, for two ranks
  ASSERT_OK_AND_ASSIGN(const HubState padded, ReadHub(McoreSource("llama", computed, true, false, 256), {}));
  for (const auto& [tp, rows] : {std::pair{1, 128}, {2, 256}}) {
    options.layout.tp = tp;
    options.vocab_divisor.reset();
    ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(padded, options));
    EXPECT_EQ(FindEntry(target.catalog, "output_layer.weight")->shape[0], rows);
  }
  computed.Set("make_vocab_size_divisible_by", Value(16));
  ASSERT_OK_AND_ASSIGN(const HubState smaller, ReadHub(McoreSource("llama", computed, true, false, 64), {}));
  options.layout.tp = 4;
  ASSERT_OK_AND_ASSIGN(const TargetState by16, WriteHub(smaller, options));
  EXPECT_EQ(FindEntry(by16.catalog, "output_layer.weight")->shape[0], 64);
  EXPECT_EQ(Args(by16).GetInt("make_vocab_size_divisible_by"), 16);
  options.layout.tp = 2;
  options.vocab_divisor.reset();
  ASSERT_OK_AND_ASSIGN(const TargetState anew, WriteHub(odd, options));  // 57 does not divide by 2
  EXPECT_EQ(FindEntry(anew.catalog, "embedding.word_embeddings.weight")->shape[0], 256);
}

TEST(WriteHubTest, TiedModelsHaveNoOutputLayer) {
  Value config = TinyConfig("qwen3");
  config.Set("tie_word_embeddings", Value(true));
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("qwen3", config));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  EXPECT_EQ(FindEntry(target.catalog, "output_layer.weight"), nullptr);
  EXPECT_EQ(Args(target).GetBool("untie_embeddings_and_output_weights"), false);
}

TEST(WriteHubTest, TensorParallelBeyondTheKeyHeads) {
  Value config = TinyConfig("llama");
  config.Set("num_attention_heads", Value(8));
  config.Set("head_dim", Value(4));
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", config));
  TargetOptions options;
  options.layout.tp = 4;  // two KV heads
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
  const Entry* qkv = FindEntry(target.catalog, "decoder.layers.self_attention.linear_qkv.weight");
  EXPECT_EQ(qkv->shape, (Shape{3, 48, 16}));
  EXPECT_EQ(qkv->chunks.front().box.sizes, (Dims{1, 12, 16}));
  options.layout.tp = 3;
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, AllOf(HasSubstr("num_key_value_heads 2"), HasSubstr("--tp 3"), HasSubstr("1, 2, 4, 8"))));
  options.layout.tp = 16;
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, HasSubstr("--tp 16")));
}

TEST(WriteHubTest, SetArgumentsDoNotContradictTheTensors) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama")));
  for (const auto& [name, value] : {std::pair{"num_layers", "7"}, {"padded_vocab_size", "51"}, {"tensor_model_parallel_size", "2"}, {"kv_channels", "5"}}) {
    TargetOptions options;
    options.set_args[name] = value;
    EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, HasSubstr(std::string("--set ") + name))) << name;
  }
  TargetOptions options;
  options.set_args = {{"num_layers", "3"}, {"seq_length", "77"}};  // the true number, and what a run may choose
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
  EXPECT_EQ(Args(target).GetInt("seq_length"), 77);
}

TEST(WriteHubTest, VocabularyPadding) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama")));
  TargetOptions options;
  options.layout.tp = 2;
  ASSERT_OK_AND_ASSIGN(const TargetState plain, WriteHub(hub, options));
  EXPECT_EQ(FindEntry(plain.catalog, "embedding.word_embeddings.weight")->shape, (Shape{256, 16}));
  EXPECT_EQ(Args(plain).GetInt("padded_vocab_size"), 256);
  EXPECT_EQ(Args(plain).GetInt("vocab_size"), 50);
  options.padded_vocab = 52;
  ASSERT_OK_AND_ASSIGN(const TargetState exact, WriteHub(hub, options));
  EXPECT_EQ(FindEntry(exact.catalog, "output_layer.weight")->shape, (Shape{52, 16}));
  options.padded_vocab = 49;
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, HasSubstr("at least 50")));
  options.padded_vocab = 51;
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, HasSubstr("multiple of 2")));
  options.padded_vocab = std::int64_t{1} << 40U;  // would plan a file of many terabytes, chunk by chunk
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, HasSubstr("at most 2147483648 rows")));
}

TEST(WriteHubTest, WeightsAloneAreARelease) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama")));
  ASSERT_OK_AND_ASSIGN(const TargetState release, WriteHub(hub, {}));
  EXPECT_EQ(release.unit_name, "release");
  EXPECT_EQ(release.catalog.side_files.back().path, "latest_checkpointed_iteration.txt");
  EXPECT_EQ(release.catalog.side_files.back().role, SideFile::Role::kMarker);
  EXPECT_EQ(release.catalog.side_files.back().bytes, "release");
  EXPECT_THAT(release.load_line.front(), ::testing::Not(HasSubstr("--no-load-optim")));
  TargetOptions options;
  options.iteration = 7;
  ASSERT_OK_AND_ASSIGN(const TargetState numbered, WriteHub(hub, options));
  EXPECT_EQ(numbered.unit_name, "iter_0000007");
  EXPECT_EQ(numbered.catalog.side_files.back().bytes, "7");
  EXPECT_EQ(numbered.catalog.objects.at("common").GetInt("iteration"), 7);
  EXPECT_THAT(numbered.load_line.front(), HasSubstr("--no-load-optim"));
  options.release = true;
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, HasSubstr("exclude")));
  for (const SideFile& file : release.catalog.side_files) {
    if (file.role == SideFile::Role::kSide) {
      EXPECT_TRUE(file.path.starts_with("hf/")) << file.path;
    }
  }
}

TEST(WriteHubTest, AdamNeedsTheSettingsThatMegatronMatchesGroupsBy) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama"), true));
  EXPECT_THAT(WriteHub(hub, {}), IsError(ErrorCode::kUsage, AllOf(HasSubstr("--set lr="), HasSubstr("--set min_lr="), HasSubstr("--set weight_decay="))));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, WithAdamSettings()));
  const Value& common = target.catalog.objects.at("common");
  const ValueList& groups = *common.FindPath("optimizer.optimizer.param_groups")->as_sequence();
  ASSERT_EQ(groups.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(groups[i].GetFloat("wd_mult"), i == 0 ? 1.0 : 0.0);
    EXPECT_EQ(groups[i].GetFloat("weight_decay"), i == 0 ? 0.1 : 0.0);
    EXPECT_EQ(groups[i].GetFloat("max_lr"), 0.001);
    EXPECT_EQ(groups[i].GetFloat("min_lr"), 1e-5);
    EXPECT_EQ(groups[i].GetInt("step"), 7);
    EXPECT_TRUE(groups[i].Find("betas")->is_tuple());
  }
  EXPECT_EQ(common.GetString("optimizer.param_state_sharding_type"), "fully_reshardable");
  EXPECT_EQ(common.GetString("content_metadata.distrib_optim_sharding_type"), "fully_reshardable");
  EXPECT_EQ(common.GetInt("opt_param_scheduler.num_steps"), 160);
  EXPECT_EQ(Args(target).GetBool("no_save_rng"), true);
  EXPECT_EQ(Args(target).GetInt("consumed_train_samples"), 160);
  EXPECT_THAT(target.load_line.front(), AllOf(HasSubstr("--bf16"), HasSubstr("--lr 0.001 --min-lr 1e-05"), HasSubstr("--override-opt_param-scheduler")));
}

TEST(WriteHubTest, SetNamesArgumentsOfMegatron) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama"), true));
  TargetOptions options = WithAdamSettings();
  options.set_args["lrr"] = "3e-4";
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, AllOf(HasSubstr("no argument of Megatron: lrr"), HasSubstr("did you mean `lr`?"))));
  options.set_args.erase("lrr");
  options.set_args["our_own_setting"] = "1";
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
  EXPECT_EQ(Args(target).GetInt("our_own_setting"), 1);
  EXPECT_THAT(target.notices, ::testing::Contains(HasSubstr("--set our_own_setting: no argument of Megatron-LM has this name")));
}

TEST(WriteHubTest, CarriedSettingsAreRestored) {
  const Catalog source = McoreSource("llama", TinyArgs(), true, false, 56, true);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  const Value& common = target.catalog.objects.at("common");
  const ValueList& groups = *common.FindPath("optimizer.optimizer.param_groups")->as_sequence();
  EXPECT_EQ(groups[0].GetFloat("lr"), 0.0009);
  EXPECT_TRUE(groups[0].Find("betas")->Equals(Value::MakeTuple({Value(0.9), Value(0.95)})));
  EXPECT_EQ(common.GetInt("opt_param_scheduler.num_steps"), 56);
  EXPECT_EQ(common.GetInt("num_floating_point_operations_so_far"), 123);
  EXPECT_THAT(target.load_line.front(), HasSubstr("--use-checkpoint-opt_param-scheduler"));
  EXPECT_EQ(target.unit_name, "iter_0000020");
}

TEST(WriteHubTest, MomentsWithoutMastersTakeTheParameters) {
  Catalog source = HfSource("llama", TinyConfig("llama"), true);
  std::erase_if(source.entries, [](const Entry& e) { return e.name.starts_with("optim/master/"); });
  ASSERT_OK_AND_ASSIGN(const HubState hub, hf::ReadFullState(source, {}));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, WithAdamSettings()));
  const Entry* master = FindEntry(target.catalog, "optimizer.state.param.output_layer.weight");
  ASSERT_NE(master, nullptr);
  EXPECT_EQ(master->dtype, DType::kF32);
  EXPECT_TRUE(std::any_of(target.notices.begin(), target.notices.end(), [](const std::string& n) { return n.find("master weights") != std::string::npos; }));
}

TEST(WriteHubTest, DTypesAndKeptPatterns) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama")));
  TargetOptions options;
  options.dtype = DType::kF32;
  options.keep_dtype = {"*norm.weight"};
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
  EXPECT_EQ(FindEntry(target.catalog, "output_layer.weight")->dtype, DType::kF32);
  EXPECT_EQ(FindEntry(target.catalog, "decoder.final_layernorm.weight")->dtype, DType::kBF16);
  EXPECT_EQ(Args(target).GetBool("bf16"), false);
  options.params_from_master = true;
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kIncomplete, HasSubstr("master")));
}

TEST(WriteHubTest, ExtraStatesAreThoseOfATransformerEngineModel) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("qwen3", TinyConfig("qwen3")));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  std::set<std::string> found;
  for (const auto& [name, value] : target.catalog.objects) {
    if (name.starts_with("object:")) found.insert(name);
  }
  std::set<std::string> expected = {"object:decoder.final_layernorm._extra_state/shard_0_1"};
  for (const char* module : {"self_attention.linear_proj", "self_attention.linear_qkv", "self_attention.q_layernorm", "self_attention.k_layernorm", "mlp.linear_fc1", "mlp.linear_fc2"}) {
    for (int i = 0; i < 3; ++i) expected.insert("object:decoder.layers." + std::string(module) + "._extra_state/shard_" + std::to_string(i) + "_3");
  }
  EXPECT_EQ(found, expected);
}

TEST(WriteHubTest, LayersThatDoNotDivideAreRefused) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama", 4)));
  TargetOptions options;
  options.layout.pp = 3;
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUsage, AllOf(HasSubstr("4 layers do not divide by pp 3"), HasSubstr("--pipeline-layers 2,1,1"))));
  options.layout.pipeline_layers = {2, 1, 1};
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
  EXPECT_EQ(Args(target).GetString("pipeline_model_parallel_layout"), "Et*2|t|tL");
}

TEST(WriteHubTest, OtherConsumersAreRefusedByName) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama")));
  TargetOptions options;
  options.consumer = "loongforge";
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kUnsupported, HasSubstr("loongforge")));
}

TEST(WriteHubTest, MegatronBridgeLoadsTheCommonNamesAsIterationZero) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("llama", TinyConfig("llama")));
  TargetOptions options;
  ASSERT_OK_AND_ASSIGN(const TargetState plain, WriteHub(hub, options));
  options.consumer = "megatron-bridge";
  ASSERT_OK_AND_ASSIGN(const TargetState bridge, WriteHub(hub, options));
  EXPECT_EQ(plain.unit_name, "release");
  EXPECT_EQ(bridge.unit_name, "iter_0000000");
  ASSERT_EQ(bridge.catalog.entries.size(), plain.catalog.entries.size());
  for (std::size_t i = 0; i < plain.catalog.entries.size(); ++i) EXPECT_EQ(bridge.catalog.entries[i].name, plain.catalog.entries[i].name);
  options.iteration = 5;
  ASSERT_OK_AND_ASSIGN(const TargetState named, WriteHub(hub, options));
  EXPECT_EQ(named.unit_name, "iter_0000005");
}

TEST(WriteHubTest, TheSameInputGivesTheSameTarget) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("qwen2", TinyConfig("qwen2"), true));
  ASSERT_OK_AND_ASSIGN(const TargetState a, WriteHub(hub, WithAdamSettings()));
  ASSERT_OK_AND_ASSIGN(const TargetState b, WriteHub(hub, WithAdamSettings()));
  EXPECT_EQ(Common(a), Common(b));
  ASSERT_EQ(a.catalog.entries.size(), b.catalog.entries.size());
  EXPECT_TRUE(std::is_sorted(a.catalog.entries.begin(), a.catalog.entries.end(), [](const Entry& x, const Entry& y) { return x.name < y.name; }));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
