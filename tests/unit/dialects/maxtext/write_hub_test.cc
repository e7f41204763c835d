// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "maxtext_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::maxtext {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

/// Everything MaxText itself would save is there, with the same dtypes and shapes; what we add beyond is routed biases once more.
class AgainstMaxText : public ::testing::TestWithParam<std::string> {};

TEST_P(AgainstMaxText, WritesTheTreeThatMaxTextSaves) {
  const Value golden = Golden(GetParam());
  const std::string family = *golden.GetString("family");
  const std::string type = *golden.GetString("opt_type");
  const std::map<std::string, std::string> expected = GoldenTree(golden);
  const bool with_state = expected.contains("opt_state.[1]") || expected.contains("opt_state.count") || type == "muon";
  const HubState hub = Hub(family, HfConfig(golden), with_state ? (type == "muon" ? "muon" : "adam") : "");
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, OptionsOf(golden)));
  std::map<std::string, std::string> written = TreeOf(target);
  if (!with_state) {
    EXPECT_EQ(written["opt_state"], "Dict");
    written.erase("opt_state");
  }
  for (const auto& [path, what] : expected) {
    EXPECT_TRUE(written.contains(path)) << path;
    EXPECT_EQ(written[path], what) << path;
    written.erase(path);
  }
  for (const auto& [path, what] : written) EXPECT_THAT(path, HasSubstr("gate.bias"));
  for (const std::string& notice : target.notices) EXPECT_THAT(notice, ::testing::Not(HasSubstr("ATTENTION")));
  EXPECT_EQ(target.unit_name, "7");
  EXPECT_EQ(target.catalog.objects.at("custom_metadata").GetBool("scan_layers"), golden.GetBool("scan_layers"));
}

INSTANTIATE_TEST_SUITE_P(Golden, AgainstMaxText, ::testing::ValuesIn(GoldenNames()), [](const auto& param) { return param.param; });

TargetState Written(const std::string& family, const std::string& golden_name, const std::string& optimizer, const TargetOptions& options = {}) {
  const Value golden = Golden(golden_name);
  const Result<TargetState> target = WriteHub(Hub(family, HfConfig(golden), optimizer), options);
  EXPECT_TRUE(target.has_value()) << (target ? "" : target.error().ToString());
  return *target;
}

const Value& Scalar(const TargetState& target, const std::string& name) {
  const Value* scalar = target.catalog.objects.at("scalars").Find(name);
  EXPECT_NE(scalar, nullptr) << name;
  return *scalar;
}

std::int64_t Count(const TargetState& target, const std::string& name) { return *Scalar(target, name).Find("values")->as_sequence()->front().as_int(); }

/// The one source element of a target element, with the factor it is multiplied by.
struct Origin {
  std::int32_t leaf;
  Dims at;
  double factor = 1;
};
Origin OriginOf(const TargetState& target, const std::string& name, const Dims& at) {
  const std::int32_t entry = target.catalog.Find(name);
  EXPECT_GE(entry, 0) << name;
  const expr::Expr& root = target.exprs[static_cast<std::size_t>(entry)];
  const std::vector<expr::Piece> pieces = expr::PullBack(root, Box{at, Dims::Filled(at.size(), 1)});
  EXPECT_EQ(pieces.size(), 1U);
  Origin origin{pieces[0].leaf, pieces[0].leaf_origin};
  for (const expr::ElementOp& op : pieces[0].ops) {
    if (op.op == expr::Op::kScale) origin.factor *= op.factor;
  }
  return origin;
}

std::int32_t LeafOf(const HubState& hub, const std::string& name, Slot slot) {
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.name == name && tensor.slot == slot) return tensor.expr->leaf;
  }
  return -1;
}

