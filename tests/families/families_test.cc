// SPDX-License-Identifier: Apache-2.0
// Every rule file: complete, invertible, each tensor claimed once, in every dialect and form; the cuts of all ranks
// cover each tensor. A new family needs a small configuration here and no other code.
#include <algorithm>
#include <map>
#include <set>

#include "expr/expr.h"
#include "expr/pull_back.h"
#include "family/bind.h"
#include "family/detect.h"
#include "family/rule_ops.h"
#include "result_matchers.h"

namespace crossdock::family {
namespace {

struct Case {
  const char* name;
  const char* config;
  std::int64_t parameters;  ///< elements of all hub tensors, counted by hand
};

/// Qwen3-Next and Qwen3.5: attention with gates, a gated delta net (of 16, 2 x 4 and 4 x 6, 4 taps), six experts with a shared one; and
/// the vision tower of Qwen3-VL without its deep stack.
constexpr std::int64_t kGated = 2 * 32 * 16 + 2 * 16 * 16 + 16 * 32 + 2 * 8;
constexpr std::int64_t kDelta = (2 * 8 + 2 * 24 + 2 * 4) * 16 + (2 * 8 + 24) * 4 + 2 * 4 + 6 + 16 * 24;
constexpr std::int64_t kRouted = 6 * 16 + 6 * 3 * 12 * 16 + 3 * 8 * 16 + 16;
constexpr std::int64_t kTower = 8 * 3 * 2 * 16 + 8 + 9 * 8 + 2 * 8 + 32 * 32 + 32 + 32 * 16 + 16 + 2 * (4 * 8 + 4 * 8 * 8 + 4 * 8 + 2 * 12 * 8 + 12 + 8);

constexpr Case kCases[] = {
    {"llama", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16)},
    {"mistral", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 4 * 32 * 16 + 3 * 24 * 16)},
    {"qwen2", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 4 * 16 + 16 + 2 * 4 + 3 * 24 * 16)},
    {"qwen3", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 3 * 24 * 16)},
    {"mixtral", R"({"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 8, "num_local_experts": 3, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 2 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 16 + 3 * 3 * 8 * 16)},
    // Layer 1 of three is dense.
    {"qwen3_moe", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
      "moe_intermediate_size": 8, "num_experts": 3, "mlp_only_layers": [1], "decoder_sparse_step": 1, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8) + 3 * 24 * 16 + 2 * (3 * 16 + 3 * 3 * 8 * 16)},
    {"qwen2_moe", R"({"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 24,
      "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12, "num_experts": 3, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 2 * (2 * 16 + 4 * 16 * 16 + 3 * 16 + 3 * 16 + 3 * 3 * 8 * 16 + 3 * 12 * 16 + 16)},
    // The first of three layers is dense; no low-rank query.
    {"deepseek_v2", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24, "moe_intermediate_size": 8, "n_routed_experts": 3,
      "n_shared_experts": 2, "first_k_dense_replace": 1, "kv_lora_rank": 6, "q_lora_rank": null, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 5, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 4 * 6 * 16 + 8 * 16 + 6 + 4 * 9 * 6 + 16 * 20) + 3 * 24 * 16 + 2 * (3 * 16 + 3 * 3 * 8 * 16 + 3 * 16 * 16)},
    {"deepseek_v3", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24, "moe_intermediate_size": 8, "n_routed_experts": 3,
      "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 6, "q_lora_rank": 7, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 5, "vocab_size": 50, "num_nextn_predict_layers": 1})",
     2 * 50 * 16 + 16 + 4 * (2 * 16 + 7 * 16 + 7 + 4 * 6 * 7 + 8 * 16 + 6 + 4 * 9 * 6 + 16 * 20) + 3 * 24 * 16 + 3 * (3 * 16 + 3 + 3 * 3 * 8 * 16 + 3 * 8 * 16) +
         3 * 16 + 16 * 32},
    {"phi3", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16)},
    {"glm4_moe", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "moe_intermediate_size": 8,
      "n_routed_experts": 3, "n_shared_experts": 2, "first_k_dense_replace": 1, "attention_bias": true, "use_qk_norm": true, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 32 + 2 * 16 + 2 * 8) + 3 * 24 * 16 + 2 * (3 * 16 + 3 + 3 * 3 * 8 * 16 + 3 * 16 * 16)},
    {"gpt_oss", R"({"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 8, "num_local_experts": 3, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 2 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 32 + 2 * 16 + 16 + 4 + 3 * 16 + 3 + 3 * (16 * 16 + 16 + 8 * 16 + 16))},
    {"minimax_m2", R"({"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 8, "num_local_experts": 3, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 2 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 32 + 16 + 3 * 16 + 3 + 3 * 3 * 8 * 16)},
    {"ling2", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "moe_intermediate_size": 8,
      "num_experts": 3, "num_shared_experts": 1, "first_k_dense_replace": 1, "use_qk_norm": true, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8) + 3 * 24 * 16 + 2 * (3 * 16 + 3 + 3 * 3 * 8 * 16 + 3 * 8 * 16)},
    {"ling3", R"({"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "linear_head_dim": 4, "short_conv_kernel_size": 3, "layer_group_size": 2, "intermediate_size": 24,
      "moe_intermediate_size": 8, "num_experts": 3, "num_shared_experts": 2, "first_k_dense_replace": 1, "kv_lora_rank": 6, "q_lora_rank": null, "qk_nope_head_dim": 4,
      "qk_rope_head_dim": 2, "v_head_dim": 5, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 4 * 2 * 16 + 2 * (3 * 8 * 16 + 3 * 8 * 3 + 2 * 8 * 16 + 2 * 16 + 2 + 8 + 4 + 16 * 8) + 2 * (2 * 6 * 16 + 8 * 16 + 6 + 2 * 9 * 6 + 2 * 16 + 16 * 10) +
         3 * 24 * 16 + 3 * (3 * 16 + 3 + 3 * 3 * 8 * 16 + 3 * 16 * 16)},
    // Layer 1 of three has experts.
    {"llama4", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 8, "intermediate_size_mlp": 24,
      "num_local_experts": 3, "moe_layers": [1], "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16) + 2 * 3 * 24 * 16 + 3 * 16 + 3 * 3 * 8 * 16 + 3 * 8 * 16},
    // Three layers, the last with attention: 2 key heads of 3, 4 value heads of 5; one layer of multi-token prediction.
    {"qwen3_5", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50,
      "layer_types": ["linear_attention", "linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 6,
      "mtp_num_hidden_layers": 1})",
     2 * 50 * 16 + 16 + 2 * kDelta + kGated + 3 * (2 * 16 + 3 * 24 * 16) + 2 * 16 * 16 + 3 * 16 + kGated + 2 * 16 + 3 * 24 * 16},
    {"qwen3_5_moe", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50, "moe_intermediate_size": 12, "num_experts": 6,
      "shared_expert_intermediate_size": 8, "full_attention_interval": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 6,
      "mtp_num_hidden_layers": 1})",
     2 * 50 * 16 + 16 + 2 * kDelta + kGated + 3 * (2 * 16 + kRouted) + 2 * 16 * 16 + 3 * 16 + kGated + 2 * 16 + kRouted},
    {"qwen3_next", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50, "moe_intermediate_size": 12,
      "num_experts": 6, "shared_expert_intermediate_size": 8, "mlp_only_layers": [1], "full_attention_interval": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4,
      "linear_value_head_dim": 6, "num_nextn_predict_layers": 1})",
     2 * 50 * 16 + 16 + 2 * kDelta + kGated + 3 * 2 * 16 + 2 * kRouted + 3 * 24 * 16 + 2 * 16 * 16 + 3 * 16 + kGated + 2 * 16 + kRouted},
    {"qwen3_5_vl", R"({"text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50,
      "full_attention_interval": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 6},
      "vision_config": {"depth": 2, "hidden_size": 8, "num_heads": 4, "intermediate_size": 12, "out_hidden_size": 16, "num_position_embeddings": 9, "patch_size": 4}})",
     2 * 50 * 16 + 16 + 2 * kDelta + kGated + 3 * (2 * 16 + 3 * 24 * 16) + kTower},
    {"qwen3_5_vl_moe", R"({"text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50, "moe_intermediate_size": 12,
      "num_experts": 6, "shared_expert_intermediate_size": 8, "full_attention_interval": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 6},
      "vision_config": {"depth": 2, "hidden_size": 8, "num_heads": 4, "intermediate_size": 12, "out_hidden_size": 16, "num_position_embeddings": 9, "patch_size": 4}})",
     2 * 50 * 16 + 16 + 2 * kDelta + kGated + 3 * (2 * 16 + kRouted) + kTower},
    {"olmo3", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 16 + 8 + 3 * 24 * 16)},
    {"gemma2", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (4 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 3 * 24 * 16)},
    {"gemma3", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (4 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 3 * 24 * 16)},
    // The older form: the text's sizes at the top. Two blocks; windows of 2 x 2 patches merge.
    {"qwen2_5_vl", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 24, "vocab_size": 50,
      "vision_config": {"depth": 2, "hidden_size": 8, "num_heads": 4, "intermediate_size": 12, "out_hidden_size": 16, "in_chans": 3, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 4 * 16 + 16 + 2 * 4 + 3 * 24 * 16) + 8 * 3 * 2 * 16 + 8 + 32 * 32 + 32 + 32 * 16 + 16 +
         2 * (2 * 8 + 4 * 8 * 8 + 4 * 8 + 3 * 12 * 8 + 2 * 12 + 8)},
    {"qwen3_vl", R"({"text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50},
      "vision_config": {"depth": 2, "hidden_size": 8, "num_heads": 4, "intermediate_size": 12, "out_hidden_size": 16, "num_position_embeddings": 9, "patch_size": 4,
      "deepstack_visual_indexes": [0, 1]}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 3 * 24 * 16) + 8 * 3 * 2 * 16 + 8 + 9 * 8 + 2 * 8 + 32 * 32 + 32 + 32 * 16 + 16 +
         2 * (4 * 8 + 4 * 8 * 8 + 4 * 8 + 2 * 12 * 8 + 12 + 8) + 2 * (2 * 32 + 32 * 32 + 32 + 32 * 16 + 16)},
    {"qwen3_vl_moe", R"({"text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50, "moe_intermediate_size": 12, "num_experts": 6, "num_experts_per_tok": 2},
      "vision_config": {"depth": 2, "hidden_size": 8, "num_heads": 4, "intermediate_size": 12, "out_hidden_size": 16, "num_position_embeddings": 9, "patch_size": 4,
      "deepstack_visual_indexes": [0, 1]}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 6 * 16 + 6 * 3 * 12 * 16) + 8 * 3 * 2 * 16 + 8 + 9 * 8 + 2 * 8 + 32 * 32 + 32 + 32 * 16 + 16 +
         2 * (4 * 8 + 4 * 8 * 8 + 4 * 8 + 2 * 12 * 8 + 12 + 8) + 2 * (2 * 32 + 32 * 32 + 32 + 32 * 16 + 16)},
    // InternVL: norms with biases, then q/k/v biases or q/k norms.
    {"internvl_qwen2", R"({"text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 50}, "vision_config": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 12, "image_size": [8, 8], "patch_size": [4, 4], "attention_bias": true}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 16 + 2 * 8 + 3 * 24 * 16) + 8 + 8 * 3 * 16 + 8 + 5 * 8 + 2 * (4 * 8 * 8 + 2 * 12 * 8 + 12 + 8 * 8) + 2 * 32 + 16 * 32 + 16 + 16 * 16 + 16 + 2 * 3 * 8},
    {"internvl_qwen3", R"({"text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50}, "vision_config": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 12, "image_size": [8, 8], "patch_size": [4, 4], "norm_type": "layer_norm"}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 3 * 24 * 16) + 8 + 8 * 3 * 16 + 8 + 5 * 8 + 2 * (4 * 8 * 8 + 2 * 12 * 8 + 12 + 8 * 8) + 2 * 32 + 16 * 32 + 16 + 16 * 16 + 16},
    {"internvl_qwen3_moe", R"({"text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50, "moe_intermediate_size": 12, "num_experts": 6, "num_experts_per_tok": 2}, "vision_config": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 12, "image_size": [8, 8], "patch_size": [4, 4], "use_qk_norm": true}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 6 * 16 + 6 * 3 * 12 * 16) + 8 + 8 * 3 * 16 + 8 + 5 * 8 + 2 * (4 * 8 * 8 + 2 * 12 * 8 + 12 + 8 * 8) + 2 * 32 + 16 * 32 + 16 + 16 * 16 + 16 + 2 * 2 * 8},
    {"internvl_chat_qwen2", R"({"llm_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 50}, "vision_config": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 12, "image_size": 8, "patch_size": 4, "qkv_bias": true}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 16 + 2 * 8 + 3 * 24 * 16) + 8 + 8 * 3 * 16 + 8 + 5 * 8 + 2 * (4 * 8 * 8 + 2 * 12 * 8 + 12 + 8 * 8) + 2 * 32 + 16 * 32 + 16 + 16 * 16 + 16 + 2 * 3 * 8},
    {"internvl_chat_qwen3", R"({"llm_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50}, "vision_config": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 12, "image_size": 8, "patch_size": 4}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 3 * 24 * 16) + 8 + 8 * 3 * 16 + 8 + 5 * 8 + 2 * (4 * 8 * 8 + 2 * 12 * 8 + 12 + 8 * 8) + 2 * 32 + 16 * 32 + 16 + 16 * 16 + 16},
    {"internvl_chat_qwen3_moe", R"({"llm_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50, "moe_intermediate_size": 12, "num_experts": 6, "num_experts_per_tok": 2}, "vision_config": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 12, "image_size": 8, "patch_size": 4, "qk_normalization": true}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 6 * 16 + 6 * 3 * 12 * 16) + 8 + 8 * 3 * 16 + 8 + 5 * 8 + 2 * (4 * 8 * 8 + 2 * 12 * 8 + 12 + 8 * 8) + 2 * 32 + 16 * 32 + 16 + 16 * 16 + 16 + 2 * 2 * 8},
    {"internlm2", R"({"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 50})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16)},
    {"internvl_chat_internlm2", R"({"llm_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 50}, "vision_config": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 12, "image_size": 8, "patch_size": 4}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16) + 8 + 8 * 3 * 16 + 8 + 5 * 8 + 2 * (4 * 8 * 8 + 2 * 12 * 8 + 12 + 8 * 8) + 2 * 32 + 16 * 32 + 16 + 16 * 16 + 16},
    {"llava_onevision1_5", R"({"text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50}, "vision_config": {"depth": 2, "embed_dim": 8, "hidden_size": 8, "num_heads": 2, "intermediate_size": 12, "text_hidden_size": 16, "patch_size": 4}})",
     2 * 50 * 16 + 16 + 3 * (2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 2 * 8 + 3 * 24 * 16) + 8 * 3 * 16 + 8 + 2 + 2 * 8 + 2 * 8 + 32 * 32 + 32 + 32 * 16 + 16 + 2 * (4 * 8 + 4 * 8 * 8 + 4 * 8 + 2 * 12 * 8 + 12 + 8)},
};

