// SPDX-License-Identifier: Apache-2.0
#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReadHub, TakesEveryTensorOfTheFamily) {
  const Catalog source = TinyModel();
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  EXPECT_EQ(hub.family->name, "qwen3");
  EXPECT_EQ(hub.tensors.size(), source.entries.size());
  EXPECT_EQ(hub.order.size(), source.entries.size());
  EXPECT_EQ(hub.order.front(), "model.embed_tokens.weight");
  EXPECT_THAT(hub.left_out, IsEmpty());
  EXPECT_FALSE(hub.tied.has_value());
  const HubTensor* q = FindHub(hub, "model.layers.1.self_attn.q_proj.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(expr::LeafOrdinals(q->expr), std::vector<int>{source.Find(q->name)});
}

TEST(ReadHub, ReportsAllThatIsWrongTogether) {
  Catalog source = TinyModel();
  Remove(&source, "model.norm.weight");
  Remove(&source, "model.layers.0.mlp.up_proj.weight");
  Remove(&source, "model.layers.1.self_attn.q_norm.weight");
  Add(&source, "model.layers.1.self_attn.q_norm.weight", {5});
  Add(&source, "model.surprise", {1});
  EXPECT_THAT(ReadHub(source, {}),
              IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("2 tensors of the model are missing"), HasSubstr("model.norm.weight"),
                                                    HasSubstr("expected [4], found [5]"), HasSubstr("`model.surprise`"))));
}

TEST(ReadHub, UnknownTensorsAreRefusedUnlessAllowed) {
  Catalog source = TinyModel();
  Add(&source, "surprise", {3}, DType::kI64);
  EXPECT_THAT(ReadHub(source, {}), IsError(ErrorCode::kUnsupported, HasSubstr("`surprise`")));
  ReadOptions options;
  options.allow_unknown_tensors = true;
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, options));
  ASSERT_EQ(hub.left_out.size(), 1U);
  EXPECT_EQ(hub.left_out[0].name, "surprise");
  EXPECT_EQ(hub.left_out[0].bytes, 24);
}

TEST(ReadHub, LeavesBuffersOutByReason) {  // user case B43
  Catalog source = TinyModel();
  Add(&source, "model.layers.0.self_attn.rotary_emb.inv_freq", {2}, DType::kF32);
  Add(&source, "model.layers.1.self_attn.rotary_emb.inv_freq", {2}, DType::kF32);
  Add(&source, "model.layers.0.attn.masked_bias", {}, DType::kF32);
  Add(&source, "model.layers.0.mlp._extra_state", {3}, DType::kU8);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  ASSERT_EQ(hub.left_out.size(), 3U);
  for (const LeftOut& left : hub.left_out) EXPECT_FALSE(left.reason.empty());
  EXPECT_EQ(FindHub(hub, "model.layers.0.mlp._extra_state"), nullptr);
}

TEST(ReadHub, RemembersATiedHead) {  // user case B31
  Catalog source = TinyModel();
  source.objects["config.json"].Set("tie_word_embeddings", Value(true));
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  ASSERT_TRUE(hub.tied.has_value());
  EXPECT_EQ(hub.tied->head, source.Find("lm_head.weight"));
  EXPECT_EQ(hub.tied->embedding, source.Find("model.embed_tokens.weight"));
  EXPECT_EQ(FindHub(hub, "lm_head.weight"), nullptr);
}

TEST(ReadHub, AcceptsNamesWithoutThePrefix) {
  Catalog source = TinyModel();
  for (Entry& entry : source.entries) {
    if (entry.name.starts_with("model.")) entry.name.erase(0, 6);
  }
  source.SortEntries();
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  EXPECT_NE(FindHub(hub, "model.norm.weight"), nullptr);
  EXPECT_THAT(hub.notices, Contains(HasSubstr("lack the prefix")));
}

TEST(ReadHub, RefusesWhatItCannotCarry) {
  Catalog quantized = TinyModel();
  quantized.objects["config.json"].Set("quantization_config", Json(R"({"quant_method": "awq"})"));
  EXPECT_THAT(ReadHub(quantized, {}), IsError(ErrorCode::kUnsupported, HasSubstr("awq")));
  Catalog integers = TinyModel();
  Remove(&integers, "model.norm.weight");
  Add(&integers, "model.norm.weight", {8}, DType::kI8);
  EXPECT_THAT(ReadHub(integers, {}), IsError(ErrorCode::kUnsupported, HasSubstr("I8")));
  Catalog bare = TinyModel();
  bare.objects.clear();
  EXPECT_THAT(ReadHub(bare, {}), IsError(ErrorCode::kIncomplete, HasSubstr("--hf-template")));
}

TEST(ReadHub, TakesSizesFromTheTensorsWhenOnlyATemplateIsThere) {  // user case B45
  Catalog source = TinyModel();
  source.objects.clear();
  ReadOptions options;
  options.template_config = family::ModelConfig{"hf", TinyConfig()};
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"}) {
    options.template_config->values.Set(key, Value(1000));
  }
  options.template_config->values.Set("num_hidden_layers", Value(36));
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, options));
  EXPECT_EQ(hub.model.letters.at("layers"), 2);
  EXPECT_EQ(hub.model.letters.at("h"), 8);
  EXPECT_EQ(hub.model.letters.at("q"), 4);
  EXPECT_EQ(hub.config.values.GetInt("vocab_size"), 10);
  EXPECT_THAT(hub.notices, Contains(HasSubstr("the tensors the sizes")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
