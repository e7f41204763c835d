// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/muon_partition.h"

#include <algorithm>

#include "dialects/mcore/mcore_dialect.h"
#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool EndsHeadOrEmbedding(std::string_view name) { return name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight"); }

/// A full state whose matrices are Muon's. `also_adam` names one that has Adam's moments instead.
HubState MuonHub(std::string_view also_adam = "", std::string_view also_muon = "") {
  HubState hub = *HfHub("qwen3", TinyConfig("qwen3"), true);
  std::vector<HubTensor> made;
  for (HubTensor& tensor : hub.tensors) {
    const bool muon = (tensor.shape.size() == 2 && !EndsHeadOrEmbedding(tensor.name) && tensor.name != also_adam) || tensor.name == also_muon;
    if (muon && tensor.slot == Slot::kAdamNu) continue;
    if (muon && tensor.slot == Slot::kAdamMu) tensor.slot = Slot::kMuonMu;
    made.push_back(tensor);
  }
  hub.tensors = std::move(made);
  hub.optimizer = "muon";
  hub.counters.muon_count = 9;
  return hub;
}

TargetOptions WithMuonSettings() {
  TargetOptions options = WithAdamSettings();
  options.set_args["muon_momentum"] = "0.95";
  options.layout.tp = 2;
  return options;
}

TEST(MuonPartitionTest, MatricesGoToMuonAndTheRestToAdam) {
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(MuonHub(), WithMuonSettings()));
  EXPECT_NE(FindEntry(target.catalog, "optimizer.state.momentum_buffer.decoder.layers.self_attention.linear_qkv.weight"), nullptr);
  EXPECT_NE(FindEntry(target.catalog, "optimizer.state.fp32_param.decoder.layers.self_attention.linear_qkv.weight"), nullptr);
  EXPECT_EQ(FindEntry(target.catalog, "optimizer.state.exp_avg.decoder.layers.self_attention.linear_qkv.weight"), nullptr);
  EXPECT_NE(FindEntry(target.catalog, "optimizer.state.exp_avg_sq.decoder.layers.self_attention.linear_qkv.layer_norm_weight"), nullptr);
  EXPECT_NE(FindEntry(target.catalog, "optimizer.state.exp_avg.embedding.word_embeddings.weight"), nullptr);
  EXPECT_EQ(FindEntry(target.catalog, "optimizer.state.momentum_buffer.output_layer.weight"), nullptr);
  for (const std::string& notice : target.notices) EXPECT_EQ(notice.find("ATTENTION"), std::string::npos) << notice;
  const Value& common = target.catalog.objects.at("common");
  EXPECT_EQ(common.GetInt("crossdock_counters.muon_count"), 9);
  EXPECT_FALSE(common.Find("content_metadata")->GetString("distrib_optim_sharding_type").has_value());
  const Value& args = *common.Find("args")->as_opaque()->state;
  EXPECT_EQ(args.GetString("optimizer"), "muon");
  EXPECT_EQ(args.GetBool("use_distributed_optimizer"), false);
  EXPECT_THAT(target.load_line.front(), AllOf(HasSubstr(" --optimizer muon --muon-momentum 0.95"), ::testing::Not(HasSubstr("--use-distributed-optimizer"))));
}

TEST(MuonPartitionTest, WhatIsWrittenReadsBackElementByElement) {
  const HubState hub = MuonHub();
  ASSERT_OK_AND_ASSIGN(TargetState target, WriteHub(hub, WithMuonSettings()));
  target.catalog.objects["hf/config.json"] = TinyConfig("qwen3");
  ASSERT_OK_AND_ASSIGN(const HubState back, ReadHub(target.catalog, {}));
  EXPECT_EQ(back.counters, hub.counters);
  EXPECT_EQ(back.optimizer, "muon");
  ASSERT_EQ(back.tensors.size(), hub.tensors.size());
  for (std::size_t i = 0; i < hub.tensors.size(); ++i) {
    EXPECT_EQ(back.tensors[i].name, hub.tensors[i].name);
    EXPECT_EQ(back.tensors[i].slot, hub.tensors[i].slot);
    ASSERT_OK_AND_ASSIGN(const expr::Expr whole, expr::Substitute(back.tensors[i].expr, [&](int leaf) -> Result<expr::Expr> { return target.exprs[static_cast<std::size_t>(leaf)]; }));
    EXPECT_EQ(Elements(whole), Elements(hub.tensors[i].expr)) << hub.tensors[i].name;
  }
}

TEST(MuonPartitionTest, WhereMegatronsRuleDiffersTheSourceIsFollowedAndToldLoudly) {
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(MuonHub("", "lm_head.weight"), WithMuonSettings()));
  EXPECT_NE(FindEntry(target.catalog, "optimizer.state.momentum_buffer.output_layer.weight"), nullptr);
  EXPECT_EQ(FindEntry(target.catalog, "optimizer.state.exp_avg.output_layer.weight"), nullptr);
  const auto loud = [](const std::string& notice) { return notice.starts_with("ATTENTION: the source has Muon's momentum for 1 tensors") && notice.find("output_layer.weight") != std::string::npos; };
  EXPECT_TRUE(std::ranges::any_of(target.notices, loud));
}

TEST(MuonPartitionTest, PartsOfOneTensorOfBothAreRefused) {
  EXPECT_THAT(WriteHub(MuonHub("model.layers.1.self_attn.k_proj.weight"), WithMuonSettings()),
              IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("linear_qkv.weight"), HasSubstr("adam_mu of model.layers.1.self_attn.k_proj.weight"))));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
