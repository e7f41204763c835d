// SPDX-License-Identifier: Apache-2.0
/// \file  Chooses the family of a checkpoint from what a dialect read.
#pragma once

#include <string>
#include <vector>

#include "crossdock/result.h"
#include "family/family_file.h"
#include "family/model_config.h"

namespace crossdock::family {

/// By `architectures` (or `model_type`) and `when` of a config.json. kUnsupported lists the supported ones; two
/// matches are kUnsupported too, naming both and `--family`.
[[nodiscard]] Result<const FamilyFile*> DetectByConfig(const ModelConfig& config, const std::vector<const FamilyFile*>& families);

/// Facts about a Megatron checkpoint that names no architecture.
struct McoreFacts {
  bool qk_layernorm = false;
  bool qkv_bias = false;
  bool experts = false;
  bool mla = false;
  bool expert_bias = false;    ///< mlp.router.expert_bias
  bool shared_gate = false;    ///< mlp.shared_experts.gate_weight
  bool shared_experts = false;
  bool vision = false;         ///< a vision tower beside the language model
  bool gated_delta = false;    ///< layers of a gated delta net: self_attention.in_proj, of Megatron-Core or of LoongForge
  bool operator==(const McoreFacts&) const = default;
};
/// The family with these tensors, where one is told apart (detect.cc has the table); the assumption goes to `notice`.
[[nodiscard]] Result<const FamilyFile*> DetectByFacts(const McoreFacts& facts, const std::vector<const FamilyFile*>& families,
                                                      std::string* notice);
[[nodiscard]] const FamilyFile* FindFamily(std::string_view name, const std::vector<const FamilyFile*>& families);

}  // namespace crossdock::family