struct Form {
  std::string label;
  BindOptions options;
};

/// `consumers`: whose names Megatron's tensors have; empty = those that every family has.
std::vector<Form> Forms(const std::vector<std::string>& consumers = {}) {
  std::vector<Form> forms;
  for (const std::string& consumer : consumers) {
    BindOptions options;
    options.dialect = "mcore";
    options.padded_vocab = 56;
    options.consumer = consumer;
    forms.push_back({"mcore for " + consumer, options});
  }
  for (const bool stacked : {true, false}) {
    for (const bool split : {false, true}) {
      BindOptions options;
      options.dialect = "mcore";
      options.stacked_layers = stacked;
      options.padded_vocab = 56;
      options.split_gate_up = split;
      forms.push_back({"mcore", options});
    }
    for (const int axis : {0, 1}) {
      BindOptions options;
      options.dialect = "maxtext";
      options.stacked_layers = stacked;
      options.stack_axis = axis;
      forms.push_back({"maxtext", options});
    }
  }
  BindOptions identity;
  identity.dialect = "hf";
  forms.push_back({"hf", identity});
  return forms;
}

/// All elements of `root`, each as the leaf element it comes from; follows the pieces one by one.
using Origin = std::pair<int, Dims>;
std::map<Dims, Origin> Elements(const expr::Expr& root) {
  std::map<Dims, Origin> elements;
  for (const expr::Piece& piece : expr::PullBack(root, Box::Whole(root->shape))) {
    std::vector<std::int64_t> at(piece.loops.size(), 0);
    for (std::int64_t n = 0; n < piece.count(); ++n) {
      Dims to = piece.target_origin;
      Dims from = piece.leaf_origin;
      for (std::size_t i = 0; i < at.size(); ++i) {
        const expr::Loop& loop = piece.loops[i];
        to[static_cast<std::size_t>(loop.target_axis)] += at[i] * loop.target_step;
        if (piece.leaf >= 0) from[static_cast<std::size_t>(loop.leaf_axis)] += at[i] * loop.leaf_step;
      }
      EXPECT_TRUE(elements.emplace(to, Origin{piece.leaf, from}).second);
      for (std::size_t i = at.size(); i-- > 0;) {
        if (++at[i] < piece.loops[i].count) break;
        at[i] = 0;
      }
    }
  }
  return elements;
}

