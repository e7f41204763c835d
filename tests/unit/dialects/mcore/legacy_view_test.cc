// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_view.h"

#include <algorithm>

#include "legacy_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const HubTensor* FindTensor(const HubState& hub, std::string_view name, Slot slot = Slot::kParam) {
  const auto found = std::ranges::find_if(hub.tensors, [&](const HubTensor& t) { return t.name == name && t.slot == slot; });
  return found == hub.tensors.end() ? nullptr : &*found;
}

/// The stored tensor and the place in it that one element of a hub tensor comes from.
std::pair<std::string, Dims> Origin(const Catalog& source, const GlobalView& view, const HubState& hub, const char* name, Slot slot, const Dims& at) {
  const HubTensor* tensor = FindTensor(hub, name, slot);
  if (tensor == nullptr) return {"no such tensor", {}};
  const Result<expr::Expr> stored = view.OverSource(tensor->expr);
  const auto [leaf, from] = Elements(*stored).at(at);
  return {source.entries[static_cast<std::size_t>(leaf)].name, from};
}

std::vector<LegacySample> Layouts() {
  return {{1, 1, 1, {4}}, {2, 1, 1, {4}}, {1, 2, 1, {1, 3}}, {2, 2, 1, {2, 2}}, {4, 1, 1, {3}}, {2, 2, 2, {3, 2, 3, 2}}, {1, 2, 2, {0, 2, 1, 1}}};
}

TEST(LegacyViewTest, EveryLayoutIsSeenAsOneCheckpoint) {
  for (LegacySample sample : Layouts()) {
    for (const bool local_spec : {false, true}) {
      sample.adam = true;
      sample.local_spec = local_spec;
      const Catalog source = LegacySource(sample);
      ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(source, {}));
      std::int64_t layers = 0;
      for (const std::int64_t count : sample.counts) layers += count;
      const Catalog wanted = McoreSource("llama", TinyArgs(layers), true, false, 56, true);
      ASSERT_EQ(view.catalog.entries.size(), wanted.entries.size());
      for (std::size_t i = 0; i < wanted.entries.size(); ++i) {
        EXPECT_EQ(view.catalog.entries[i].name, wanted.entries[i].name);
        EXPECT_EQ(view.catalog.entries[i].shape, wanted.entries[i].shape);
        EXPECT_EQ(view.exprs[i]->shape, wanted.entries[i].shape);
      }
      EXPECT_EQ(view.optimizer_refusal, "");
      ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(view.catalog, {}));
      EXPECT_EQ(hub.optimizer, "adam");
      EXPECT_EQ(hub.counters, (Counters{20, 7, std::nullopt, 160}));
      EXPECT_EQ(view.catalog.objects.at("common").GetString("args.ckpt_format"), "torch_dist");
    }
  }
}

