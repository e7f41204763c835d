// SPDX-License-Identifier: Apache-2.0
#include "family/bind.h"

#include <algorithm>
#include <set>

#include "expr/pull_back.h"
#include "family/detect.h"
#include "result_matchers.h"

namespace crossdock::family {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const FamilyFile& Family(std::string_view name) {
  for (const FamilyFile& family : BuiltinFamilies()) {
    if (family.name == name) return family;
  }
  std::abort();
}

/// Model D of the user cases: 4 layers, 4 heads, 2 KV heads of size 4.
constexpr std::string_view kModel = R"({"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 24, "vocab_size": 50})";

Letters LettersOf(std::string_view name, std::string_view json = kModel, const char* words = "hf") {
  const Result<Value> config = ParseJson(json);
  const Result<Letters> letters = EvaluateLetters(Family(name), {words, *config});
  EXPECT_THAT(letters, IsOk());
  return letters ? *letters : Letters{};
}

BindOptions Mcore(std::int64_t padded) {
  BindOptions options;
  options.dialect = "mcore";
  options.padded_vocab = padded;
  return options;
}

const DialectTensor& Tensor(const Binding& binding, std::string_view name) {
  const auto found = std::find_if(binding.tensors.begin(), binding.tensors.end(), [&](const DialectTensor& t) { return t.name == name; });
  EXPECT_NE(found, binding.tensors.end()) << name;
  return found != binding.tensors.end() ? *found : binding.tensors.front();
}

/// The hub tensor and row that each row of a 2-D expression comes from.
std::vector<std::pair<int, std::int64_t>> RowsOf(const expr::Expr& root) {
  std::vector<std::pair<int, std::int64_t>> rows(static_cast<std::size_t>(root->shape[0]), {-2, -2});
  for (std::int64_t row = 0; row < root->shape[0]; ++row) {
    Box box = Box::Whole(root->shape);
    for (std::size_t axis = 0; axis < box.rank(); ++axis) box.sizes[axis] = 1;
    box.offsets[0] = row;
    const std::vector<expr::Piece> pieces = expr::PullBack(root, box);
    if (pieces.size() == 1) rows[static_cast<std::size_t>(row)] = {pieces[0].leaf, pieces[0].leaf < 0 ? -1 : pieces[0].leaf_origin[0]};
  }
  return rows;
}

TEST(LettersTest, FromHuggingFaceWords) {
  const Letters letters = LettersOf("llama", R"({"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 24, "vocab_size": 50, "num_key_value_heads": null, "head_dim": null})");
  EXPECT_EQ(letters.at("k"), 4);  // null counts as absent
  EXPECT_EQ(letters.at("d"), 4);
}

TEST(LettersTest, FromMegatronWords) {
  constexpr std::string_view kArgs = R"({"hidden_size": 16, "num_layers": 4, "num_attention_heads": 4, "num_query_groups": 1,
    "group_query_attention": false, "kv_channels": 8, "ffn_hidden_size": 24, "vocab_size": 50})";
  const Letters plain = LettersOf("llama", kArgs, "mcore");
  EXPECT_EQ(plain.at("k"), 4);  // num_query_groups is Megatron's default and does not count
  EXPECT_EQ(plain.at("d"), 8);
  std::string grouped(kArgs);
  grouped.replace(grouped.find("false"), 5, "true");
  EXPECT_EQ(LettersOf("llama", grouped, "mcore").at("k"), 1);
}

TEST(LettersTest, MissingAndSenselessValuesAreNamed) {
  const ModelConfig empty{"hf", Value::MakeDict()};
  EXPECT_THAT(EvaluateLetters(Family("llama"), empty), IsError(ErrorCode::kIncomplete, HasSubstr("intermediate_size")));
  const auto with = [](std::string_view json) { return ModelConfig{"hf", *ParseJson(json)}; };
  EXPECT_THAT(EvaluateLetters(Family("llama"), with(R"({"intermediate_size": -3})")), IsError(ErrorCode::kCorrupt, HasSubstr("-3")));
  EXPECT_THAT(EvaluateLetters(Family("llama"), with(R"({"intermediate_size": "many"})")), IsError(ErrorCode::kCorrupt, HasSubstr("many")));
  EXPECT_THAT(EvaluateLetters(Family("llama"), with(R"({"hidden_size": 17, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 24, "vocab_size": 50})")), IsError(ErrorCode::kCorrupt, HasSubstr("divides 17 by 4")));
}

