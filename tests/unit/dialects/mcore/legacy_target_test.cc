// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_target.h"

#include <algorithm>

#include "dialects/mcore/mcore_dialect.h"
#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Result<TargetState> Legacy(const char* family, TargetOptions options, bool adam, bool distributed, bool tied = false, std::int64_t layers = 4) {
  Value config = TinyConfig(family, layers);
  config.Set("tie_word_embeddings", Value(tied));
  Result<HubState> hub = HfHub(family, config, adam);
  if (!hub) return hub.error();
  options.iteration = 20;
  if (adam) options = WithAdamSettings(options);
  Result<TargetState> global = WriteHub(*hub, options);
  if (!global) return global.error();
  return ToLegacy(std::move(*global), options.layout, distributed);
}

std::vector<std::string> ModelNames(const TargetState& target, const std::string& file, const char* model = "model") {
  std::vector<std::string> out;
  for (const auto& [key, value] : target.catalog.objects.at(file).Find(model)->as_dict()->items) out.push_back(*key.as_string());
  return out;
}

bool Has(const TargetState& target, const std::string& name) { return target.catalog.Find(name) >= 0; }

TEST(LegacyTarget, EveryRankHoldsItsLayersAndRows) {
  TargetOptions options;
  options.layout.tp = 2;
  options.layout.pp = 2;
  options.layout.first_stage_layers = 1;
  options.vocab_divisor = 4;
  ASSERT_OK_AND_ASSIGN(const TargetState target, Legacy("qwen3", options, false, false));
  EXPECT_EQ(target.catalog.objects.size(), 4U);
  const std::string last = "mp_rank_01_001/model_optim_rng.pt";
  EXPECT_TRUE(Has(target, last + "#model/decoder.layers.2.mlp.linear_fc1.weight"));   // global layer 3
  EXPECT_FALSE(Has(target, last + "#model/decoder.layers.3.mlp.linear_fc1.weight"));
  EXPECT_FALSE(Has(target, last + "#model/embedding.word_embeddings.weight"));
  EXPECT_TRUE(Has(target, last + "#model/output_layer.weight"));
  EXPECT_TRUE(Has(target, "mp_rank_00_000/model_optim_rng.pt#model/decoder.layers.0.self_attention.q_layernorm.weight"));
  const Entry& fc1 = target.catalog.entries[static_cast<std::size_t>(target.catalog.Find(last + "#model/decoder.layers.0.mlp.linear_fc1.weight"))];
  EXPECT_EQ(fc1.shape, (Shape{24, 16}));
  const Value& object = target.catalog.objects.at(last);
  EXPECT_EQ(object.GetFloat("checkpoint_version"), 3.0);
  EXPECT_EQ(object.GetInt("iteration"), 20);
  EXPECT_EQ(object.GetString("args.ckpt_format"), "torch");
  EXPECT_EQ(object.Find("optimizer"), nullptr);
  const std::vector<std::string> names = ModelNames(target, last);
  EXPECT_EQ(names.front(), "decoder.layers.0.self_attention.core_attention._extra_state");
  EXPECT_EQ(names.back(), "output_layer._extra_state");
  EXPECT_THAT(target.load_line.at(0), AllOf(HasSubstr("--tensor-model-parallel-size 2"), HasSubstr("--ckpt-format torch"), HasSubstr("--no-load-rng"), HasSubstr("--no-load-optim"),
                                            HasSubstr("--decoder-first-pipeline-num-layers 1")));
}

