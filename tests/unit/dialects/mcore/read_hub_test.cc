// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dialects/mcore/mcore_dialect.h"
#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const HubTensor* HubTensorOf(const HubState& hub, std::string_view name, Slot slot = Slot::kParam) {
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.name == name && tensor.slot == slot) return &tensor;
  }
  return nullptr;
}

bool LeftOutNames(const HubState& hub, std::string_view text) {
  return std::any_of(hub.left_out.begin(), hub.left_out.end(), [&](const LeftOut& l) { return (l.name + ": " + l.reason).find(text) != std::string::npos; });
}

TEST(ReadHubTest, EveryFormGivesTheSameHub) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    for (const bool stacked : {true, false}) {
      for (const bool split : {true, false}) {
        const Catalog catalog = McoreSource(family, TinyArgs(), stacked, split, 56, true);
        ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(catalog, {}));
        EXPECT_EQ(hub.family->name, family);
        EXPECT_EQ(hub.optimizer, "adam");
        EXPECT_EQ(hub.tensors.size(), 4U * hub.order.size());
        const HubTensor* up = HubTensorOf(hub, "model.layers.2.mlp.up_proj.weight", Slot::kAdamNu);
        ASSERT_NE(up, nullptr);
        EXPECT_EQ(up->dtype, DType::kF32);
        EXPECT_EQ(up->shape, (Shape{24, 16}));
        const auto elements = Elements(up->expr);
        const Entry& entry = catalog.entries[static_cast<std::size_t>(elements.begin()->second.first)];
        EXPECT_THAT(entry.name, HasSubstr("optimizer.state.exp_avg_sq.decoder.layers."));
        Dims first{0, 0};
        if (!split) first[0] = 24;
        if (stacked) first.insert(0, 2);
        EXPECT_EQ(elements.at({0, 0}).second, first);
      }
    }
  }
}

TEST(ReadHubTest, PaddingIsTrimmedInEverySlot) {
  Catalog catalog = McoreSource("llama", TinyArgs(), true, false, 56, true);
  for (Entry& entry : catalog.entries) {  // the moments were padded for another layout
    if (entry.name == "optimizer.state.exp_avg.output_layer.weight") entry.shape = {64, 16};
  }
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(catalog, {}));
  for (const Slot slot : {Slot::kParam, Slot::kMaster, Slot::kAdamMu, Slot::kAdamNu}) {
    EXPECT_EQ(HubTensorOf(hub, "lm_head.weight", slot)->expr->shape, (Shape{50, 16}));
  }
}

TEST(ReadHubTest, CountersAndSettings) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(McoreSource("llama", TinyArgs(), true, false, 56, true), {}));
  EXPECT_EQ(hub.counters, (Counters{20, 7, std::nullopt, 160}));
  EXPECT_EQ(hub.extras_words, "mcore");
  EXPECT_EQ(hub.extras.GetInt("opt_param_scheduler.num_steps"), 56);
  EXPECT_EQ(hub.layout.GetInt("tp"), 2);
  EXPECT_THAT(hub.load_hint, HasSubstr("--norm-epsilon 1e-06"));
}

TEST(ReadHubTest, TheStoredIterationCountsAndIsToldWhereTheNameDiffers) {
  Catalog catalog = McoreSource("llama", TinyArgs(), true, false, 56, true);
  const auto told = [](const HubState& hub) {
    return std::ranges::any_of(hub.notices, [](const std::string& n) { return n.find("named for step 25, but its common state says iteration 20") != std::string::npos; });
  };
  catalog.step = 20;
  ASSERT_OK_AND_ASSIGN(const HubState same, ReadHub(catalog, {}));
  EXPECT_FALSE(told(same));
  catalog.step = 25;
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(catalog, {}));
  EXPECT_EQ(hub.counters.step, 20);
  EXPECT_TRUE(told(hub));
}

TEST(ReadHubTest, GroupsAtDifferentStepsAreRefused) {
  Catalog catalog = McoreSource("llama", TinyArgs(), true, false, 56, true);
  Value groups = Json(R"([{"step": 7, "wd_mult": 1.0}, {"step": 8, "wd_mult": 0.0}])");
  Value inner = Value::MakeDict();
  inner.Set("param_groups", groups);
  Value optimizer = Value::MakeDict();
  optimizer.Set("optimizer", inner);
  catalog.objects["common"].Set("optimizer", optimizer);
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kCorrupt, HasSubstr("7 and 8")));
  ReadOptions without;
  without.no_optim = true;
  EXPECT_THAT(ReadHub(catalog, without), IsOk());
}

TEST(ReadHubTest, ObjectsAreNamedAndLeft) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  for (const char* name : {"decoder.layers.mlp.linear_fc1._extra_state/shard_0_3", "rng_state/shard_0.0_2.2", "mystery/shard_0_1"}) {
    catalog.object_refs.push_back({name, 0, {0, 10}});
  }
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(catalog, {}));
  EXPECT_TRUE(LeftOutNames(hub, "_extra_state"));
  EXPECT_TRUE(LeftOutNames(hub, "rng_state"));
  EXPECT_TRUE(LeftOutNames(hub, "mystery/shard_0_1"));
}