TEST(LettersTest, MoreLayersThanAModelHasAreNoSize) {
  std::string deep(kModel);
  deep.replace(deep.find("\"num_hidden_layers\": 4"), 22, "\"num_hidden_layers\": 1000000000");
  EXPECT_THAT(EvaluateLetters(Family("llama"), {"hf", *ParseJson(deep)}),
              IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("num_hidden_layers"), HasSubstr("1 to 16384"), HasSubstr("1000000000"))));
}

TEST(LettersTest, HeadsThatMakeNoEqualGroupsAreNamedInTheWordsOfTheirSource) {
  constexpr std::string_view kArgs = R"({"hidden_size": 16, "num_layers": 4, "num_attention_heads": 4, "num_query_groups": 3,
    "group_query_attention": true, "kv_channels": 4, "ffn_hidden_size": 24, "vocab_size": 50})";
  EXPECT_THAT(EvaluateLetters(Family("llama"), {"mcore", *ParseJson(kArgs)}),
              IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("num_attention_heads"), HasSubstr("a multiple of num_query_groups 3"), HasSubstr("found 4"))));
}

TEST(ConditionsTest, TiedAndRotaryPairs) {
  const auto of = [](std::string_view json, const char* words) { return EvaluateConditions(Family("llama"), {words, *ParseJson(json)}); };
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> plain, of("{}", "hf"));
  EXPECT_THAT(plain, ElementsAre("untied"));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> tied, of(R"({"tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3"}})", "hf"));
  EXPECT_THAT(tied, ElementsAre("pairs"));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> mcore, of(R"({"untie_embeddings_and_output_weights": true})", "mcore"));
  EXPECT_THAT(mcore, ElementsAre("untied"));
}

TEST(BindTest, StackedMegatronNamesAndShapes) {
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(Family("qwen3"), {LettersOf("qwen3"), {"untied"}, {}}, Mcore(56)));
  std::map<std::string, Shape> shapes;
  for (const DialectTensor& tensor : binding.tensors) shapes[tensor.name] = tensor.shape;
  const std::map<std::string, Shape> expected = {
      {"decoder.final_layernorm.weight", {16}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_weight", {4, 16}},
      {"decoder.layers.mlp.linear_fc1.weight", {4, 48, 16}},
      {"decoder.layers.mlp.linear_fc2.weight", {4, 16, 24}},
      {"decoder.layers.self_attention.k_layernorm.weight", {4, 4}},
      {"decoder.layers.self_attention.linear_proj.weight", {4, 16, 16}},
      {"decoder.layers.self_attention.linear_qkv.layer_norm_weight", {4, 16}},
      {"decoder.layers.self_attention.linear_qkv.weight", {4, 32, 16}},
      {"decoder.layers.self_attention.q_layernorm.weight", {4, 4}},
      {"embedding.word_embeddings.weight", {56, 16}},
      {"output_layer.weight", {56, 16}}};
  EXPECT_EQ(shapes, expected);
  EXPECT_EQ(binding.hub.size(), 3U + 4U * 11U);
  EXPECT_TRUE(Tensor(binding, "output_layer.weight").padded_rows);
  EXPECT_EQ(Tensor(binding, "decoder.layers.self_attention.linear_qkv.weight").stack_axis, 0);
}

