// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/registration_order.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Strings(const Value& list) {
  std::vector<std::string> strings;
  for (const Value& value : *list.as_sequence()) strings.push_back(*value.as_string());
  return strings;
}

/// Model and stage -> `named_parameters()` of the real GPTModel.
Value ReadOrders() {
  std::ifstream in(CROSSDOCK_SOURCE_DIR "/tests/golden/buckets/expected.json");
  std::stringstream text;
  text << in.rdbuf();
  const Result<Value> read = ParseJson(text.str());
  EXPECT_THAT(read, IsOk());
  return read ? *read->Find("orders") : Value::MakeDict();
}

/// The name that torch_dist gives a parameter of Megatron's own layers.
std::string GlobalName(std::string name) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  };
  replace("input_layernorm.", "self_attention.linear_qkv.layer_norm_");
  replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_");
  return name;
}

TEST(RegistrationOrderTest, IsTheRealModelsOrder) {
  const Value orders = ReadOrders();
  ASSERT_EQ(orders.as_dict()->items.size(), 16U);
  for (const auto& [name, stages] : orders.as_dict()->items) {
    SCOPED_TRACE(*name.as_string());
    const LayerSpec spec = name.as_string()->find("-local-") != std::string::npos ? LayerSpec::kLocal : LayerSpec::kTransformerEngine;
    for (const Value& stage : *stages.as_sequence()) {
      const std::vector<std::string> real = Strings(stage);
      std::vector<std::string> shuffled = real;
      std::sort(shuffled.begin(), shuffled.end());
      ASSERT_OK_AND_ASSIGN(const std::vector<std::string> sorted, InRegistrationOrder(shuffled, spec));
      EXPECT_EQ(sorted, real);
      std::vector<std::string> global;
      for (const std::string& own : real) global.push_back(GlobalName(own));
      std::vector<std::string> mixed = global;
      std::sort(mixed.begin(), mixed.end());
      ASSERT_OK_AND_ASSIGN(const std::vector<std::string> by_key, InRegistrationOrder(mixed, spec));
      EXPECT_EQ(by_key, global);
    }
  }
}

TEST(RegistrationOrderTest, LayersAreOrderedByNumberNotByText) {
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> sorted,
                       InRegistrationOrder({"decoder.layers.10.mlp.linear_fc2.weight", "decoder.layers.9.mlp.linear_fc2.weight"}, LayerSpec::kTransformerEngine));
  EXPECT_EQ(sorted.front(), "decoder.layers.9.mlp.linear_fc2.weight");
}

TEST(RegistrationOrderTest, ExpertsFollowTheirRouterByMatrixOrByNumber) {
  const std::string layer = "decoder.layers.0.";
  const auto order = [&](std::vector<std::string> names) {
    for (std::string& name : names) name = layer + name;
    std::vector<std::string> mixed = names;
    std::sort(mixed.begin(), mixed.end());
    const Result<std::vector<std::string>> sorted = InRegistrationOrder(mixed, LayerSpec::kTransformerEngine);
    EXPECT_THAT(sorted, IsOk());
    EXPECT_EQ(sorted ? *sorted : std::vector<std::string>(), names);
  };
  order({"input_layernorm.weight", "self_attention.linear_proj.weight", "self_attention.linear_q_down_proj.weight", "self_attention.linear_q_up_proj.layer_norm_weight",
         "self_attention.linear_q_up_proj.weight", "self_attention.linear_kv_down_proj.weight", "self_attention.linear_kv_up_proj.weight", "pre_mlp_layernorm.weight",
         "mlp.router.weight", "mlp.router.expert_bias", "mlp.experts.linear_fc1.weight0", "mlp.experts.linear_fc1.weight2", "mlp.experts.linear_fc1.weight10",
         "mlp.experts.linear_fc2.weight0", "mlp.shared_experts.gate_weight", "mlp.shared_experts.linear_fc1.weight", "mlp.shared_experts.linear_fc2.weight"});
  order({"mlp.router.weight", "mlp.experts.local_experts.2.linear_fc1.weight", "mlp.experts.local_experts.2.linear_fc2.weight",
         "mlp.experts.local_experts.10.linear_fc1.weight", "mlp.experts.local_experts.10.linear_fc2.weight"});
  order({"self_attention.core_attention.softmax_offset", "self_attention.linear_proj.weight", "self_attention.linear_proj.bias", "mlp.router.weight", "mlp.router.bias",
         "mlp.experts.linear_fc1.weight0", "mlp.experts.linear_fc1.bias0", "mlp.experts.linear_fc1.weight10", "mlp.experts.linear_fc1.bias10", "mlp.experts.linear_fc2.weight0",
         "mlp.experts.linear_fc2.bias0"});
  order({"mlp.experts.local_experts.2.linear_fc1.weight", "mlp.experts.local_experts.2.linear_fc1.bias", "mlp.experts.local_experts.2.linear_fc2.weight",
         "mlp.experts.local_experts.2.linear_fc2.bias", "mlp.experts.local_experts.10.linear_fc1.weight"});
}

TEST(RegistrationOrderTest, RefusesUnknownParametersByName) {
  for (const char* name : {"decoder.layers.0.mlp.experts.experts.linear_fc1.weight", "decoder.layers.0.mlp.experts.linear_fc1.weight",
                           "decoder.layers.0.mlp.experts.local_experts.1.linear_fc3.weight", "decoder.layers.mlp.linear_fc2.weight",
                           "decoder.layers.0.cross_attention.linear_q.weight", "mtp.layers.0.enorm.bias", "mtp.layers.0.other_layer.mlp.linear_fc2.weight", "mtp.enorm.weight"}) {
    EXPECT_THAT(InRegistrationOrder({name}, LayerSpec::kTransformerEngine), IsError(ErrorCode::kUnsupported, HasSubstr(name)));
  }
}

/// MultiTokenPredictionLayer: enorm, hnorm, eh_proj, the decoder layer within, final_layernorm; the block stands between decoder and head.
TEST(RegistrationOrderTest, LayersOfPredictionStandBeforeTheHead) {
  const std::vector<std::string> order = {"embedding.word_embeddings.weight", "decoder.layers.0.mlp.linear_fc2.weight", "decoder.final_layernorm.weight", "mtp.layers.0.enorm.weight",
                                          "mtp.layers.0.hnorm.weight", "mtp.layers.0.eh_proj.weight", "mtp.layers.0.mtp_model_layer.self_attention.linear_proj.weight",
                                          "mtp.layers.0.mtp_model_layer.mlp.experts.linear_fc1.weight0", "mtp.layers.0.mtp_model_layer.mlp.experts.linear_fc1.weight1",
                                          "mtp.layers.0.mtp_model_layer.mlp.experts.linear_fc2.weight0", "mtp.layers.0.final_layernorm.weight", "mtp.layers.1.enorm.weight", "output_layer.weight"};
  std::vector<std::string> mixed = order;
  std::sort(mixed.begin(), mixed.end());
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> sorted, InRegistrationOrder(mixed, LayerSpec::kTransformerEngine));
  EXPECT_EQ(sorted, order);
}

TEST(RegistrationOrderTest, TheSpecificationIsTheRunsOwn) {
  Value args = Value::MakeDict();
  EXPECT_EQ(LayerSpecOf(args), LayerSpec::kTransformerEngine);
  args.Set("transformer_impl", Value("local"));
  EXPECT_EQ(LayerSpecOf(args), LayerSpec::kLocal);
}

}  // namespace
}  // namespace crossdock::dialects::mcore
