// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "maxtext_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::maxtext {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class FromMaxText : public ::testing::TestWithParam<std::string> {};

TEST_P(FromMaxText, ReadsEveryTensorAndWritesTheSameTreeAgain) {
  const Value golden = Golden(GetParam());
  const Catalog source = Source(golden);
  const Value config = HfConfig(golden);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, With(config)));
  EXPECT_EQ(hub.family->name, *golden.GetString("family"));
  std::set<std::string> names;
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.slot == Slot::kParam) names.insert(tensor.name);
  }
  EXPECT_EQ(names.size(), Hub(hub.family->name, config, "").tensors.size());
  EXPECT_EQ(hub.counters.step, 7);
  if (!hub.optimizer.empty()) {
    EXPECT_EQ(hub.counters.adam_count, 5);
  }

  ASSERT_OK_AND_ASSIGN(const TargetState again, WriteHub(hub, OptionsOf(golden)));
  for (const Entry& entry : source.entries) {
    const std::int32_t at = again.catalog.Find(entry.name);
    ASSERT_GE(at, 0) << entry.name;
    EXPECT_TRUE(IsWhole(again.exprs[static_cast<std::size_t>(at)], source.Find(entry.name))) << entry.name;
  }
  const std::map<std::string, std::string> written = TreeOf(again);
  for (const auto& [path, what] : GoldenTree(golden)) {
    ASSERT_TRUE(written.contains(path)) << path;
    EXPECT_EQ(written.at(path), what) << path;
  }
}

TEST_P(FromMaxText, TheShapesAloneTellTheSizes) {
  const Value golden = Golden(GetParam());
  const std::string family = *golden.GetString("family");
  ReadOptions options;
  options.family = &Family(family);
  if (family == "llama") options.set_args["rope_type"] = "llama3.1";
  if (golden.GetInt("config.gdn_num_key_heads")) options.set_args = {{"gdn_num_key_heads", "2"}, {"gdn_key_head_dim", "12"}};
  if (golden.Find("extra")->Find("param_scan_axis") != nullptr) options.scan_axis = static_cast<int>(*golden.GetInt("extra.param_scan_axis"));
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(Source(golden), options));
  ASSERT_OK_AND_ASSIGN(const HubState by_config, ReadHub(Source(golden), With(HfConfig(golden))));
  ASSERT_EQ(hub.tensors.size(), by_config.tensors.size());
  for (std::size_t i = 0; i < hub.tensors.size(); ++i) {
    EXPECT_EQ(hub.tensors[i].name, by_config.tensors[i].name);
    EXPECT_EQ(hub.tensors[i].shape, by_config.tensors[i].shape) << hub.tensors[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, FromMaxText, ::testing::ValuesIn(GoldenNames()), [](const auto& param) { return param.param; });

TEST(ReadHub, FindsTheAxisOfScannedLayersByTheShapes) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(Source(Golden("qwen3_axis0_adamw_nnx")), With(HfConfig(Golden("qwen3_axis0_adamw_nnx")))));
  EXPECT_THAT(hub.notices, Contains(HasSubstr("along axis 0")));
  ReadOptions wrong = With(HfConfig(Golden("qwen3_axis0_adamw_nnx")));
  wrong.scan_axis = 1;
  EXPECT_THAT(ReadHub(Source(Golden("qwen3_axis0_adamw_nnx")), wrong), IsError(ErrorCode::kCorrupt, HasSubstr("--scan-axis")));
}

TEST(ReadHub, NamesWhatTheTreeDoesNotTell) {
  const Catalog llama = Source(Golden("llama_scanned_adamw_nnx"));
  EXPECT_THAT(ReadHub(llama, {}), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("several families"), HasSubstr("--hf-template"))));
  ReadOptions options;
  options.family = &Family("llama");
  EXPECT_THAT(ReadHub(llama, options), IsError(ErrorCode::kIncomplete, HasSubstr("--set rope_type=VALUE")));
  ASSERT_OK_AND_ASSIGN(const HubState qwen, ReadHub(Source(Golden("qwen3_scanned_adamw_nnx")), {}));
  EXPECT_EQ(qwen.family->name, "qwen3");
  EXPECT_THAT(qwen.notices, Contains(HasSubstr("family qwen3 is assumed")));
}

TEST(ReadHub, RefusesAnotherModelsConfiguration) {
  Value config = HfConfig(Golden("qwen3_scanned_adamw_nnx"));
  config.Set("intermediate_size", Value(97));
  EXPECT_THAT(ReadHub(Source(Golden("qwen3_scanned_adamw_nnx")), With(config)),
              IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("mlp"), HasSubstr("[64, 3, 97]"), HasSubstr("[64, 3, 96]"))));
}

TEST(ReadHub, TellsMissingAndUnknownArrays) {
  const Value golden = Golden("qwen3_scanned_adamw_nnx");
  Catalog source = Source(golden);
  std::erase_if(source.entries, [](const Entry& e) { return e.name.ends_with("mlp.wo.kernel"); });
  EXPECT_THAT(ReadHub(source, With(HfConfig(golden))), IsError(ErrorCode::kIncomplete, HasSubstr("decoder.layers.mlp.wo.kernel")));
  source = Source(golden);
  source.entries.front().name = "params.params.decoder.layers.adapter.kernel";
  const std::string lost = Source(golden).entries.front().name;
  source.SortEntries();
  ReadOptions options = With(HfConfig(golden));
  options.allow_missing_tensors = true;
  EXPECT_THAT(ReadHub(source, options), IsError(ErrorCode::kUnsupported, HasSubstr("adapter.kernel"))) << lost;
  options.allow_unknown_tensors = true;
  EXPECT_THAT(ReadHub(source, options), IsOk());
}