TEST(WriteHub, PutsLayersHeadsAndRotaryPairsWhereLlama31WantsThem) {
  const Value golden = Golden("llama_scanned_adamw_nnx");
  const HubState hub = Hub("llama", HfConfig(golden), "adam");
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  // [emb, layer, head, element]: element 5 of a head of 24 is the third of the second half; head 2 of layer 1.
  const Origin query = OriginOf(target, "params.params.decoder.layers.self_attention.query.kernel", {9, 1, 2, 5});
  EXPECT_EQ(query.leaf, LeafOf(hub, "model.layers.1.self_attn.q_proj.weight", Slot::kParam));
  EXPECT_EQ(query.at, (Dims{2 * 24 + 12 + 2, 9}));
  EXPECT_DOUBLE_EQ(query.factor, 1 / std::sqrt(24.0));
  const Origin out = OriginOf(target, "params.params.decoder.layers.self_attention.out.kernel", {3, 2, 7, 11});
  EXPECT_EQ(out.leaf, LeafOf(hub, "model.layers.2.self_attn.o_proj.weight", Slot::kParam));
  EXPECT_EQ(out.at, (Dims{11, 3 * 24 + 7}));
}

TEST(WriteHub, ScalesMomentsInversely) {
  const Value golden = Golden("llama_scanned_adamw_nnx");
  const HubState hub = Hub("llama", HfConfig(golden), "adam");
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  const Origin mu = OriginOf(target, "opt_state.0.mu.params.decoder.layers.self_attention.query.kernel", {9, 1, 2, 5});
  const Origin nu = OriginOf(target, "opt_state.0.nu.params.decoder.layers.self_attention.query.kernel", {9, 1, 2, 5});
  EXPECT_EQ(mu.at, (Dims{2 * 24 + 12 + 2, 9}));
  EXPECT_DOUBLE_EQ(mu.factor, std::sqrt(24.0));
  EXPECT_NEAR(nu.factor, 24.0, 1e-12);
}

TEST(WriteHub, PutsExpertsBeforeLayers) {
  const Value golden = Golden("qwen3_moe_scanned_adamw_nnx");
  const HubState hub = Hub("qwen3_moe", HfConfig(golden), "");
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  const Origin up = OriginOf(target, "params.params.decoder.layers.moe_block.wi_1", {4, 2, 60, 30});
  EXPECT_EQ(up.leaf, LeafOf(hub, "model.layers.2.mlp.experts.4.up_proj.weight", Slot::kParam));
  EXPECT_EQ(up.at, (Dims{30, 60}));
}

TEST(WriteHub, CountsDenseAndExpertLayersApart) {
  const Value golden = Golden("deepseek_v3_unscanned_adamw_nnx");
  const HubState hub = Hub("deepseek_v3", HfConfig(golden), "");
  TargetOptions options;
  options.scan_layers = false;
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, options));
  const Origin gate = OriginOf(target, "params.params.decoder.moe_layers_1.DeepSeekMoeBlock_0.MoeBlock_0.gate.kernel", {33, 5});
  EXPECT_EQ(gate.leaf, LeafOf(hub, "model.layers.2.mlp.gate.weight", Slot::kParam));
  EXPECT_EQ(gate.at, (Dims{5, 33}));
}

TEST(WriteHub, KeepsARoutedBiasWhereTheReleaseLooksForIt) {
  const std::string name = "decoder.moe_layers.DeepSeekMoeBlock_0.MoeBlock_0.gate.bias";
  const std::map<std::string, std::string> newest = TreeOf(Written("deepseek_v3", "deepseek_v3_scanned_adamw_nnx", "adam"));
  EXPECT_EQ(newest.at("nnx_aux.model." + name), "F32 [3, 6]");
  EXPECT_EQ(newest.at("params.params." + name), "F32 [3, 6]");
  EXPECT_FALSE(newest.contains("opt_state.[0].mu.params." + name));
  for (const char* consumer : {"maxtext", "maxtext-linen"}) {
    TargetOptions options;
    options.consumer = consumer;
    if (options.consumer == "maxtext") options.consumer_version = "0.2.4";
    const TargetState target = Written("deepseek_v3", "deepseek_v3_scanned_adamw_nnx", "adam", options);
    const std::map<std::string, std::string> older = TreeOf(target);
    EXPECT_EQ(older.at("params.params." + name), "F32 [6, 3]");
    EXPECT_FALSE(older.contains("nnx_aux.model." + name));
    // Its moments are zero: no piece of it has a source.
    const std::int32_t mu = target.catalog.Find("opt_state.0.mu.params." + name);
    ASSERT_GE(mu, 0);
    const expr::Expr& zeros = target.exprs[static_cast<std::size_t>(mu)];
    for (const expr::Piece& piece : expr::PullBack(zeros, Box::Whole(zeros->shape))) EXPECT_LT(piece.leaf, 0);
  }
}

