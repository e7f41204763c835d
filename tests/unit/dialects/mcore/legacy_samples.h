// SPDX-License-Identifier: Apache-2.0
/// \file  Small legacy checkpoints as catalogs, for the tests of the mcore dialect: what the reader of mp_rank_* files returns for a
/// Llama of hidden 16, 4 heads, 2 groups of head size 4, ffn 24, 56 vocabulary rows. No bytes.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "mcore_samples.h"

namespace crossdock::dialects::mcore {

struct LegacySample {
  int tp = 2;
  int pp = 2;
  int vpp = 1;
  std::vector<std::int64_t> counts = {2, 1};   ///< layers of each chunk and stage, [chunk * pp + stage]
  bool adam = false;
  bool tied = false;
  bool local_spec = false;
  bool old_names = false;                      ///< those of before Megatron-Core
};

/// The parameters of one model chunk of a rank in the order of their registration.
inline std::vector<std::pair<std::string, Shape>> LegacyParameters(const LegacySample& s, int stage, int chunk) {
  const std::int64_t tp = s.tp;
  std::vector<std::pair<std::string, Shape>> out;
  const std::string top = s.old_names ? "language_model/" : "";
  const std::string decoder = s.old_names ? "language_model/encoder/" : "decoder.";
  if (stage == 0 && chunk == 0) out.emplace_back(top + (s.old_names ? "embedding/word_embeddings/weight" : "embedding.word_embeddings.weight"), Shape{56 / tp, 16});
  for (std::int64_t i = 0; i < s.counts[static_cast<std::size_t>(chunk * s.pp + stage)]; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", decoder, i);
    const bool own_norms = s.local_spec || s.old_names;
    if (own_norms) out.emplace_back(layer + "input_layernorm.weight", Shape{16});
    out.emplace_back(layer + (s.old_names ? "self_attention.dense.weight" : "self_attention.linear_proj.weight"), Shape{16, 16 / tp});
    if (!own_norms) out.emplace_back(layer + "self_attention.linear_qkv.layer_norm_weight", Shape{16});
    out.emplace_back(layer + (s.old_names ? "self_attention.query_key_value.weight" : "self_attention.linear_qkv.weight"), Shape{32 / tp, 16});
    out.emplace_back(layer + (s.old_names ? "post_attention_layernorm.weight" : s.local_spec ? "pre_mlp_layernorm.weight" : "mlp.linear_fc1.layer_norm_weight"), Shape{16});
    out.emplace_back(layer + (s.old_names ? "mlp.dense_h_to_4h.weight" : "mlp.linear_fc1.weight"), Shape{48 / tp, 16});
    out.emplace_back(layer + (s.old_names ? "mlp.dense_4h_to_h.weight" : "mlp.linear_fc2.weight"), Shape{16, 24 / tp});
  }
  if (stage == s.pp - 1 && chunk == s.vpp - 1) {
    out.emplace_back(decoder + "final_layernorm.weight", Shape{16});
    if (s.tied && s.old_names) out.emplace_back("word_embeddings_for_head/weight", Shape{56 / tp, 16});
    if ((!s.tied || s.pp > 1) && !(s.tied && s.old_names)) out.emplace_back(top + (s.old_names ? "output_layer/weight" : "output_layer.weight"), Shape{56 / tp, 16});
  }
  return out;
}

inline std::string LegacyDir(const LegacySample& s, int tensor, int stage) {
  return s.pp > 1 ? fmt::format("mp_rank_{:02}_{:03}", tensor, stage) : fmt::format("mp_rank_{:02}", tensor);
}

/// The tensor at `path` of a file: an entry, and the value that stands for it.
inline Value LegacyTensorAt(Catalog* catalog, const std::string& file, const std::string& path, DType dtype, const Shape& shape) {
  AddEntry(catalog, file + "#" + path, dtype, shape);
  TensorValue tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = RowMajorStrides(shape);
  tensor.storage = file + "#" + path;
  return Value(std::move(tensor));
}

/// Sets a value in nested dicts along "a/b/c".
inline void SetAt(Value* dict, const std::string& path, Value value) {
  const std::size_t slash = path.find('/');
  if (slash == std::string::npos) return dict->Set(path, std::move(value));
  const std::string head = path.substr(0, slash);
  Value inner = dict->Find(head) != nullptr ? *dict->Find(head) : Value::MakeDict();
  SetAt(&inner, path.substr(slash + 1), std::move(value));
  dict->Set(head, std::move(inner));
}

/// Adam inside the file: with weight decay first, then without; float32 masters and moments in the order of registration.
inline Value LegacyAdam(Catalog* catalog, const std::string& file, const std::vector<std::pair<std::string, Shape>>& parameters) {
  ValueList groups;
  ValueList masters;
  Value states = Value::MakeDict();
  std::int64_t number = 0;
  for (const bool decays : {true, false}) {
    ValueList params;
    ValueList group_masters;
    for (const auto& [name, shape] : parameters) {
      if ((shape.size() != 1) != decays) continue;
      const auto at = [&](const std::string& path) { return LegacyTensorAt(catalog, file, path, DType::kF32, shape); };
      Value state = Value::MakeDict();
      state.Set("exp_avg", at(fmt::format("optimizer/optimizer/state/{}/exp_avg", number)));
      state.Set("exp_avg_sq", at(fmt::format("optimizer/optimizer/state/{}/exp_avg_sq", number)));
      states.as_dict()->items.emplace_back(Value(number), std::move(state));
      group_masters.push_back(at(fmt::format("optimizer/fp32_from_fp16_params/{}/{}", groups.size(), group_masters.size())));
      params.emplace_back(number++);
    }
    Value group = Json(R"({"lr_mult": 1.0, "max_lr": 0.001, "min_lr": 1e-05, "lr": 0.0009, "eps": 1e-08, "betas": [0.9, 0.95], "step": 7})");
    group.Set("wd_mult", Value(decays ? 1.0 : 0.0));
    group.Set("params", Value::MakeList(std::move(params)));
    groups.push_back(std::move(group));
    masters.push_back(Value::MakeList(std::move(group_masters)));
  }
  Value inner = Value::MakeDict();
  inner.Set("state", std::move(states));
  inner.Set("param_groups", Value::MakeList(std::move(groups)));
  Value optimizer = Value::MakeDict();
  optimizer.Set("optimizer", std::move(inner));
  optimizer.Set("fp32_from_fp16_params", Value::MakeList(std::move(masters)));
  return optimizer;
}

inline Catalog LegacySource(const LegacySample& s) {
  Catalog catalog;
  catalog.format = "mp_rank";
  catalog.root = "/run/iter_0000020";
  catalog.step = 20;
  std::int64_t layers = 0;
  for (const std::int64_t count : s.counts) layers += count;
  Value args = TinyArgs(layers);
  args.Set("tensor_model_parallel_size", Value(s.tp));
  args.Set("pipeline_model_parallel_size", Value(s.pp));
  args.Set("untie_embeddings_and_output_weights", Value(!s.tied));
  args.Set("ckpt_format", Value("torch"));
  for (int stage = 0; stage < s.pp; ++stage) {
    for (int tensor = 0; tensor < s.tp; ++tensor) {
      const std::string name = LegacyDir(s, tensor, stage) + "/model_optim_rng.pt";
      Value file = Json(R"({"checkpoint_version": 3.0, "iteration": 20})");
      file.Set("args", Namespace(args));
      std::vector<std::pair<std::string, Shape>> all;
      for (int chunk = 0; chunk < s.vpp; ++chunk) {
        const std::string model = s.vpp > 1 ? fmt::format("model{}", chunk) : "model";
        file.Set(model, Value::MakeDict());
        for (const auto& [path, shape] : LegacyParameters(s, stage, chunk)) {
          SetAt(&file, model + "/" + path, LegacyTensorAt(&catalog, name, model + "/" + path, DType::kBF16, shape));
          all.emplace_back(path, shape);
        }
        if (!s.local_spec && !s.old_names) SetAt(&file, model + "/decoder.layers.0.self_attention.linear_proj._extra_state", Value());
      }
      if (s.adam) file.Set("optimizer", LegacyAdam(&catalog, name, all));
      file.Set("rng_state", Value::MakeList({Value::MakeDict()}));
      catalog.objects[name] = std::move(file);
    }
  }
  catalog.SortEntries();
  return catalog;
}

}  // namespace crossdock::dialects::mcore
