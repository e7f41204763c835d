// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/tree_config.h"

#include "maxtext_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::maxtext {
namespace {

class TreeConfig : public ::testing::TestWithParam<std::string> {};

TEST_P(TreeConfig, FindsTheSizesThatMaxTextWasToldToHave) {
  const Value golden = Golden(GetParam());
  const Catalog source = Source(golden);
  ASSERT_OK_AND_ASSIGN(const Inventory inventory, TakeInventory(source, true));
  const Value config = ConfigFromTree(source, inventory, static_cast<int>(golden.GetInt("extra.param_scan_axis").value_or(1)));
  const bool latent = config.Find("kv_lora_rank") != nullptr;
  for (const auto& [key, value] : golden.Find("config")->as_dict()->items) {
    const std::string& name = *key.as_string();
    // Not to be seen in shapes, or of no consequence for them.
    if (name == "num_experts_per_tok" || name == "use_multimodal" || name == "mtp_num_layers" || name.ends_with("routing_groups") || name == "topk_routing_group") continue;
    if (name == "base_mlp_dim" && (golden.GetString("family") == "qwen3_moe" || config.Find("gdn_conv_kernel_dim") != nullptr)) continue;  // no dense layer
    if (name == "gdn_num_key_heads" || name == "gdn_key_head_dim") continue;  // only their product
    if (latent && name == "base_num_kv_heads") continue;
    if (name == "base_moe_mlp_dim" && *golden.GetString("family") == "gpt_oss") continue;  // MaxText's gpt-oss takes base_mlp_dim
    EXPECT_EQ(config.GetInt(name), value.as_int() != nullptr ? std::optional(*value.as_int()) : std::nullopt) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, TreeConfig, ::testing::ValuesIn(GoldenNames()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace crossdock::dialects::maxtext