TEST(LegacyViewTest, EachElementComesFromTheRankThatHeldIt) {
  const LegacySample sample{2, 2, 2, {3, 2, 3, 2}, true};
  const Catalog source = LegacySource(sample);
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(source, {}));
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(view.catalog, {}));
  const auto from = [&](const char* name, const Dims& at, Slot slot = Slot::kParam) { return Origin(source, view, hub, name, slot, at); };
  using Place = std::pair<std::string, Dims>;
  // Layer 6 is the second of model chunk 1 on stage 0: chunks hold 3, 2, 3, 2 layers in order.
  const std::string chunk = "/model_optim_rng.pt#model1/decoder.layers.1.";
  EXPECT_EQ(from("model.layers.6.mlp.gate_proj.weight", {13, 5}), (Place{"mp_rank_01_000" + chunk + "mlp.linear_fc1.weight", {1, 5}}));
  EXPECT_EQ(from("model.layers.6.mlp.up_proj.weight", {13, 5}), (Place{"mp_rank_01_000" + chunk + "mlp.linear_fc1.weight", {13, 5}}));
  EXPECT_EQ(from("model.layers.6.mlp.up_proj.weight", {11, 5}), (Place{"mp_rank_00_000" + chunk + "mlp.linear_fc1.weight", {23, 5}}));
  EXPECT_EQ(from("model.layers.6.mlp.down_proj.weight", {3, 20}), (Place{"mp_rank_01_000" + chunk + "mlp.linear_fc2.weight", {3, 8}}));
  EXPECT_EQ(from("model.layers.6.self_attn.o_proj.weight", {3, 7}), (Place{"mp_rank_00_000" + chunk + "self_attention.linear_proj.weight", {3, 7}}));
  EXPECT_EQ(from("model.layers.6.self_attn.k_proj.weight", {5, 2}), (Place{"mp_rank_01_000" + chunk + "self_attention.linear_qkv.weight", {9, 2}}));
  EXPECT_EQ(from("model.layers.6.input_layernorm.weight", {9}), (Place{"mp_rank_00_000" + chunk + "self_attention.linear_qkv.layer_norm_weight", {9}}));
  EXPECT_EQ(from("model.embed_tokens.weight", {30, 1}), (Place{"mp_rank_01_000/model_optim_rng.pt#model0/embedding.word_embeddings.weight", {2, 1}}));
  EXPECT_EQ(from("lm_head.weight", {30, 1}), (Place{"mp_rank_01_001/model_optim_rng.pt#model1/output_layer.weight", {2, 1}}));
  // Masters and moments: with decay the embedding, then four matrices a layer, chunk by chunk.
  const std::string file = "mp_rank_01_000/model_optim_rng.pt#optimizer/";
  const int fc1 = 1 + 4 * 3 + 4 * 1 + 2;
  EXPECT_EQ(from("model.layers.6.mlp.up_proj.weight", {13, 5}, Slot::kMaster), (Place{file + fmt::format("fp32_from_fp16_params/0/{}", fc1), {13, 5}}));
  EXPECT_EQ(from("model.layers.6.mlp.up_proj.weight", {13, 5}, Slot::kAdamNu), (Place{file + fmt::format("optimizer/state/{}/exp_avg_sq", fc1), {13, 5}}));
  const int norm = 1 + 4 * 6 + 2 * 4;  // after all with decay: the first norm of the second layer of chunk 1
  EXPECT_EQ(from("model.layers.6.input_layernorm.weight", {9}, Slot::kAdamMu), (Place{"mp_rank_00_000/model_optim_rng.pt#optimizer/" + fmt::format("optimizer/state/{}/exp_avg", norm), {9}}));
}

TEST(LegacyViewTest, WhatDcpSavedIsNumberedInTheOrderOfRegistration) {
  LegacySample sample;
  sample.tp = sample.pp = 1;
  sample.counts = {3};
  sample.adam = true;
  const Catalog straight = LegacySource(sample);
  Catalog turned = straight;
  turned.objects["torch_dcp"] = Value(true);
  Value& file = turned.objects.at("mp_rank_00/model_optim_rng.pt");
  Value model = *file.Find("model");
  std::ranges::reverse(model.as_dict()->items);
  file.Set("model", std::move(model));
  ASSERT_OK_AND_ASSIGN(const GlobalView wanted, SeeLegacy(straight, {}));
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(turned, {}));
  EXPECT_TRUE(view.prove_masters);
  ASSERT_EQ(view.exprs.size(), wanted.exprs.size());
  for (std::size_t i = 0; i < wanted.exprs.size(); ++i) {
    EXPECT_EQ(view.catalog.entries[i].name, wanted.catalog.entries[i].name);
    EXPECT_EQ(expr::LeafOrdinals(view.exprs[i]), expr::LeafOrdinals(wanted.exprs[i])) << wanted.catalog.entries[i].name;
  }
}

TEST(LegacyViewTest, StateThatDcpSavedWithoutGroupsIsNotLostInSilence) {
  LegacySample sample;
  sample.tp = sample.pp = 1;
  sample.counts = {3};
  Catalog source = LegacySource(sample);
  source.objects["torch_dcp"] = Value(true);
  AddEntry(&source, "optimizer.optimizer.state.0.exp_avg", DType::kF32, {4});
  source.SortEntries();
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(source, {}));
  EXPECT_THAT(view.optimizer_refusal, ::testing::HasSubstr("parameter groups"));
}