TEST(LegacyTarget, TheLastStageOfATiedModelHasACopy) {
  TargetOptions options;
  ASSERT_OK_AND_ASSIGN(const TargetState one, Legacy("llama", options, true, false, true));
  EXPECT_FALSE(Has(one, "mp_rank_00/model_optim_rng.pt#model/output_layer.weight"));
  options.layout.pp = 2;
  ASSERT_OK_AND_ASSIGN(const TargetState two, Legacy("llama", options, true, false, true));
  const std::int32_t copy = two.catalog.Find("mp_rank_00_001/model_optim_rng.pt#model/output_layer.weight");
  const std::int32_t embedding = two.catalog.Find("mp_rank_00_000/model_optim_rng.pt#model/embedding.word_embeddings.weight");
  ASSERT_GE(copy, 0);
  EXPECT_EQ(expr::Describe(two.exprs[static_cast<std::size_t>(copy)]), expr::Describe(two.exprs[static_cast<std::size_t>(embedding)]));
  // The copy is a parameter of its stage's optimizer too, the last of those that decay: 2 layers of 4 matrices before it.
  EXPECT_EQ(two.catalog.objects.at("mp_rank_00_001/model_optim_rng.pt").FindPath("optimizer.fp32_from_fp16_params")->as_sequence()->at(0).as_sequence()->size(), 9U);
}