class FamiliesTest : public ::testing::TestWithParam<Case> {
 protected:
  const FamilyFile& family() const {
    std::vector<const FamilyFile*> all;
    for (const FamilyFile& one : BuiltinFamilies()) all.push_back(&one);
    return *FindFamily(GetParam().name, all);
  }
  Model model(std::vector<std::string> conditions) const {
    Model of_config = *EvaluateModel(family(), {"hf", *ParseJson(GetParam().config)});
    of_config.conditions = std::move(conditions);
    return of_config;
  }
  /// Nothing where the dialect cannot hold the family, or not in this form: then that must be refused.
  std::optional<Binding> BindIfPossible(const std::vector<std::string>& conditions, const Form& form) const {
    Result<Binding> binding = Bind(family(), model(conditions), form.options);
    if (binding) return *std::move(binding);
    EXPECT_EQ(binding.error().code, ErrorCode::kUnsupported) << form.label << ": " << binding.error().message;
    EXPECT_TRUE((form.options.stacked_layers && !model(conditions).Homogeneous()) || !HasTargets(form.options.dialect)) << form.label;
    return std::nullopt;
  }
  bool HasTargets(const std::string& dialect) const {
    const std::vector<std::string>& without = family().without;
    if (std::find(without.begin(), without.end(), dialect) != without.end()) return false;
    return dialect == "hf" || std::any_of(family().groups.begin(), family().groups.end(), [&](const Group& group) {
      return std::any_of(group.rows.begin(), group.rows.end(), [&](const Row& row) { return row.targets.at(dialect).name != "-"; });
    });
  }
  /// Whether the row of a hub tensor has nothing in a dialect. An included file has lines of its own: the name tells whose is meant.
  bool IsLeftOut(const HubTensor& tensor, const std::string& dialect) const {
    for (const Group& group : family().groups) {
      for (const Row& row : group.rows) {
        if (row.line != tensor.row_line || dialect == "hf" || row.targets.at(dialect).name != "-") continue;
        if (FitsAny({Wildcards(group.hub_prefix + row.hub)}, tensor.name)) return true;
      }
    }
    return false;
  }
  static std::string Wildcards(const std::string& pattern) {
    std::string out;
    for (std::size_t at = 0; at < pattern.size(); ++at) {
      if (pattern[at] == '{') at = pattern.find('}', at);
      out += pattern[at] == '}' ? '*' : pattern[at];
    }
    return out;
  }
  /// Every set of words; of many words none, each alone, and all.
  std::vector<std::vector<std::string>> condition_sets() const {
    std::vector<std::vector<std::string>> sets = {{}};
    constexpr std::size_t kFew = 3;
    if (family().conditions.size() > kFew) {
      std::vector<std::string> all;
      for (const auto& [word, rules] : family().conditions) {
        sets.push_back({word});
        all.push_back(word);
      }
      sets.push_back(std::move(all));
      return sets;
    }
    for (const auto& [word, rules] : family().conditions) {
      const std::size_t count = sets.size();
      for (std::size_t i = 0; i < count; ++i) {
        sets.push_back(sets[i]);
        sets.back().push_back(word);
      }
    }
    return sets;
  }
};