TEST(ReadHubTest, BucketsAreLeftOutAndRefusedByTargetsWithAnOptimizer) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  AddEntry(&catalog, "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(a, b).bucket_idx_0.exp_avg", DType::kF32, {1000});
  catalog.SortEntries();
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(catalog, {}));
  EXPECT_THAT(hub.optimizer_refusal, HasSubstr("dp_reshardable"));
  EXPECT_TRUE(LeftOutNames(hub, "--dist-ckpt-optim-fully-reshardable"));
  EXPECT_EQ(hub.optimizer, "");
  EXPECT_THAT(WriteHub(hub, {}), IsError(ErrorCode::kUnsupported, HasSubstr("--no-optim")));
  ReadOptions without;
  without.no_optim = true;
  ASSERT_OK_AND_ASSIGN(const HubState plain, ReadHub(catalog, without));
  EXPECT_EQ(plain.optimizer_refusal, "");
  EXPECT_TRUE(LeftOutNames(plain, "--no-optim"));
  EXPECT_THAT(WriteHub(plain, {}), IsOk());
}

TEST(ReadHubTest, FlatStateWithoutItsShapeIsRefused) {
  Catalog catalog = McoreSource("llama", TinyArgs(), true, false, 56, true);
  for (Entry& entry : catalog.entries) {
    if (entry.name == "optimizer.state.exp_avg.output_layer.weight") entry.shape = {56 * 16};
  }
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kUnsupported, HasSubstr("--no-optim")));
}

TEST(ReadHubTest, MissingAndUnknownTensorsAreToldTogether) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  std::erase_if(catalog.entries, [](const Entry& e) { return e.name.ends_with("linear_fc2.weight") || e.name.ends_with("linear_proj.weight"); });
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("linear_fc2.weight"), HasSubstr("linear_proj.weight"))));

  catalog = McoreSource("llama", TinyArgs());
  AddEntry(&catalog, "decoder.mystery.weight", DType::kBF16, {2});
  catalog.SortEntries();
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kUnsupported, HasSubstr("decoder.mystery.weight")));
  ReadOptions allow;
  allow.allow_unknown_tensors = true;
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(catalog, allow));
  EXPECT_TRUE(LeftOutNames(hub, "decoder.mystery.weight"));
}

TEST(ReadHubTest, ACheckpointWithoutAModelIsIncomplete) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  std::erase_if(catalog.entries, [](const Entry& entry) { return entry.name.starts_with("embedding."); });
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kUnsupported, HasSubstr("holds no embedding")));
  catalog.entries.clear();
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kIncomplete, HasSubstr("holds no model tensors")));
}

TEST(ReadHubTest, HalfAnOptimizerIsRefused) {
  Catalog catalog = McoreSource("llama", TinyArgs(), true, false, 56, true);
  std::erase_if(catalog.entries, [](const Entry& e) { return e.name == "optimizer.state.exp_avg_sq.output_layer.weight"; });
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("output_layer.weight"), HasSubstr("--no-optim"))));
}

TEST(ReadHubTest, AShapeThatContradictsTheArgumentsIsNamed) {
  Value args = TinyArgs();
  args.Set("ffn_hidden_size", Value(32));
  Catalog catalog = McoreSource("llama", TinyArgs());
  catalog.objects["common"].Set("args", Namespace(args));
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("linear_fc1.weight"), HasSubstr("[3, 64, 16]"), HasSubstr("[3, 48, 16]"), HasSubstr("common.pt"))));
}

TEST(ReadHubTest, ASettingWithoutARuleIsRefusedByName) {
  Value args = TinyArgs();
  args.Set("squared_relu", Value(true));
  EXPECT_THAT(ReadHub(McoreSource("llama", args), {}), IsError(ErrorCode::kUnsupported, HasSubstr("squared_relu")));
}

TEST(ReadHubTest, LocalSpellingOfNormsIsRead) {
  Catalog catalog = McoreSource("llama", TinyArgs(), false);
  for (Entry& entry : catalog.entries) {
    for (const auto& [fused, local] : {std::pair{".self_attention.linear_qkv.layer_norm_weight", ".input_layernorm.weight"}, {".mlp.linear_fc1.layer_norm_weight", ".pre_mlp_layernorm.weight"}}) {
      if (entry.name.ends_with(fused)) entry.name = entry.name.substr(0, entry.name.size() - std::string_view(fused).size()) + local;
    }
  }
  catalog.SortEntries();
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(catalog, {}));
  EXPECT_NE(HubTensorOf(hub, "model.layers.1.input_layernorm.weight"), nullptr);
}

TEST(ReadHubTest, MixedLayerFormsAreRefused) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  AddEntry(&catalog, "decoder.layers.0.mlp.linear_fc2.weight", DType::kBF16, {16, 24});
  catalog.SortEntries();
  EXPECT_THAT(ReadHub(catalog, {}), IsError(ErrorCode::kUnsupported, HasSubstr("numbered")));
}

TEST(ReadHubTest, SideFilesOfTheHfFolderTravel) {
  Catalog catalog = McoreSource("llama", TinyArgs());
  SideFile file;
  file.path = "hf/tokenizer.json";
  file.copy_from = "/run/iter_0000020/hf/tokenizer.json";
  catalog.side_files.push_back(file);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(catalog, {}));
  ASSERT_EQ(hub.side_files.size(), 1U);
  EXPECT_EQ(hub.side_files[0].path, "tokenizer.json");
}

}  // namespace
}  // namespace crossdock::dialects::mcore