TEST(LegacyTarget, OneRankHoldsLayersOfPredictionWithAnEmbeddingBesideThem) {
  Value config = TinyConfig("glm4_moe", 3);
  for (const auto& [key, value] : {std::pair{"n_routed_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 8}, {"n_shared_experts", 1}, {"first_k_dense_replace", 1},
                                   {"num_nextn_predict_layers", 1}, {"n_group", 1}, {"topk_group", 1}}) {
    config.Set(key, Value(std::int64_t{value}));
  }
  config.Set("norm_topk_prob", Value(true));
  config.Set("use_qk_norm", Value(true));
  config.Set("attention_bias", Value(true));
  config.Set("routed_scaling_factor", Value(1.0));
  ASSERT_OK_AND_ASSIGN(const HubState hub, HfHub("glm4_moe", config, false));
  TargetOptions options;
  options.layout.tp = 2;
  options.layout.pp = 2;
  options.layout.ep = 2;
  options.layout.etp = 1;
  options.layout.first_stage_layers = 2;
  ASSERT_OK_AND_ASSIGN(TargetState global, WriteHub(hub, options));
  ASSERT_OK_AND_ASSIGN(const TargetState all, ToLegacy(global, options.layout, false));
  const std::vector<std::string> names = ModelNames(all, "mp_rank_01_001_001/model_optim_rng.pt");
  const auto place = [&](const char* name) { return std::ranges::find(names, name) - names.begin(); };
  EXPECT_EQ(names.front(), "embedding.word_embeddings.weight");
  EXPECT_LT(place("decoder.final_layernorm.weight"), place("mtp.layers.0.enorm.weight"));
  EXPECT_LT(place("mtp.layers.0.eh_proj.weight"), place("mtp.layers.0.mtp_model_layer.self_attention.linear_proj.weight"));
  EXPECT_LT(place("mtp.layers.0.mtp_model_layer.mlp.router.weight"), place("mtp.layers.0.final_layernorm.weight"));
  EXPECT_LT(place("mtp.layers.0.final_layernorm.weight"), place("output_layer.weight"));
  ASSERT_OK_AND_ASSIGN(const TargetState first, ToLegacy(global, options.layout, false, LegacyRankPlace{1, 0, 1, 0}));
  ASSERT_OK_AND_ASSIGN(const TargetState last, ToLegacy(global, options.layout, false, LegacyRankPlace{1, 1, 1, 0}));
  const std::string at = "mp_rank_01_001_001/model_optim_rng.pt#model/";
  for (const char* name : {"mtp.layers.0.eh_proj.weight", "mtp.layers.0.enorm.weight", "mtp.layers.0.mtp_model_layer.self_attention.linear_qkv.weight",
                           "mtp.layers.0.mtp_model_layer.mlp.experts.linear_fc1.weight1", "embedding.word_embeddings.weight", "output_layer.weight", "decoder.layers.0.mlp.router.weight"}) {
    EXPECT_TRUE(Has(last, at + name)) << name;
  }
  EXPECT_FALSE(Has(last, at + "mtp.layers.0.mtp_model_layer.mlp.experts.linear_fc1.weight2")) << "a rank has half of four";
  EXPECT_TRUE(std::ranges::none_of(first.catalog.entries, [](const Entry& entry) { return entry.name.find("mtp.") != std::string::npos; }));
  const Entry& proj = last.catalog.entries[static_cast<std::size_t>(last.catalog.Find(at + "mtp.layers.0.eh_proj.weight"))];
  EXPECT_EQ(proj.shape, (Shape{8, 32}));   // half of the rows
}

TEST(LegacyTarget, VirtualStagesAreModelsOfTheirOwn) {
  TargetOptions options;
  options.layout.pp = 2;
  options.layout.vpp = 2;
  ASSERT_OK_AND_ASSIGN(const TargetState target, Legacy("qwen2", options, true, false));
  const std::string first = "mp_rank_00_000/model_optim_rng.pt";
  EXPECT_TRUE(Has(target, first + "#model0/embedding.word_embeddings.weight"));
  EXPECT_TRUE(Has(target, first + "#model1/decoder.layers.0.self_attention.linear_qkv.bias"));   // global layer 2
  EXPECT_FALSE(Has(target, first + "#model1/decoder.layers.1.self_attention.linear_qkv.bias"));
  EXPECT_TRUE(Has(target, "mp_rank_00_001/model_optim_rng.pt#model1/output_layer.weight"));
  EXPECT_EQ(target.catalog.objects.at(first).Find("model"), nullptr);
}

TEST(LegacyTarget, PlainStatesStandInTheModelFile) {
  ASSERT_OK_AND_ASSIGN(const TargetState target, Legacy("qwen3", {}, true, false));
  const std::string file = "mp_rank_00/model_optim_rng.pt";
  // Registration order of the matrices: embedding, then proj, qkv, fc1, fc2 of each layer, then the head.
  const Entry& proj = target.catalog.entries[static_cast<std::size_t>(target.catalog.Find(file + "#optimizer/fp32_from_fp16_params/0/1"))];
  EXPECT_EQ(proj.shape, (Shape{16, 16}));
  EXPECT_EQ(proj.dtype, DType::kF32);
  EXPECT_TRUE(Has(target, file + "#optimizer/optimizer/state/1/exp_avg"));
  EXPECT_EQ(target.catalog.objects.size(), 1U);
  EXPECT_THAT(target.load_line.at(0), Not(HasSubstr("--use-distributed-optimizer")));
}

TEST(LegacyTarget, DistributedStatesAreFlatAndBackwards) {
  ASSERT_OK_AND_ASSIGN(const TargetState target, Legacy("qwen3", {}, true, true));
  const std::string name = "mp_rank_00/distrib_optim.pt#0/(torch.bfloat16, torch.float32)/exp_avg";
  const std::int32_t index = target.catalog.Find(name);
  ASSERT_GE(index, 0);
  const Entry& entry = target.catalog.entries[static_cast<std::size_t>(index)];
  ASSERT_EQ(entry.shape.size(), 1U);
  std::int64_t total = 0;
  for (const auto& e : target.catalog.entries) {
    if (e.name.starts_with("mp_rank_00/model_optim_rng.pt#model/")) total += CheckedCount(e.shape);
  }
  EXPECT_GE(entry.shape[0], total);   // gaps up to multiples of 64
  const Value& object = target.catalog.objects.at("mp_rank_00/distrib_optim.pt");
  EXPECT_EQ(object.GetBool("buckets_coalesced"), true);
  const Value& states = object.as_dict()->items.at(1).second.as_dict()->items.at(0).second;
  EXPECT_EQ(states.GetInt("numel_unpadded"), entry.shape[0]);
  EXPECT_EQ(target.catalog.objects.at("mp_rank_00/model_optim_rng.pt").FindPath("optimizer.optimizer.state"), nullptr);
  EXPECT_THAT(target.load_line.at(0), HasSubstr("--use-distributed-optimizer"));
}

TEST(LegacyTarget, SaysWhetherTheOptimizerIsDistributed) {
  Value args = TinyArgs();
  const auto uses = [&](const TargetOptions& options, const TargetState& target) { return UsesDistributedOptimizer(options, McoreSource("llama", args), target); };
  const auto says = [&](const TargetOptions& options, const TargetState& target) { return *uses(options, target); };
  EXPECT_FALSE(says({}, {}));
  args.Set("use_distributed_optimizer", Value(true));
  EXPECT_TRUE(says({}, {}));
  TargetOptions asked;
  asked.set_args["use_distributed_optimizer"] = "False";
  EXPECT_FALSE(says(asked, {}));
  TargetState muon;   // whose optimizer is never the distributed one
  muon.catalog.entries.push_back({"optimizer.state.momentum_buffer.decoder.layers.mlp.linear_fc2.weight", Slot::kParam, DType::kF32, {2, 4, 4}, {}});
  EXPECT_FALSE(says({}, muon));
  asked.set_args["use_distributed_optimizer"] = "True";
  EXPECT_THAT(uses(asked, muon), IsError(ErrorCode::kUnsupported, HasSubstr("use_distributed_optimizer")));
}

/// A Qwen3-MoE of 3 layers, the first of them dense, with 6 experts of 12 rows.
Result<TargetState> Experts(TargetOptions options, bool adam = false, bool distributed = false) {
  Value config = TinyConfig("qwen3_moe", 3);
  config.Set("num_experts", Value(6));
  config.Set("num_experts_per_tok", Value(2));
  config.Set("moe_intermediate_size", Value(12));
  config.Set("mlp_only_layers", Value::MakeList({Value(0)}));
  Result<HubState> hub = HfHub("qwen3_moe", config, adam);
  if (!hub) return hub.error();
  options.iteration = 20;
  if (adam) options = WithAdamSettings(options);
  Result<TargetState> global = WriteHub(*hub, options);
  if (!global) return global.error();
  return ToLegacy(std::move(*global), options.layout, distributed);
}

/// ETP 1 with TP 2: ranks 0 to 2 are the first ones of their experts, ranks 0 and 1 of the dense parameters.
TEST(LegacyTarget, ExpertsOfExpertParallelRanksHaveAnOptimizerOfTheirOwn) {
  TargetOptions options;
  options.layout.tp = 2;
  options.layout.ep = 3;
  options.layout.etp = 1;
  ASSERT_OK_AND_ASSIGN(const TargetState plain, Experts(options, true));
  const std::string file = "mp_rank_01_001/model_optim_rng.pt";
  const ValueList& chain = *plain.catalog.objects.at(file).Find("optimizer")->as_sequence();
  ASSERT_EQ(chain.size(), 2U);
  const ValueList& groups = *chain[1].FindPath("optimizer.param_groups")->as_sequence();
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].GetBool("is_expert_parallel"), true);
  EXPECT_EQ(groups[0].Find("params")->as_sequence()->size(), 8U);   // 2 layers, 2 experts, 2 matrices
  EXPECT_TRUE(Has(plain, file + "#optimizer/1/optimizer/state/7/exp_avg_sq"));
  EXPECT_TRUE(Has(plain, file + "#optimizer/0/fp32_from_fp16_params/1/0"));

  ASSERT_OK_AND_ASSIGN(const TargetState flat, Experts(options, true, true));
  const auto both = [&](const char* dir) {
    const ValueList& states = *flat.catalog.objects.at(std::string(dir) + "/distrib_optim.pt").as_sequence();
    return std::pair(!states[0].is_null(), !states[1].is_null());
  };
  EXPECT_EQ(both("mp_rank_00_000"), std::pair(true, true));
  EXPECT_EQ(both("mp_rank_01_001"), std::pair(true, true));
  EXPECT_EQ(both("mp_rank_00_002"), std::pair(false, true));
  EXPECT_FALSE(flat.catalog.objects.contains("mp_rank_01_000/distrib_optim.pt"));   // the rank that looks there is the first of nothing
  EXPECT_TRUE(Has(flat, "mp_rank_00_002/distrib_optim.pt#1/0/(torch.bfloat16, torch.float32)/param"));
}