TEST_P(FamiliesTest, EveryBuiltinFamilyHasACase) {
  for (const FamilyFile& one : BuiltinFamilies()) {
    EXPECT_TRUE(std::any_of(std::begin(kCases), std::end(kCases), [&](const Case& c) { return one.name == c.name; })) << one.name;
  }
}

TEST_P(FamiliesTest, HoldsTheWholeModel) {
  Model whole = *EvaluateModel(family(), {"hf", *ParseJson(GetParam().config)});
  if (std::find(whole.conditions.begin(), whole.conditions.end(), "untied") == whole.conditions.end()) whole.conditions.emplace_back("untied");
  ASSERT_OK_AND_ASSIGN(const Binding binding, Bind(family(), whole, Forms().back().options));
  std::int64_t elements = 0;
  for (const HubTensor& tensor : binding.hub) elements += CheckedCount(tensor.shape);
  EXPECT_EQ(elements, GetParam().parameters);
}

TEST_P(FamiliesTest, EachTensorIsClaimedOnce) {
  for (const std::vector<std::string>& conditions : condition_sets()) {
    for (const Form& form : Forms(family().consumers)) {
      const std::optional<Binding> bound = BindIfPossible(conditions, form);
      if (!bound) continue;
      const Binding& binding = *bound;
      std::set<std::string> hub;
      std::set<std::string> targets;
      std::vector<int> uses(binding.hub.size(), 0);
      for (const HubTensor& tensor : binding.hub) EXPECT_TRUE(hub.insert(tensor.name).second) << tensor.name;
      for (const DialectTensor& tensor : binding.tensors) {
        EXPECT_TRUE(targets.insert(tensor.name).second) << tensor.name;
        if (tensor.repeats) continue;
        for (std::int32_t index : tensor.hub) {
          if (index < kFirstPart) ++uses[static_cast<std::size_t>(index)];
        }
      }
      // A hub tensor that lies in several tensors: each part of it once.
      std::set<std::pair<std::int32_t, std::int64_t>> parts;
      for (const HubPart& part : binding.parts) {
        EXPECT_TRUE(parts.insert({part.hub, part.at}).second) << binding.hub[static_cast<std::size_t>(part.hub)].name;
        if (part.at == 0) ++uses[static_cast<std::size_t>(part.hub)];
        EXPECT_TRUE(std::any_of(binding.parts.begin(), binding.parts.end(), [&](const HubPart& p) { return p.hub == part.hub && p.at == (part.at + 1) % part.of; }));
      }
      for (std::size_t i = 0; i < uses.size(); ++i) {
        const int wanted = IsLeftOut(binding.hub[i], form.options.dialect) ? 0 : 1;
        EXPECT_EQ(uses[i], wanted) << binding.hub[i].name << " in " << form.label;
      }
    }
  }
}

