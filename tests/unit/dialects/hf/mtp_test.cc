// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/mtp.h"

#include <set>

#include "family/detect.h"
#include "model.h"

namespace crossdock::dialects::hf {
namespace {

const family::FamilyFile& DeepSeek() {
  for (const family::FamilyFile& file : family::BuiltinFamilies()) {
    if (file.name == "deepseek_v3") return file;
  }
  std::abort();
}

Value Config(int announced) {
  Value config = Json(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 8, "intermediate_size": 12, "moe_intermediate_size": 4,
    "n_routed_experts": 3, "n_shared_experts": 1, "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 2, "q_lora_rank": 4, "kv_lora_rank": 4,
    "qk_nope_head_dim": 2, "qk_rope_head_dim": 2, "v_head_dim": 2, "vocab_size": 10, "tie_word_embeddings": false})");
  config.Set("num_nextn_predict_layers", Value(announced));
  return config;
}

/// Every tensor of a model with `held` such layers, and a config.json that announces `announced`.
Catalog Source(int held, int announced) {
  Catalog out;
  out.root = "/source";
  out.objects["config.json"] = Config(announced);
  const auto model = family::EvaluateModel(DeepSeek(), {"hf", Config(held)});
  family::BindOptions options;
  options.dialect = "hf";
  const auto binding = family::Bind(DeepSeek(), *model, options);
  for (const family::HubTensor& tensor : binding->hub) {
    Add(&out, tensor.name, tensor.shape, tensor.name.ends_with("correction_bias") ? DType::kF32 : DType::kBF16);
  }
  for (const family::HubCopy& copy : binding->copies) Add(&out, copy.name, {10, 8});
  return out;
}

TEST(Mtp, CountsLayersByTensorsOfTheirOwn) {
  const auto model = family::EvaluateModel(DeepSeek(), {"hf", Config(0)});
  const std::set<std::string, std::less<>> names = {"model.layers.2.input_layernorm.weight", "model.layers.3.eh_proj.weight"};
  const auto has = [&](std::string_view name) { return names.contains(name); };
  EXPECT_EQ(CountMtpLayers(DeepSeek(), model->letters, has), 0);  // layer 2 looks like any other layer
  const std::set<std::string, std::less<>> two = {"model.layers.2.eh_proj.weight", "model.layers.3.enorm.weight"};
  EXPECT_EQ(CountMtpLayers(DeepSeek(), model->letters, [&](std::string_view name) { return two.contains(name); }), 2);
}

TEST(Mtp, WeightsDecideWhatTheConfigurationSays) {
  for (const auto& [held, announced] : {std::pair(0, 1), std::pair(2, 1), std::pair(1, 0)}) {
    ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(Source(held, announced), {}));
    EXPECT_EQ(hub.model.letters.at("mtp"), held);
    EXPECT_EQ(hub.config.values.GetInt("num_nextn_predict_layers"), held);
    EXPECT_THAT(hub.notices, ::testing::Contains(::testing::HasSubstr("multi-token prediction")));
    EXPECT_EQ(hub.copies.size(), static_cast<std::size_t>(2 * held));
  }
  ASSERT_OK_AND_ASSIGN(const HubState agreeing, ReadHub(Source(1, 1), {}));
  EXPECT_THAT(agreeing.notices, ::testing::Not(::testing::Contains(::testing::HasSubstr("multi-token prediction"))));
}

TEST(Mtp, CopiesPointAtWhatTheyRepeat) {
  const Catalog source = Source(1, 1);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  ASSERT_EQ(hub.copies.size(), 2U);
  EXPECT_EQ(hub.copies[0].entry, source.Find("model.layers.2.embed_tokens.weight"));
  EXPECT_EQ(hub.copies[0].original, source.Find("model.embed_tokens.weight"));
  EXPECT_EQ(hub.copies[1].original, source.Find("lm_head.weight"));
}

TEST(Mtp, DroppedWithTheirNumber) {
  const Catalog source = Source(1, 1);
  ASSERT_OK_AND_ASSIGN(HubState hub, ReadHub(source, {}));
  const std::size_t before = hub.tensors.size();
  ASSERT_THAT(DropMtp(&hub), IsOk());
  EXPECT_TRUE(std::none_of(hub.tensors.begin(), hub.tensors.end(), [](const HubTensor& t) { return t.name.starts_with("model.layers.2."); }));
  EXPECT_EQ(hub.config.values.GetInt("num_nextn_predict_layers"), 0);
  ASSERT_EQ(hub.left_out.back().reason, "left behind by --mtp drop");
  EXPECT_EQ(hub.left_out.back().count, static_cast<std::int64_t>(before - hub.tensors.size()));
}

}  // namespace
}  // namespace crossdock::dialects::hf