TEST(BindTest, NumberedLayersAndHalves) {
  BindOptions options = Mcore(50);
  options.stacked_layers = false;
  options.split_gate_up = true;
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(Family("llama"), {LettersOf("llama"), {}, {}}, options));
  EXPECT_EQ(Tensor(binding, "decoder.layers.3.mlp.linear_fc1.weight_v").shape, (Shape{24, 16}));
  EXPECT_EQ(Tensor(binding, "decoder.layers.3.mlp.linear_fc1.weight_v").first_layer, 3);
  EXPECT_EQ(binding.hub[static_cast<std::size_t>(Tensor(binding, "decoder.layers.3.mlp.linear_fc1.weight_v").hub[0])].name,
            "model.layers.3.mlp.up_proj.weight");
  for (const DialectTensor& tensor : binding.tensors) EXPECT_NE(tensor.name, "output_layer.weight");
}

TEST(BindTest, QueryGroupsOneByOne) {
  BindOptions options = Mcore(50);
  options.stacked_layers = false;
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(Family("qwen2"), {LettersOf("qwen2"), {}, {}}, options));
  for (const char* kind : {"weight", "bias"}) {
    const DialectTensor& tensor = Tensor(binding, std::string("decoder.layers.0.self_attention.linear_qkv.") + kind);
    ASSERT_EQ(tensor.hub.size(), 3U);
    const int q = tensor.hub[0];
    const int k = tensor.hub[1];
    const int v = tensor.hub[2];
    std::vector<std::pair<int, std::int64_t>> expected;  // q0 q1 k0 v0 q2 q3 k1 v1, four rows each
    for (const auto& [leaf, head] : {std::pair{q, 0}, {q, 1}, {k, 0}, {v, 0}, {q, 2}, {q, 3}, {k, 1}, {v, 1}}) {
      for (int row = 0; row < 4; ++row) expected.emplace_back(leaf, head * 4 + row);
    }
    EXPECT_EQ(RowsOf(tensor.forward), expected) << kind;
  }
}

TEST(BindTest, CutsFollowTheOperations) {
  BindOptions options = Mcore(56);
  options.stacked_layers = false;
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(Family("qwen3"), {LettersOf("qwen3"), {"untied"}, {}}, options));
  const auto boxes = [&](std::string_view name, int rank) {
    const Result<std::vector<Box>> cut = expr::ShardBoxes(Tensor(binding, name).forward, 2, rank);
    EXPECT_THAT(cut, IsOk()) << name;
    return cut ? *cut : std::vector<Box>{};
  };
  EXPECT_THAT(boxes("decoder.layers.0.mlp.linear_fc1.weight", 1), ElementsAre(Box{{12, 0}, {12, 16}}, Box{{36, 0}, {12, 16}}));
  EXPECT_THAT(boxes("decoder.layers.0.mlp.linear_fc2.weight", 1), ElementsAre(Box{{0, 12}, {16, 12}}));
  EXPECT_THAT(boxes("decoder.layers.0.self_attention.linear_qkv.weight", 1), ElementsAre(Box{{16, 0}, {16, 16}}));
  EXPECT_THAT(boxes("decoder.layers.0.self_attention.linear_proj.weight", 0), ElementsAre(Box{{0, 0}, {16, 8}}));
  EXPECT_THAT(boxes("embedding.word_embeddings.weight", 1), ElementsAre(Box{{28, 0}, {28, 16}}));
  EXPECT_THAT(boxes("decoder.layers.0.self_attention.q_layernorm.weight", 1), ElementsAre(Box{{0}, {4}}));
}