TEST(LegacyTarget, EveryPairOfRanksHasItsOwnExperts) {
  TargetOptions options;
  options.layout.tp = 2;
  options.layout.ep = 3;
  ASSERT_OK_AND_ASSIGN(const TargetState target, Experts(options));
  EXPECT_EQ(target.catalog.objects.size(), 6U);
  const std::string file = "mp_rank_01_002/model_optim_rng.pt";
  const std::int32_t index = target.catalog.Find(file + "#model/decoder.layers.2.mlp.experts.linear_fc1.weight1");
  ASSERT_GE(index, 0);
  EXPECT_EQ(target.catalog.entries[static_cast<std::size_t>(index)].shape, (Shape{12, 16}));   // 6 of gate, 6 of up
  EXPECT_FALSE(Has(target, file + "#model/decoder.layers.2.mlp.experts.linear_fc1.weight2"));
  EXPECT_FALSE(Has(target, file + "#model/decoder.layers.0.mlp.experts.linear_fc1.weight0"));
  const std::vector<std::string> names = ModelNames(target, file);
  const auto at = [&](const char* name) { return std::ranges::find(names, name) - names.begin(); };
  EXPECT_LT(at("decoder.layers.1.mlp.router.weight"), at("decoder.layers.1.mlp.experts.linear_fc1.weight0"));
  EXPECT_EQ(at("decoder.layers.1.mlp.experts.linear_fc1._extra_state"), at("decoder.layers.1.mlp.experts.linear_fc1.weight1") + 1);
  EXPECT_EQ(target.catalog.objects.at(file).GetBool("args.moe_grouped_gemm"), true);
  EXPECT_EQ(target.catalog.objects.at(file).GetInt("args.expert_model_parallel_size"), 3);
}