TEST_P(FamiliesTest, EachTargetComesBack) {
  for (const std::vector<std::string>& conditions : condition_sets()) {
    for (const Form& form : Forms(family().consumers)) {
      const std::optional<Binding> bound = BindIfPossible(conditions, form);
      if (!bound) continue;
      const Binding& binding = *bound;
      for (const DialectTensor& tensor : binding.tensors) {
        const std::map<Dims, Origin> forward = Elements(tensor.forward);
        for (std::int32_t index : tensor.hub) {
          ASSERT_OK_AND_ASSIGN(const expr::Expr back, expr::Inverse(tensor.forward, index));
          EXPECT_EQ(back->shape, index < kFirstPart ? binding.hub[static_cast<std::size_t>(index)].shape : binding.parts[static_cast<std::size_t>(index - kFirstPart)].shape);
          const std::map<Dims, Origin> inverse = Elements(back);
          EXPECT_EQ(static_cast<std::int64_t>(inverse.size()), CheckedCount(back->shape));
          for (const auto& [element, target] : inverse) {
            ASSERT_EQ(target.first, 0);
            const Origin& origin = forward.at(target.second);
            ASSERT_EQ(origin.first, index) << tensor.name;
            ASSERT_EQ(origin.second, element) << tensor.name;
          }
        }
      }
    }
  }
}