TEST(BindTest, MaxTextShapesAndRotaryPairs) {
  BindOptions options;
  options.dialect = "maxtext";
  options.stack_axis = 1;
  ASSERT_OK_AND_ASSIGN(const Binding stacked, Bind(Family("llama"), {LettersOf("llama"), {"untied", "pairs"}, {}}, options));
  EXPECT_EQ(Tensor(stacked, "decoder.layers.self_attention.query.kernel").shape, (Shape{16, 4, 4, 4}));
  EXPECT_EQ(Tensor(stacked, "decoder.layers.self_attention.key.kernel").shape, (Shape{16, 4, 2, 4}));
  EXPECT_EQ(Tensor(stacked, "decoder.layers.self_attention.out.kernel").shape, (Shape{4, 4, 4, 16}));
  EXPECT_EQ(Tensor(stacked, "decoder.layers.pre_self_attention_layer_norm.scale").shape, (Shape{16, 4}));
  EXPECT_EQ(Tensor(stacked, "decoder.logits_dense.kernel").shape, (Shape{16, 50}));
  EXPECT_TRUE(expr::IsInexact(Tensor(stacked, "decoder.layers.self_attention.query.kernel").forward));
  EXPECT_FALSE(expr::IsInexact(Tensor(stacked, "decoder.layers.self_attention.key.kernel").forward));

  options.stacked_layers = false;
  ASSERT_OK_AND_ASSIGN(const Binding single, Bind(Family("llama"), {LettersOf("llama"), {"pairs"}, {}}, options));
  const DialectTensor& key = Tensor(single, "decoder.layers_2.self_attention.key.kernel");
  std::vector<std::int64_t> rows;  // head 1 of key: rows 4..7 in the order 4 6 5 7
  for (std::int64_t c = 0; c < 4; ++c) {
    const std::vector<expr::Piece> pieces = expr::PullBack(key.forward, {{3, 1, c}, {1, 1, 1}});
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].leaf_origin[1], 3);
    rows.push_back(pieces[0].leaf_origin[0]);
  }
  EXPECT_THAT(rows, ElementsAre(4, 6, 5, 7));
}

TEST(BindTest, ImpossiblePaddingAndSizesAreRefused) {
  EXPECT_THAT(Bind(Family("llama"), {LettersOf("llama"), {}, {}}, Mcore(49)), IsError(ErrorCode::kUsage, HasSubstr("at least 50")));
  Letters odd = LettersOf("llama");
  odd["q"] = 3;
  EXPECT_THAT(Bind(Family("llama"), {odd, {}, {}}, Mcore(50)), IsError(ErrorCode::kUsage, HasSubstr("qkv")));
  Letters deep = LettersOf("llama");
  deep["layers"] = 1000000;
  EXPECT_THAT(Bind(Family("llama"), {deep, {}, {}}, Mcore(50)), IsError(ErrorCode::kUsage, HasSubstr("at most")));
  BindOptions unknown;
  unknown.dialect = "tunix";
  EXPECT_THAT(Bind(Family("llama"), {LettersOf("llama"), {}, {}}, unknown), IsError(ErrorCode::kUnsupported, HasSubstr("tunix")));
}

/// Two dense layers among experts, a fused tensor of [Q; K; V], and a part with numbers of its own.
constexpr std::string_view kMixed = R"(
family = "mixed"
[letters]
layers = { hf = "layers" }
experts = { hf = "experts" }
extra = { hf = "extra", default = "0" }
h = { hf = "h" }
m = { hf = "m" }
q = { hf = "q" }
k = { hf = "k" }
[layer_kinds]
moe = { hf = "l % 2 == 1" }
[conditions]
shared = { hf = "shared" }
[[group]]
index = "l in 0..layers"
hub = "h.{l}."
mcore = "d.{l}."
maxtext = "m."
rules = [
  ["qkv", "(q+2*k)*2,h", "qkv : qkv_cat", "-"],
  ["norm ? moe", "h", "pre_norm", "-"],
  ["norm ? !moe", "h", "fc1_norm", "-"],
  ["gate ? moe && shared", "1,h", "gate", "-"],
]
[[group]]
index = "l in 0..layers if moe, e in 0..experts"
hub = "h.{l}.e.{e}."
mcore = "d.{l}.experts."
maxtext = "m."
rules = [["{g,u}", "m,h", "fc1 : gate_up", "{wi_0,wi_1} : T"], ["w", "h,m", "fc2 : row", "wo : T"]]
[[group]]
index = "i in 0..extra"
hub = "h.{layers+i}."
mcore = "mtp.{i}."
rules = [["x", "h", "x", "-"]]
)";