TEST(LegacyViewTest, TheCopyOfATiedEmbeddingIsLeftOutAndCompared) {
  for (const bool old_names : {false, true}) {
    LegacySample sample;
    sample.tied = true;
    sample.adam = true;
    sample.old_names = old_names;
    const Catalog source = LegacySource(sample);
    ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(source, {}));
    EXPECT_EQ(view.catalog.Find("output_layer.weight"), -1);
    EXPECT_EQ(view.catalog.Find("optimizer.state.param.output_layer.weight"), -1);
    ASSERT_EQ(view.copies.size(), 2U);
    EXPECT_THAT(source.entries[static_cast<std::size_t>(view.copies[1].embedding)].name, HasSubstr("mp_rank_01_000/"));
    EXPECT_THAT(source.entries[static_cast<std::size_t>(view.copies[1].head)].name, HasSubstr("mp_rank_01_001/"));
    ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(view.catalog, {}));
    EXPECT_EQ(FindTensor(hub, "lm_head.weight"), nullptr);
  }
}

TEST(LegacyViewTest, NamesOfBeforeMegatronCoreAreReadWithANotice) {
  LegacySample sample;
  sample.old_names = true;
  const Catalog source = LegacySource(sample);
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(source, {}));
  ASSERT_EQ(view.notices.size(), 1U);
  EXPECT_THAT(view.notices.front(), HasSubstr("before Megatron-Core"));
  EXPECT_THAT(ReadHub(view.catalog, {}), IsOk());
}

TEST(LegacyViewTest, OldOrdersOfQkvAreRefused) {
  for (const bool absent : {true, false}) {
    Catalog source = LegacySource({});
    for (auto& [name, file] : source.objects) {
      if (absent) file.Erase("checkpoint_version");
      if (!absent) file.Set("checkpoint_version", Value(1.0));
    }
    EXPECT_THAT(SeeLegacy(source, {}), IsError(ErrorCode::kUnsupported, HasSubstr("checkpoint_version 2.0 or newer")));
  }
}

TEST(LegacyViewTest, AStateThatDoesNotFitIsRefusedByTargetsWithAnOptimizer) {
  LegacySample sample;
  sample.adam = true;
  Catalog source = LegacySource(sample);
  const std::int32_t wrong = source.Find("mp_rank_01_001/model_optim_rng.pt#optimizer/optimizer/state/2/exp_avg");
  ASSERT_GE(wrong, 0);
  source.entries[static_cast<std::size_t>(wrong)].shape = {16, 24};
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(source, {}));
  EXPECT_THAT(view.optimizer_refusal, AllOf(HasSubstr("not in the order of the model's parameters"), HasSubstr("linear_fc1.weight"), HasSubstr("[16, 24]"), HasSubstr("mp_rank_01_001")));
  EXPECT_EQ(view.catalog.Find("optimizer.state.exp_avg.output_layer.weight"), -1);
  EXPECT_THAT(ReadHub(view.catalog, {}), IsOk());
  ViewOptions without;
  without.no_optim = true;
  ASSERT_OK_AND_ASSIGN(const GlobalView plain, SeeLegacy(source, without));
  EXPECT_EQ(plain.optimizer_refusal, "");
}

TEST(LegacyViewTest, PartsThatDoNotFitAreCorrupt) {
  Catalog source = LegacySource({});
  const std::int32_t wrong = source.Find("mp_rank_01_000/model_optim_rng.pt#model/decoder.layers.1.mlp.linear_fc2.weight");
  ASSERT_GE(wrong, 0);
  source.entries[static_cast<std::size_t>(wrong)].shape = {16, 13};
  EXPECT_THAT(SeeLegacy(source, {}), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("linear_fc2.weight"), HasSubstr("[16, 13]"))));
}

TEST(LegacyViewTest, WhatNoRuleDividesIsRefused) {
  Catalog source = LegacySource({});
  for (auto& [name, file] : source.objects) {
    SetAt(&file, "model/decoder.adapter.weight", LegacyTensorAt(&source, name, "model/decoder.adapter.weight", DType::kBF16, {4, 4}));
  }
  source.SortEntries();
  EXPECT_THAT(SeeLegacy(source, {}), IsError(ErrorCode::kUnsupported, HasSubstr("decoder.adapter.weight")));
}

/// A tree with one more parameter in every rank, by a name whose layer no stage counts.
Catalog WithUncountedLayer(const LegacySample& sample) {
  Catalog source = LegacySource(sample);
  const std::string path = "model/language_model.encoder.decoder.layers.7.mlp.linear_fc2.weight";
  for (auto& [name, file] : source.objects) SetAt(&file, path, LegacyTensorAt(&source, name, path, DType::kBF16, {16, 24 / sample.tp}));
  source.SortEntries();
  return source;
}