TEST(LegacyTarget, APairThatNoRankHasIsNotWritten) {
  TargetOptions options;
  options.layout.tp = 2;
  options.layout.ep = 2;
  options.layout.etp = 1;
  options.set_args = {{"moe_grouped_gemm", "False"}};
  ASSERT_OK_AND_ASSIGN(const TargetState target, Experts(options));
  EXPECT_EQ(target.catalog.objects.size(), 2U);
  const std::int32_t index = target.catalog.Find("mp_rank_01_001/model_optim_rng.pt#model/decoder.layers.1.mlp.experts.local_experts.2.linear_fc1.weight");
  ASSERT_GE(index, 0);
  EXPECT_EQ(target.catalog.entries[static_cast<std::size_t>(index)].shape, (Shape{24, 16}));
  EXPECT_EQ(target.catalog.objects.at("mp_rank_01_001/model_optim_rng.pt").GetBool("args.moe_grouped_gemm"), false);
}

TEST(LegacyTarget, RefusesExpertsThatNoDirectoryTellsApart) {
  TargetOptions options;
  options.layout.etp = 2;
  EXPECT_THAT(Experts(options), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("--etp 2"), HasSubstr("--to megatron"))));
}

TEST(LegacyTarget, RefusesWhatTheFormCannotHold) {
  TargetState bare;
  EXPECT_THAT(ToLegacy(std::move(bare), {}, false), IsError(ErrorCode::kIncomplete, HasSubstr("num_layers")));
  TargetState other;
  other.catalog = McoreSource("llama", TinyArgs());
  AddEntry(&other.catalog, "decoder.layers.cross_attention.linear_q.weight", DType::kBF16, {3, 4, 4});
  other.catalog.SortEntries();
  for (std::size_t i = 0; i < other.catalog.entries.size(); ++i) {
    other.exprs.push_back(expr::Leaf(static_cast<int>(i), other.catalog.entries[i].dtype, other.catalog.entries[i].shape));
  }
  EXPECT_THAT(ToLegacy(std::move(other), {}, false), IsError(ErrorCode::kUnsupported, HasSubstr("cross_attention")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