TEST(ReadHub, LeavesTheOptimizerBehindWhenAsked) {
  const Value golden = Golden("qwen3_scanned_muon_nnx");
  ReadOptions options = With(HfConfig(golden));
  options.no_optim = true;
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(Source(golden), options));
  EXPECT_TRUE(std::all_of(hub.tensors.begin(), hub.tensors.end(), [](const HubTensor& t) { return t.slot == Slot::kParam; }));
  ASSERT_EQ(hub.left_out.size(), 1U);
  EXPECT_THAT(hub.left_out[0].reason, HasSubstr("--no-optim"));
}

TEST(ReadHub, ReadsOlderPlacesOfRoutedBiases) {
  const Value golden = Golden("deepseek_v3_scanned_adamw_nnx");
  const std::string name = "decoder.moe_layers.DeepSeekMoeBlock_0.MoeBlock_0.gate.bias";
  for (const auto& [place, shape] : {std::pair<std::string, Shape>{"params.params.", {6, 3}}, {"params.params.", {3, 6}}, {"params.MoEBiasVar.", {3, 6}}}) {
    Catalog source = Source(golden);
    for (Entry& entry : source.entries) {
      if (entry.name != "nnx_aux.model." + name) continue;
      entry.name = place + name;
      entry.shape = shape;
    }
    source.SortEntries();
    ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, With(HfConfig(golden))));
    const auto bias = std::find_if(hub.tensors.begin(), hub.tensors.end(), [](const HubTensor& t) { return t.name == "model.layers.2.mlp.gate.e_score_correction_bias"; });
    ASSERT_NE(bias, hub.tensors.end());
    const std::vector<expr::Piece> pieces = expr::PullBack(bias->expr, Box{{4}, {1}});
    EXPECT_EQ(pieces[0].leaf_origin, shape[0] == 6 ? (Dims{4, 1}) : (Dims{1, 4}));  // layer 2 is the second with experts
  }
}

TEST(ReadHub, PredictionLayersRepeatEmbeddingAndHead) {
  const Value golden = Golden("deepseek_v3_mtp_adamw_nnx");
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(Source(golden), With(HfConfig(golden))));
  std::map<std::string, std::string> copies;
  for (const HubCopy& copy : hub.copies) copies[copy.name] = copy.of;
  EXPECT_EQ(copies, (std::map<std::string, std::string>{{"model.layers.4.embed_tokens.weight", "model.embed_tokens.weight"},
                                                        {"model.layers.4.shared_head.head.weight", "lm_head.weight"},
                                                        {"model.layers.5.embed_tokens.weight", "model.embed_tokens.weight"},
                                                        {"model.layers.5.shared_head.head.weight", "lm_head.weight"}}));
}

TEST(ReadHub, CutsAPaddedVocabulary) {
  const Value golden = Golden("llama_scanned_adamw_nnx");
  TargetOptions padded;
  padded.padded_vocab = 256;
  const HubState before = Hub("llama", HfConfig(golden), "adam");
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(before, padded));
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(target.catalog, With(HfConfig(golden))));
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.name == "model.embed_tokens.weight" || tensor.name == "lm_head.weight") {
      EXPECT_EQ(tensor.shape, (Shape{250, 64})) << tensor.name;
    }
  }
  std::vector<std::string> told;
  for (const LeftOut& item : hub.left_out) told.push_back(item.name + ": " + item.reason);
  EXPECT_THAT(told, Contains("params.params.token_embedder.embedding: 6 rows beyond the model's vocabulary of 250"));
}

TEST(ReadHub, GetsBackWhatAConversionLeftInTheMetadata) {
  const Value golden = Golden("qwen3_scanned_adamw_nnx");
  HubState before = Hub("qwen3", HfConfig(golden), "adam");
  before.counters.consumed_train_samples = 160;
  before.extras.Set("opt_param_scheduler", Json(R"({"num_steps": 56})"));
  before.extras_words = "mcore";
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(before, {}));
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(target.catalog, With(HfConfig(golden))));
  EXPECT_EQ(hub.counters, before.counters);
  EXPECT_TRUE(hub.extras.Equals(before.extras));
}

TEST(ReadHub, RefusesTreesOfOthers) {
  Catalog source = Source(Golden("qwen3_scanned_adamw_nnx"));
  for (Entry& entry : source.entries) entry.name = "base." + entry.name;
  EXPECT_THAT(ReadHub(source, {}), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("params.params"), HasSubstr("Tunix"))));
}

TEST(FromMaxTextMixed, LayersOfBothFormsAreRefusedWhereTheFamilyHasNone) {
  const Value golden = Golden("qwen3_scanned_adamw_nnx");
  Catalog source = Source(golden);
  source.entries.back().name = "params.params.decoder.layers_3.mlp.wo.kernel";
  source.SortEntries();
  EXPECT_THAT(ReadHub(source, With(HfConfig(golden))), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("some layers are scanned and others are not; the family qwen3"), HasSubstr("layers_3"))));
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