Model MixedModel(const FamilyFile& family) {
  const Result<Model> model = EvaluateModel(family, {"hf", *ParseJson(R"({"layers": 4, "experts": 3, "extra": 1, "h": 4, "m": 2, "q": 2, "k": 1, "shared": true})")});
  EXPECT_THAT(model, IsOk());
  return model ? *model : Model{};
}

TEST(BindTest, LayersOfDifferentKindsAreNumbered) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile family, ParseFamilyFile(kMixed, "mixed.toml"));
  const Model model = MixedModel(family);
  EXPECT_FALSE(model.Homogeneous());
  BindOptions options = Mcore(0);
  EXPECT_THAT(Bind(family, model, options), IsOk());  // no name is used by both kinds here
  options.stacked_layers = false;
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(family, model, options));
  std::set<std::string> names;
  for (const DialectTensor& tensor : binding.tensors) names.insert(tensor.name);
  const std::set<std::string> wanted = {"d.0.qkv", "d.0.fc1_norm", "d.1.qkv", "d.1.pre_norm", "d.1.gate", "d.1.experts.fc1", "d.1.experts.fc2", "d.2.qkv",
                                        "d.2.fc1_norm", "d.3.qkv", "d.3.pre_norm", "d.3.gate", "d.3.experts.fc1", "d.3.experts.fc2", "mtp.0.x"};
  EXPECT_EQ(names, wanted);
  EXPECT_EQ(binding.hub.back().name, "h.4.x");
  const DialectTensor& fc1 = Tensor(binding, "d.3.experts.fc1");
  EXPECT_EQ(fc1.shape, (Shape{3, 4, 4}));
  EXPECT_EQ(fc1.expert_axis, 0);
  EXPECT_EQ(fc1.stack_axis, -1);
  EXPECT_EQ(fc1.first_layer, 3);
}

TEST(BindTest, ExpertsAndLayersAreStackedWhereTheDialectSays) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile family, ParseFamilyFile(kMixed, "mixed.toml"));
  const Model model = MixedModel(family);
  ASSERT_OK_AND_ASSIGN(const Binding mcore, Bind(family, model, Mcore(0)));
  const DialectTensor& fc1 = Tensor(mcore, "d.experts.fc1");
  EXPECT_EQ(fc1.shape, (Shape{2, 3, 4, 4}));       // layers, experts
  EXPECT_EQ(fc1.expert_axis, 1);
  EXPECT_EQ(fc1.stack_axis, 0);
  BindOptions options;
  options.dialect = "maxtext";
  options.stack_axis = 1;
  ASSERT_OK_AND_ASSIGN(const Binding maxtext, Bind(family, model, options));
  const DialectTensor& wi = Tensor(maxtext, "m.wi_0");
  EXPECT_EQ(wi.shape, (Shape{3, 2, 4, 2}));        // experts, layers
  EXPECT_EQ(wi.expert_axis, 0);
  EXPECT_EQ(wi.stack_axis, 1);
  ASSERT_OK_AND_ASSIGN(const auto inverses, expr::Inverses(wi.forward));
  EXPECT_EQ(inverses.size(), 6U);
}

TEST(BindTest, ExpertsByNumber) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile family, ParseFamilyFile(kMixed, "mixed.toml"));
  BindOptions options = Mcore(0);
  options.stacked_layers = false;
  options.stacked_experts = false;
  options.split_gate_up = true;
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(family, MixedModel(family), options));
  EXPECT_EQ(Tensor(binding, "d.1.experts.2.fc1_w").shape, (Shape{2, 4}));
  EXPECT_EQ(Tensor(binding, "d.1.experts.2.fc1_v").expert_axis, -1);
}