TEST_P(FamiliesTest, PartsJoinToTheirTensor) {
  for (const Form& form : Forms()) {
    const std::optional<Binding> bound = BindIfPossible({"untied"}, form);
    if (!bound) continue;
    for (const HubPart& part : bound->parts) {
      const expr::Expr whole = expr::Leaf(0, DType::kF32, bound->hub[static_cast<std::size_t>(part.hub)].shape);
      std::vector<expr::Expr> parts;
      for (std::int64_t at = 0; at < part.of; ++at) {
        ASSERT_OK_AND_ASSIGN(expr::Expr one, SplitPart(part.op, whole, at, bound->letters));
        if (at == part.at) {
          EXPECT_EQ(one->shape, part.shape);
        }
        parts.push_back(std::move(one));
      }
      ASSERT_OK_AND_ASSIGN(const expr::Expr joined, JoinParts(part.op, parts, bound->letters));
      for (const auto& [element, origin] : Elements(joined)) EXPECT_EQ(origin.second, element);
    }
  }
}

TEST_P(FamiliesTest, TheCutsOfAllRanksCoverEachTensor) {
  for (const Form& form : Forms(family().consumers)) {
    if (form.options.dialect != "mcore") continue;
    const std::optional<Binding> bound = BindIfPossible({"untied"}, form);
    if (!bound) continue;
    const Binding& binding = *bound;
    for (const int tp : {1, 2, 4}) {
      for (const DialectTensor& tensor : binding.tensors) {
        std::vector<Box> boxes;
        for (int rank = 0; rank < tp; ++rank) {
          ASSERT_OK_AND_ASSIGN(const std::vector<Box> cut, expr::ShardBoxes(tensor.forward, tp, rank));
          if (rank > 0 && cut == boxes) break;  // replicated
          boxes.insert(boxes.end(), cut.begin(), cut.end());
        }
        EXPECT_THAT(CheckCover(tensor.shape, boxes), IsOk()) << tensor.name << " at tp " << tp;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesTest, ::testing::ValuesIn(kCases), [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace crossdock::family