TEST(WriteHub, SetsTheStepAndBothCounters) {
  const TargetState adam = Written("qwen3", "qwen3_scanned_adamw_nnx", "adam");
  EXPECT_EQ(Count(adam, "step"), 7);
  EXPECT_EQ(Count(adam, "opt_state.0.count"), 5);
  EXPECT_EQ(Count(adam, "opt_state.2.count"), 7);
  TargetOptions options;
  options.iteration = 30;
  const TargetState muon = Written("qwen3", "qwen3_scanned_adamw_nnx", "muon", options);
  EXPECT_EQ(muon.unit_name, "30");
  EXPECT_EQ(Count(muon, "step"), 30);
  EXPECT_EQ(Count(muon, "opt_state.inner_states.muon.inner_state.0.count"), 5);
  EXPECT_EQ(Count(muon, "opt_state.inner_states.muon.inner_state.3.count"), 30);
  EXPECT_EQ(Scalar(muon, "opt_state.inner_states.muon.inner_state.0.ns_coeffs").Find("values")->as_sequence()->size(), 3U);
}

TEST(WriteHub, KeepsTheSourcesPartitionAndSaysWhereMaxTextsDiffers) {
  const Value golden = Golden("qwen3_scanned_adamw_nnx");
  HubState hub = Hub("qwen3", HfConfig(golden), "muon");
  for (HubTensor& tensor : hub.tensors) {  // all q/k/v with Adam in this source
    if (tensor.slot != Slot::kMuonMu || tensor.name.find("q_proj") == std::string::npos) continue;
    HubTensor nu = tensor;
    tensor.slot = Slot::kAdamMu;
    nu.slot = Slot::kAdamNu;
    hub.tensors.push_back(nu);
  }
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  EXPECT_THAT(target.notices, Contains(AllOf(HasSubstr("ATTENTION"), HasSubstr("query.kernel"))));
  EXPECT_EQ(TreeOf(target).at("opt_state.inner_states.adam.inner_state.0.nu.decoder.layers.self_attention.query.kernel"), "F32 [64, 3, 4, 24]");
}

TEST(WriteHub, RefusesOneArrayOfMuonAndAdam) {
  const Value golden = Golden("qwen3_scanned_adamw_nnx");
  HubState hub = Hub("qwen3", HfConfig(golden), "muon");
  for (HubTensor& tensor : hub.tensors) {
    if (tensor.slot == Slot::kMuonMu && tensor.name == "model.layers.1.mlp.up_proj.weight") tensor.slot = Slot::kAdamMu;
  }
  EXPECT_THAT(WriteHub(hub, {}), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("decoder.layers.mlp.wi_1.kernel"), HasSubstr("--no-scan-layers"))));
}

TEST(WriteHub, WidensWhatItScalesAndCastsWhatItIsTold) {
  const Value golden = Golden("llama_scanned_adamw_nnx");
  HubState hub = Hub("llama", HfConfig(golden), "");
  for (HubTensor& tensor : hub.tensors) tensor.expr = expr::Leaf(tensor.expr->leaf, tensor.dtype = DType::kBF16, tensor.shape);
  ASSERT_OK_AND_ASSIGN(const TargetState kept, WriteHub(hub, {}));
  const std::string query = "params.params.decoder.layers.self_attention.query.kernel";
  EXPECT_EQ(TreeOf(kept).at(query), "F32 [64, 3, 4, 24]");
  EXPECT_EQ(TreeOf(kept).at("params.params.decoder.layers.self_attention.value.kernel"), "BF16 [64, 3, 2, 24]");
  EXPECT_THAT(kept.notices, Contains(HasSubstr("computed in F32 and stored so")));
  TargetOptions options;
  options.dtype = DType::kBF16;
  ASSERT_OK_AND_ASSIGN(const TargetState narrow, WriteHub(hub, options));
  EXPECT_EQ(TreeOf(narrow).at(query), "BF16 [64, 3, 4, 24]");
  EXPECT_THAT(narrow.notices, Contains(HasSubstr("the way back gives other values")));
}

