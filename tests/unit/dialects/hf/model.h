// SPDX-License-Identifier: Apache-2.0
/// \file  A tiny Qwen3 as a source catalog, for tests of the hf dialect.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "dialects/hf/hf_dialect.h"
#include "result_matchers.h"
#include "unit/dialects/samples.h"

namespace crossdock::dialects::hf {

inline Value TinyConfig() {
  return Json(R"({"architectures": ["Qwen3ForCausalLM"], "dtype": "bfloat16", "head_dim": 4, "hidden_size": 8,
                  "intermediate_size": 12, "layer_types": ["full_attention", "full_attention"], "max_position_embeddings": 64,
                  "model_type": "qwen3", "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
                  "rms_norm_eps": 1e-06, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
                  "tie_word_embeddings": false, "unknown_field": [1], "vocab_size": 10})");
}

inline void Add(Catalog* catalog, std::string name, Shape shape, DType dtype = DType::kBF16) {
  Entry entry;
  entry.name = std::move(name);
  entry.dtype = dtype;
  entry.shape = shape;
  Chunk chunk;
  chunk.box = Box::Whole(shape);
  entry.chunks.push_back(chunk);
  catalog->entries.push_back(std::move(entry));
  catalog->SortEntries();
}

inline void Remove(Catalog* catalog, std::string_view name) {
  std::erase_if(catalog->entries, [&](const Entry& e) { return e.name == name; });
}

inline Catalog TinyModel(const std::string& prefix = "", int layers = 2, DType dtype = DType::kBF16) {
  Catalog out;
  out.root = "/source";
  out.objects["config.json"] = TinyConfig();
  Add(&out, prefix + "model.embed_tokens.weight", {10, 8}, dtype);
  Add(&out, prefix + "lm_head.weight", {10, 8}, dtype);
  Add(&out, prefix + "model.norm.weight", {8}, dtype);
  for (int l = 0; l < layers; ++l) {
    const std::string at = prefix + "model.layers." + std::to_string(l) + ".";
    Add(&out, at + "input_layernorm.weight", {8}, dtype);
    Add(&out, at + "post_attention_layernorm.weight", {8}, dtype);
    Add(&out, at + "self_attn.q_proj.weight", {16, 8}, dtype);
    Add(&out, at + "self_attn.k_proj.weight", {8, 8}, dtype);
    Add(&out, at + "self_attn.v_proj.weight", {8, 8}, dtype);
    Add(&out, at + "self_attn.o_proj.weight", {8, 16}, dtype);
    Add(&out, at + "self_attn.q_norm.weight", {4}, dtype);
    Add(&out, at + "self_attn.k_norm.weight", {4}, dtype);
    Add(&out, at + "mlp.gate_proj.weight", {12, 8}, dtype);
    Add(&out, at + "mlp.up_proj.weight", {12, 8}, dtype);
    Add(&out, at + "mlp.down_proj.weight", {8, 12}, dtype);
  }
  return out;
}

inline const HubTensor* FindHub(const HubState& hub, std::string_view name, Slot slot = Slot::kParam) {
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.name == name && tensor.slot == slot) return &tensor;
  }
  return nullptr;
}

}  // namespace crossdock::dialects::hf
