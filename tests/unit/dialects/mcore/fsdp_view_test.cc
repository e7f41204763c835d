// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/fsdp_view.h"

#include "dialects/mcore/common_state.h"
#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

/// What the reader makes of a run of two layers under bf16: F32 main weights, halves of fc1, moments of everything.
Catalog FsdpSource(bool with_state = true) {
  Catalog catalog;
  catalog.format = "dcp";
  Value args = TinyArgs(2);
  args.Set("bf16", Value(true));
  ValueDict items = {{Value("args"), MakeNamespace(std::move(args))}, {Value("iteration"), Value(5)}, {Value("opt_param_scheduler.num_steps"), Value(9)},
                     {Value("rng_state.(0, 0).0.np_rng_state"), Value(1)}};
  const auto add = [&](const std::string& name, const Shape& shape) {
    AddEntry(&catalog, "model.module." + name, DType::kF32, shape);
    if (!with_state) return;
    const std::string parameter = "module.module.module." + name;
    for (const char* state : {"exp_avg", "exp_avg_sq"}) AddEntry(&catalog, "optimizer.state." + parameter + "." + state, DType::kF32, shape);
    const bool decays = shape.size() > 1;
    items.emplace_back(Value("optimizer.param_to_group_meta." + parameter + ".wd_mult"), Value(decays ? 1.0 : 0.0));
    items.emplace_back(Value("optimizer.param_to_group_meta." + parameter + ".step"), Value(3));
  };
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "decoder.layers." + std::to_string(layer) + ".";
    add(prefix + "mlp.linear_fc1.weight_w", {6, 4});
    add(prefix + "mlp.linear_fc1.weight_v", {6, 4});
    for (const char* half : {"w", "v"}) add(prefix + "mlp.linear_fc1.bias_" + half, {6});
    add(prefix + "mlp.linear_fc1.layer_norm_weight", {4});
  }
  add("embedding.word_embeddings.weight", {8, 4});
  catalog.SortEntries();
  catalog.objects["items"] = Value::MakeDict(std::move(items));
  catalog.objects["scalars"] = Value::MakeDict();
  catalog.objects["fsdp_dtensor"] = Value(true);
  return catalog;
}

const Entry* Seen(const GlobalView& view, const std::string& name) {
  const std::int32_t at = view.catalog.Find(name);
  return at < 0 ? nullptr : &view.catalog.entries[static_cast<std::size_t>(at)];
}

TEST(FsdpViewTest, MainWeightsAreMastersAndRoundedTheParameters) {
  const Catalog source = FsdpSource();
  ASSERT_TRUE(IsMegatronFsdp(source));
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeMegatronFsdp(source, {}));
  const std::string fc1 = "decoder.layers.mlp.linear_fc1.weight";
  ASSERT_NE(Seen(view, fc1), nullptr);
  EXPECT_EQ(Seen(view, fc1)->dtype, DType::kBF16);
  EXPECT_EQ(Seen(view, fc1)->shape, (Shape{2, 12, 4}));
  for (const char* slot : {"param", "exp_avg", "exp_avg_sq"}) {
    const Entry* state = Seen(view, std::string("optimizer.state.") + slot + "." + fc1);
    ASSERT_NE(state, nullptr) << slot;
    EXPECT_EQ(state->dtype, DType::kF32);
  }
  // The gate comes first: row 7 of layer 1 is row 1 of its `weight_v`.
  const std::int32_t at = view.catalog.Find("optimizer.state.exp_avg." + fc1);
  const auto [leaf, place] = Elements(view.exprs[static_cast<std::size_t>(at)]).at({1, 7, 2});
  EXPECT_EQ(source.entries[static_cast<std::size_t>(leaf)].name, "optimizer.state.module.module.module.decoder.layers.1.mlp.linear_fc1.weight_v.exp_avg");
  EXPECT_EQ(place, (Dims{1, 2}));
  EXPECT_EQ(Seen(view, "decoder.layers.mlp.linear_fc1.bias")->shape, (Shape{2, 12}));
  const Value& common = view.catalog.objects.at("common");
  EXPECT_EQ(common.GetInt("iteration"), 5);
  EXPECT_EQ(common.GetInt("opt_param_scheduler.num_steps"), 9);
  EXPECT_EQ(common.FindPath("optimizer.optimizer.param_groups")->as_sequence()->size(), 2U);
  EXPECT_EQ(common.GetString("content_metadata.distrib_optim_sharding_type"), "fully_reshardable");
  ASSERT_EQ(view.left_out.size(), 1U);
  EXPECT_EQ(view.left_out[0].name, "rng_state");
}

TEST(FsdpViewTest, WithoutStateThereAreNoMasters) {
  for (const bool stored : {true, false}) {
    ViewOptions options;
    options.no_optim = stored;
    ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeMegatronFsdp(FsdpSource(stored), options));
    EXPECT_EQ(view.catalog.entries.size(), 4U);
    EXPECT_EQ(view.catalog.objects.at("common").Find("optimizer"), nullptr);
  }
}

TEST(FsdpViewTest, LayersThatDifferKeepTheirNumbers) {
  Catalog source = FsdpSource(false);
  AddEntry(&source, "model.module.decoder.layers.1.self_attention.q_layernorm.weight", DType::kF32, {2});
  source.SortEntries();
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeMegatronFsdp(source, {}));
  EXPECT_NE(Seen(view, "decoder.layers.0.mlp.linear_fc1.weight"), nullptr);
  EXPECT_EQ(Seen(view, "decoder.layers.mlp.linear_fc1.weight"), nullptr);
}

TEST(FsdpViewTest, RefusesByName) {
  struct Case { std::string name; const char* error; ErrorCode code; };
  for (const Case& wrong : {Case{"model.module.decoder.layers.0.mlp.experts.linear_fc1.weight0_w", "experts", ErrorCode::kUnsupported},
                            Case{"model.module.decoder.layers.0.self_attention.in_proj.weight.query", "linear attention", ErrorCode::kUnsupported},
                            Case{"optimizer.state.module.a.b.momentum_buffer", "not Adam's", ErrorCode::kUnsupported},
                            Case{"model.module.decoder.layers.2.mlp.linear_fc1.weight_v", "one of its halves", ErrorCode::kIncomplete},
                            Case{"model.module.module.embedding.word_embeddings.weight", "mean the same", ErrorCode::kCorrupt},
                            Case{"model.module.module.decoder.layers.0.mlp.linear_fc1.weight_w", "mean the same", ErrorCode::kCorrupt},
                            Case{"model.module.decoder.layers.9223372036854775807.mlp.linear_fc1.layer_norm_weight", "no model does", ErrorCode::kCorrupt},
                            Case{"model.module.decoder.layers.2.mlp.linear_fc1.layer_norm_weight", "num_layers 3", ErrorCode::kCorrupt},
                            Case{"model.module.decoder.layers.0.mlp.linear_fc1.weight", "mean the same", ErrorCode::kCorrupt}}) {
    Catalog source = FsdpSource();
    AddEntry(&source, wrong.name, DType::kF32, {6, 4});
    source.SortEntries();
    EXPECT_THAT(SeeMegatronFsdp(source, {}), IsError(wrong.code, HasSubstr(wrong.error))) << wrong.name;
  }
}

}  // namespace
}  // namespace crossdock::dialects::mcore
