// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_keys.h"

#include <gtest/gtest.h>

namespace crossdock::dialects::mcore {
namespace {

void Expect(const char* name, std::optional<std::int64_t> layer, const char* key, bool old) {
  const LegacyName meaning = ParseLegacyName(name);
  EXPECT_EQ(meaning.key, key) << name;
  EXPECT_EQ(meaning.layer, layer) << name;
  EXPECT_EQ(meaning.old, old) << name;
}

TEST(LegacyKeysTest, NamesOfMegatronCore) {
  Expect("embedding.word_embeddings.weight", std::nullopt, "embedding.word_embeddings.weight", false);
  Expect("decoder.layers.12.self_attention.linear_qkv.weight", 12, "self_attention.linear_qkv.weight", false);
  Expect("decoder.layers.0.input_layernorm.weight", 0, "input_layernorm.weight", false);
  Expect("decoder.layers.0.pre_mlp_layernorm.weight", 0, "pre_mlp_layernorm.weight", false);
  Expect("decoder.final_layernorm.weight", std::nullopt, "decoder.final_layernorm.weight", false);
  Expect("decoder.layers.x.weight", std::nullopt, "decoder.layers.x.weight", false);
}

TEST(LegacyKeysTest, ExpertsOfAllFormsMeanTheSame) {
  struct Case {
    const char* name;
    const char* key;
    std::optional<std::int64_t> expert;
    bool all = false;
  };
  for (const Case& c : std::vector<Case>{{"decoder.layers.3.mlp.experts.linear_fc1.weight11", "mlp.experts.experts.linear_fc1.weight", 11},
                                         {"decoder.layers.3.mlp.experts.local_experts.11.linear_fc2.weight", "mlp.experts.experts.linear_fc2.weight", 11},
                                         {"decoder.layers.3.mlp.experts.weight1", "mlp.experts.experts.linear_fc1.weight", std::nullopt, true},
                                         {"decoder.layers.3.mlp.experts.weight2", "mlp.experts.experts.linear_fc2.weight", std::nullopt, true},
                                         {"decoder.layers.3.mlp.shared_experts.linear_fc1.weight", "mlp.shared_experts.linear_fc1.weight", std::nullopt},
                                         {"decoder.layers.3.mlp.experts.linear_fc1.weight", "mlp.experts.linear_fc1.weight", std::nullopt},
                                         {"decoder.layers.3.mlp.experts.7", "mlp.experts.7", std::nullopt}}) {
    const LegacyName meaning = ParseLegacyName(c.name);
    EXPECT_EQ(meaning.layer, 3) << c.name;
    EXPECT_EQ(meaning.key, c.key) << c.name;
    EXPECT_EQ(meaning.expert, c.expert) << c.name;
    EXPECT_EQ(meaning.all_experts, c.all) << c.name;
  }
  Expect("mtp.layers.0.mtp_model_layer.self_attention.linear_proj.weight", std::nullopt, "mtp.layers.0.transformer_layer.self_attention.linear_proj.weight", false);
}

TEST(LegacyKeysTest, ALanguageModelBesideATowerIsNoneOfBeforeMegatronCore) {
  EXPECT_TRUE(IsOfLargerModel("vision_model.merger.linear_fc1.weight"));
  EXPECT_TRUE(IsOfLargerModel("language_model.decoder.layers.0.mlp.linear_fc1.weight"));
  EXPECT_TRUE(IsOfLargerModel("foundation_model.decoder.layers.0.mlp.linear_fc1.weight"));
  for (const char* name : {"language_model.embedding.word_embeddings.weight", "language_model.encoder.layers.0.mlp.dense_h_to_4h.weight", "decoder.layers.0.mlp.linear_fc1.weight"}) {
    EXPECT_FALSE(IsOfLargerModel(name)) << name;
  }
  const LegacyName layer = ParseLegacyName("language_model.decoder.layers.2.mlp.experts.linear_fc1.weight3", true);
  EXPECT_EQ(layer.prefix, "language_model.");
  EXPECT_EQ(layer.layer, 2);
  EXPECT_EQ(layer.expert, 3);
  EXPECT_EQ(layer.key, "mlp.experts.experts.linear_fc1.weight");
  EXPECT_FALSE(layer.old);
  const LegacyName embedding = ParseLegacyName("language_model.embedding.word_embeddings.weight", true);
  EXPECT_EQ(embedding.prefix + embedding.key, "language_model.embedding.word_embeddings.weight");
  EXPECT_FALSE(embedding.old);
  const LegacyName tower = ParseLegacyName("vision_model.decoder.layers.1.mlp.linear_fc1.bias", true);
  EXPECT_EQ(tower.key, "vision_model.decoder.layers.1.mlp.linear_fc1.bias");
  EXPECT_FALSE(tower.layer.has_value());
}

TEST(LegacyKeysTest, NamesOfBeforeMegatronCore) {
  Expect("language_model.embedding.word_embeddings.weight", std::nullopt, "embedding.word_embeddings.weight", true);
  for (const char* stack : {"encoder", "transformer"}) {
    const std::string layer = std::string("language_model.") + stack + ".layers.3.";
    Expect((layer + "input_norm.weight").c_str(), 3, "self_attention.linear_qkv.layer_norm_weight", true);
    Expect((layer + "post_attention_layernorm.weight").c_str(), 3, "mlp.linear_fc1.layer_norm_weight", true);
    Expect((layer + "attention.query_key_value.bias").c_str(), 3, "self_attention.linear_qkv.bias", true);
    Expect((layer + "self_attention.dense.weight").c_str(), 3, "self_attention.linear_proj.weight", true);
    Expect((layer + "mlp.dense_h_to_4h.weight").c_str(), 3, "mlp.linear_fc1.weight", true);
    Expect((layer + "mlp.dense_4h_to_h.weight").c_str(), 3, "mlp.linear_fc2.weight", true);
    Expect((std::string("language_model.") + stack + ".final_norm.weight").c_str(), std::nullopt, "decoder.final_layernorm.weight", true);
  }
  Expect("language_model.output_layer.weight", std::nullopt, "output_layer.weight", true);
  EXPECT_TRUE(ParseLegacyName("word_embeddings_for_head.weight").head_copy);
}

}  // namespace
}  // namespace crossdock::dialects::mcore