/// The letters of a DeepSeek-V3 with one layer of multi-token prediction behind two of its own.
Model Prediction() {
  const Result<Value> config = ParseJson(R"({"hidden_size": 8, "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 2, "intermediate_size": 12,
    "moe_intermediate_size": 4, "n_routed_experts": 3, "n_shared_experts": 1, "q_lora_rank": 4, "kv_lora_rank": 4, "qk_nope_head_dim": 2, "qk_rope_head_dim": 2,
    "v_head_dim": 2, "vocab_size": 10, "num_nextn_predict_layers": 1})");
  const Result<Model> model = EvaluateModel(Family("deepseek_v3"), {"hf", *config});
  EXPECT_THAT(model, IsOk());
  return *model;
}

TEST(BindTest, PredictionLayersFollowTheDecoderAndNameTheirCopies) {
  BindOptions options = Mcore(16);
  options.stacked_layers = false;
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(Family("deepseek_v3"), Prediction(), options));
  const DialectTensor& projection = Tensor(binding, "mtp.layers.0.eh_proj.weight");
  EXPECT_EQ(projection.shape, (Shape{8, 16}));
  EXPECT_EQ(binding.hub[static_cast<std::size_t>(projection.hub.front())].name, "model.layers.2.eh_proj.weight");
  const DialectTensor& experts = Tensor(binding, "mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc1.weight");
  EXPECT_EQ(experts.shape, (Shape{3, 8, 8}));
  EXPECT_EQ(experts.expert_axis, 0);
  ASSERT_EQ(binding.copies.size(), 2U);
  EXPECT_EQ(binding.copies[0].name, "model.layers.2.embed_tokens.weight");
  EXPECT_EQ(binding.copies[1].of, "lm_head.weight");
  EXPECT_TRUE(std::none_of(binding.hub.begin(), binding.hub.end(), [&](const HubTensor& t) { return t.name == binding.copies[0].name; }));
}

TEST(BindTest, SpellingsJoinExpertsAndComeBack) {
  const Result<Value> config = ParseJson(R"({"hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2,
    "intermediate_size": 12, "moe_intermediate_size": 4, "num_experts": 3, "vocab_size": 10})");
  ASSERT_OK_AND_ASSIGN(const Model model, EvaluateModel(Family("qwen3_moe"), {"hf", *config}));
  for (const auto& [spelling, shape] : {std::pair("fused", Shape{3, 8, 6}), std::pair("fused_T", Shape{3, 6, 8})}) {
    BindOptions options;
    options.dialect = "hf";
    options.spellings = {spelling};
    ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(Family("qwen3_moe"), model, options));
    const DialectTensor& joined = Tensor(binding, "model.layers.1.mlp.experts.gate_up_proj");
    EXPECT_EQ(joined.shape, shape);
    EXPECT_EQ(joined.hub.size(), 6U);
    ASSERT_OK_AND_ASSIGN(const auto inverses, expr::Inverses(joined.forward));
    for (const std::int32_t ordinal : joined.hub) EXPECT_EQ(inverses.at(ordinal)->shape, (Shape{4, 6}));
    EXPECT_TRUE(std::none_of(binding.tensors.begin(), binding.tensors.end(), [](const DialectTensor& t) { return t.name.find("experts.0.") != std::string::npos; }));
  }
}

TEST(BindTest, WholeQkvTakesTheOrderOfGroupsAndComesBack) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile family, ParseFamilyFile(kMixed, "mixed.toml"));
  BindOptions options = Mcore(0);
  options.stacked_layers = false;
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(family, MixedModel(family), options));
  const DialectTensor& qkv = Tensor(binding, "d.0.qkv");
  ASSERT_EQ(qkv.hub.size(), 1U);
  ASSERT_OK_AND_ASSIGN(const expr::Expr back, expr::Inverse(qkv.forward, qkv.hub[0]));
  EXPECT_EQ(back->shape, (Shape{8, 4}));
  ASSERT_OK_AND_ASSIGN(const expr::Expr around, expr::Substitute(back, [&](int) -> Result<expr::Expr> { return qkv.forward; }));
  const auto rows = RowsOf(around);
  for (std::size_t row = 0; row < rows.size(); ++row) EXPECT_EQ(rows[row].second, static_cast<std::int64_t>(row));
}

}  // namespace
}  // namespace crossdock::family