TEST(LegacyViewTest, ALayerThatNoStageCountsIsRefused) {
  LegacySample whole;
  whole.tp = 1;
  whole.pp = 1;
  whole.counts = {2};
  EXPECT_THAT(SeeLegacy(WithUncountedLayer(whole), {}), IsError(ErrorCode::kCorrupt, HasSubstr("beyond the model's")));
}

TEST(LegacyViewTest, AParameterOfTwoStagesIsRefused) {
  EXPECT_THAT(SeeLegacy(WithUncountedLayer({}), {}), IsError(ErrorCode::kCorrupt, HasSubstr("two stages hold the same parameter")));
}

TEST(LegacyViewTest, ADictThatIsTooDeepIsRefused) {
  Catalog source = LegacySource({});
  std::string path = "model";
  for (int i = 0; i < 20; ++i) path += "/m";
  for (auto& [name, file] : source.objects) SetAt(&file, path, LegacyTensorAt(&source, name, path, DType::kBF16, {4}));
  source.SortEntries();
  EXPECT_THAT(SeeLegacy(source, {}), IsError(ErrorCode::kCorrupt, HasSubstr("nested deeper")));
}

/// Two layers of 4 experts with f = 6 over hidden 16, on the directories that are named; all but the experts is left out.
Catalog ExpertSource(const std::vector<std::string>& dirs, int tp, int ep, int etp, const std::string& form, const Value& more = Value::MakeDict()) {
  Catalog catalog;
  catalog.format = "mp_rank";
  catalog.root = "/run/iter_0000020";
  Value args = TinyArgs(2);
  args.Set("num_experts", Value(4));
  args.Set("tensor_model_parallel_size", Value(tp));
  args.Set("expert_model_parallel_size", Value(ep));
  args.Set("expert_tensor_parallel_size", Value(etp));
  for (const auto& [key, value] : more.as_dict()->items) args.Set(*key.as_string(), value);
  for (const std::string& dir : dirs) {
    const std::string name = dir + "/model_optim_rng.pt";
    Value file = Json(R"({"checkpoint_version": 3.0, "iteration": 20})");
    file.Set("args", Namespace(args));
    const auto add = [&](const std::string& path, const Shape& shape) { SetAt(&file, path, LegacyTensorAt(&catalog, name, path, DType::kBF16, shape)); };
    for (int layer = 0; layer < 2; ++layer) {
      const std::string mlp = fmt::format("model/decoder.layers.{}.mlp.", layer);
      add(fmt::format("model/decoder.layers.{}.pre_mlp_layernorm.weight", layer), {16});
      add(mlp + "router.weight", {4, 16});
      const std::int64_t locals = 4 / ep;
      if (form == "memory") {
        add(mlp + "experts.weight1", {16, locals * 12 / etp});
        add(mlp + "experts.weight2", {locals * 6 / etp, 16});
      }
      for (std::int64_t e = 0; e < locals && form != "memory"; ++e) {
        const bool grouped = form == "grouped";
        add(mlp + (grouped ? fmt::format("experts.linear_fc1.weight{}", e) : fmt::format("experts.local_experts.{}.linear_fc1.weight", e)), {12 / etp, 16});
        add(mlp + (grouped ? fmt::format("experts.linear_fc2.weight{}", e) : fmt::format("experts.local_experts.{}.linear_fc2.weight", e)), {16, 6 / etp});
      }
    }
    catalog.objects[name] = std::move(file);
  }
  catalog.SortEntries();
  return catalog;
}

std::pair<std::string, Dims> Origin(const Catalog& source, const GlobalView& view, const std::string& key, const Dims& at) {
  const std::int32_t index = view.catalog.Find(key);
  if (index < 0) return {"no such tensor", {}};
  const auto [leaf, from] = Elements(view.exprs[static_cast<std::size_t>(index)]).at(at);
  return {source.entries[static_cast<std::size_t>(leaf)].name, from};
}