TEST(WriteHub, PadsTheVocabularyToMaxTextsOwn) {
  TargetOptions options;
  options.padded_vocab = 256;
  const TargetState target = Written("llama", "llama_scanned_adamw_nnx", "adam", options);
  const std::map<std::string, std::string> tree = TreeOf(target);
  EXPECT_EQ(tree.at("params.params.token_embedder.embedding"), "F32 [256, 64]");
  EXPECT_EQ(tree.at("params.params.decoder.logits_dense.kernel"), "F32 [64, 256]");
  EXPECT_EQ(tree.at("opt_state.[0].nu.params.token_embedder.embedding"), "F32 [256, 64]");
  options.padded_vocab = 249;
  EXPECT_THAT(WriteHub(Hub("llama", HfConfig(Golden("llama_scanned_adamw_nnx")), ""), options), IsError(ErrorCode::kUsage, HasSubstr("smaller than the vocabulary")));
}

TEST(WriteHub, RefusesWhatMaxTextHasNoPlaceFor) {
  Value config = HfConfig(Golden("qwen3_next_scanned_adamw_nnx"));
  config.Set("num_nextn_predict_layers", Value(1));
  EXPECT_THAT(WriteHub(Hub("qwen3_next", config, ""), {}), IsError(ErrorCode::kUnsupported, HasSubstr("--mtp drop")));
  config = HfConfig(Golden("qwen3_next_scanned_adamw_nnx"));
  config.Set("mlp_only_layers", Value::MakeList({Value(std::int64_t{1})}));
  EXPECT_THAT(WriteHub(Hub("qwen3_next", config, ""), {}), IsError(ErrorCode::kUnsupported, HasSubstr("model.layers.1.mlp.gate_proj.weight")));
  config = HfConfig(Golden("qwen3_next_scanned_adamw_nnx"));
  config.Set("shared_expert_intermediate_size", Value(std::int64_t{48}));
  EXPECT_THAT(WriteHub(Hub("qwen3_next", config, ""), {}), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("s == m"), HasSubstr("m = 40"), HasSubstr("s = 48"))));
  TargetOptions options;
  options.set_args["lr"] = "0.1";
  EXPECT_THAT(WriteHub(Hub("qwen3", HfConfig(Golden("qwen3_scanned_adamw_nnx")), ""), options), IsError(ErrorCode::kUsage, HasSubstr("stores no setting lr")));
  options.set_args = {{"opt_type", "adamw"}};
  EXPECT_THAT(WriteHub(Hub("qwen3", HfConfig(Golden("qwen3_scanned_adamw_nnx")), "muon"), options), IsError(ErrorCode::kUsage, HasSubstr("opt_type=muon")));
}

TEST(WriteHub, MastersBecomeTheParametersWhenAsked) {
  const Value golden = Golden("qwen3_scanned_adamw_nnx");
  HubState hub = Hub("qwen3", HfConfig(golden), "adam");
  std::int32_t leaf = 10000;
  std::vector<HubTensor> masters;
  for (HubTensor& tensor : hub.tensors) {
    if (tensor.slot != Slot::kParam) continue;
    tensor.expr = expr::Leaf(tensor.expr->leaf, tensor.dtype = DType::kBF16, tensor.shape);
    masters.push_back({tensor.name, Slot::kMaster, DType::kF32, tensor.shape, expr::Leaf(leaf++, DType::kF32, tensor.shape)});
  }
  hub.tensors.insert(hub.tensors.end(), masters.begin(), masters.end());
  ASSERT_OK_AND_ASSIGN(const TargetState model, WriteHub(hub, {}));
  EXPECT_EQ(TreeOf(model).at("params.params.token_embedder.embedding"), "BF16 [250, 64]");
  EXPECT_THAT(model.notices, Contains(HasSubstr("--params-from master writes them instead")));
  TargetOptions options;
  options.params_from_master = true;
  ASSERT_OK_AND_ASSIGN(const TargetState master, WriteHub(hub, options));
  EXPECT_EQ(TreeOf(master).at("params.params.token_embedder.embedding"), "F32 [250, 64]");
  EXPECT_GE(OriginOf(master, "params.params.token_embedder.embedding", {3, 4}).leaf, 10000);
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