TEST(LegacyViewTest, ExpertsOfEveryFormAreFoundOnTheirRanks) {
  using Place = std::pair<std::string, Dims>;
  const std::string fc1 = "decoder.layers.mlp.experts.experts.linear_fc1.weight";
  const std::vector<std::string> grid = {"mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"};
  const Catalog grouped = ExpertSource(grid, 2, 2, 2, "grouped");
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(grouped, {}));
  // Layer 1, expert 3 is the second of expert rank 1; row 10 is up row 4, the second rank's part.
  EXPECT_EQ(Origin(grouped, view, fc1, {1, 3, 10, 7}), (Place{"mp_rank_01_001/model_optim_rng.pt#model/decoder.layers.1.mlp.experts.linear_fc1.weight1", {4, 7}}));
  EXPECT_EQ(view.catalog.entries[static_cast<std::size_t>(view.catalog.Find(fc1))].shape, (Shape{2, 4, 12, 16}));
  EXPECT_GE(view.catalog.Find("decoder.layers.pre_mlp_layernorm.weight"), 0);
  ASSERT_EQ(view.left_out.size(), 1U);   // norms and routers of the second expert rank
  EXPECT_EQ(view.left_out[0].count, 8);

  // Fewer pairs than the grid has: each expert rank on one tensor rank.
  const Catalog pairs = ExpertSource({"mp_rank_00_000", "mp_rank_01_001"}, 2, 2, 1, "sequential");
  ASSERT_OK_AND_ASSIGN(const GlobalView of_pairs, SeeLegacy(pairs, {}));
  EXPECT_EQ(Origin(pairs, of_pairs, fc1, {0, 2, 10, 7}), (Place{"mp_rank_01_001/model_optim_rng.pt#model/decoder.layers.0.mlp.experts.local_experts.0.linear_fc1.weight", {10, 7}}));

  const Catalog memory = ExpertSource(grid, 2, 2, 2, "memory");
  ASSERT_OK_AND_ASSIGN(const GlobalView of_memory, SeeLegacy(memory, {}));
  const std::int64_t at = 1 * 16 * 6 + 7 * 6 + 4;   // [expert, column, row] of [2, 16, 6]
  EXPECT_EQ(Origin(memory, of_memory, fc1, {1, 3, 10, 7}), (Place{"mp_rank_01_001/model_optim_rng.pt#model/decoder.layers.1.mlp.experts.weight1", {at / 12, at % 12}}));
}

TEST(LegacyViewTest, KeysAreThoseThatTorchDistOfTheRunHas) {
  const std::vector<std::string> one = {"mp_rank_00"};
  // A list of layers with experts: by number, however alike they are.
  Value list = Value::MakeDict();
  list.Set("moe_layer_freq", Value::MakeList({Value(1), Value(1)}));
  const Catalog numbered = ExpertSource(one, 1, 1, 1, "grouped", list);
  ASSERT_OK_AND_ASSIGN(const GlobalView by_number, SeeLegacy(numbered, {}));
  EXPECT_GE(by_number.catalog.Find("decoder.layers.1.mlp.experts.experts.linear_fc2.weight"), 0);
  // Megatron's own layers map their norms in layers with experts too.
  Value local = Value::MakeDict();
  local.Set("transformer_impl", Value("local"));
  const Catalog own = ExpertSource(one, 1, 1, 1, "sequential", local);
  ASSERT_OK_AND_ASSIGN(const GlobalView of_own, SeeLegacy(own, {}));
  EXPECT_GE(of_own.catalog.Find("decoder.layers.mlp.linear_fc1.layer_norm_weight"), 0);
}

TEST(LegacyViewTest, ExpertsThatCannotBePutTogetherAreRefused) {
  // Two ranks with different halves of every expert wrote the one directory.
  EXPECT_THAT(SeeLegacy(ExpertSource({"mp_rank_00"}, 1, 1, 2, "grouped"), {}), IsError(ErrorCode::kUnsupported, HasSubstr("wrote the same file")));
  Catalog gap = ExpertSource({"mp_rank_00"}, 1, 1, 1, "grouped");
  Value& file = gap.objects.at("mp_rank_00/model_optim_rng.pt");
  Value model = *file.Find("model");
  model.Erase("decoder.layers.0.mlp.experts.linear_fc1.weight2");
  file.Set("model", std::move(model));
  EXPECT_THAT(SeeLegacy(gap, {}), IsError(ErrorCode::kCorrupt, HasSubstr("numbered from 0")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
