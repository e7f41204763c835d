// SPDX-License-Identifier: Apache-2.0
/// \file  Small checkpoints as catalogs, for the tests of the mcore dialect: no bytes, only names, shapes and objects.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "dialects/hf/hf_dialect.h"
#include "dialects/mcore/mcore_dialect.h"
#include "expr/pull_back.h"
#include "family/bind.h"
#include "family/detect.h"
#include "unit/dialects/samples.h"

namespace crossdock::dialects::mcore {

/// A config.json of a tiny model: hidden 16, 4 heads, 2 KV heads of 4, ffn 24, vocabulary 50.
inline Value TinyConfig(std::string_view family, std::int64_t layers = 3) {
  const family::FamilyFile& file = Family(family);
  Value config = Json(R"({"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
    "intermediate_size": 24, "vocab_size": 50, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "max_position_embeddings": 64,
    "hidden_act": "silu", "tie_word_embeddings": false})");
  config.Set("architectures", Value::MakeList({Value(file.architectures.front())}));
  config.Set("model_type", Value(file.model_type));
  config.Set("num_hidden_layers", Value(layers));
  return config;
}

/// Megatron's arguments for the same model.
inline Value TinyArgs(std::int64_t layers = 3) {
  Value args = Json(R"({"hidden_size": 16, "num_attention_heads": 4, "group_query_attention": true, "num_query_groups": 2,
    "kv_channels": 4, "ffn_hidden_size": 24, "vocab_size": 50, "padded_vocab_size": 56, "layernorm_epsilon": 1e-06,
    "rotary_base": 10000, "rotary_percent": 1.0, "max_position_embeddings": 64, "seq_length": 64, "swiglu": true,
    "normalization": "RMSNorm", "position_embedding_type": "rope", "untie_embeddings_and_output_weights": true,
    "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "consumed_train_samples": 160, "bf16": true})");
  args.Set("num_layers", Value(layers));
  return args;
}

inline Value Namespace(Value values) {
  Opaque space;
  space.form = Opaque::Form::kNewObj;
  space.module = "argparse";
  space.name = "Namespace";
  space.state = std::make_shared<Value>(std::move(values));
  return Value(std::move(space));
}

inline void AddEntry(Catalog* catalog, std::string name, DType dtype, Shape shape) {
  Entry entry{std::move(name), Slot::kParam, dtype, shape, {}};
  Chunk chunk;
  chunk.box = Box::Whole(shape);
  entry.chunks.push_back(std::move(chunk));
  catalog->entries.push_back(std::move(entry));
}

/// An HF directory, or with `slots` a full-state file with Adam's state.
inline Catalog HfSource(std::string_view family, const Value& config, bool full_state = false) {
  Catalog catalog;
  catalog.format = "safetensors";
  catalog.root = "/hf";
  catalog.objects["config.json"] = config;
  const Result<family::Model> model = family::EvaluateModel(Family(family), {"hf", config});
  family::BindOptions options;
  options.dialect = "hf";
  const Result<family::Binding> binding = family::Bind(Family(family), *model, options);
  for (const family::HubTensor& tensor : binding->hub) {
    AddEntry(&catalog, full_state ? "param/" + tensor.name : tensor.name, DType::kBF16, tensor.shape);
    for (const char* slot : {"master", "adam_mu", "adam_nu"}) {
      if (full_state) AddEntry(&catalog, std::string("optim/") + slot + "/" + tensor.name, DType::kF32, tensor.shape);
    }
  }
  if (full_state) {
    catalog.objects["__metadata__"] = Json(R"({"format": "crossdock-full-state-v1", "optimizer": "adam", "step": "20", "consumed_train_samples": "160"})");
    catalog.objects["meta"] = Json(R"({"meta/step": 20, "meta/adam_count": 7})");
  }
  catalog.SortEntries();
  return catalog;
}

inline Result<HubState> HfHub(std::string_view family, const Value& config, bool full_state = false) {
  const Catalog catalog = HfSource(family, config, full_state);
  return full_state ? hf::ReadFullState(catalog, {}) : hf::ReadHub(catalog, {});
}

inline TargetOptions WithAdamSettings(TargetOptions options = {}) {
  options.set_args = {{"lr", "0.001"}, {"min_lr", "1e-05"}, {"weight_decay", "0.1"}};
  return options;
}

/// A Megatron checkpoint as its reader would return it.
inline Catalog McoreSource(std::string_view family, const Value& args, bool stacked = true, bool split = false, std::int64_t rows = 56, bool adam = false) {
  Catalog catalog;
  catalog.format = "dcp";
  catalog.root = "/run/iter_0000020";
  catalog.step = 20;
  const Result<family::Model> model = family::EvaluateModel(Family(family), {"mcore", args});
  family::BindOptions options;
  options.dialect = "mcore";
  options.stacked_layers = stacked;
  options.split_gate_up = split;
  options.padded_vocab = rows;
  const Result<family::Binding> binding = family::Bind(Family(family), *model, options);
  for (const family::DialectTensor& tensor : binding->tensors) {
    AddEntry(&catalog, tensor.name, DType::kBF16, tensor.shape);
    for (const char* state : {"param", "exp_avg", "exp_avg_sq"}) {
      if (adam) AddEntry(&catalog, std::string("optimizer.state.") + state + "." + tensor.name, DType::kF32, tensor.shape);
    }
  }
  Value common = Json(R"({"iteration": 20, "checkpoint_version": 3.0, "num_floating_point_operations_so_far": 123})");
  if (adam) {
    common.Set("optimizer", Json(R"({"optimizer": {"param_groups": [
      {"wd_mult": 1.0, "lr_mult": 1.0, "max_lr": 0.001, "min_lr": 1e-05, "lr": 0.0009, "weight_decay": 0.1, "eps": 1e-08, "betas": [0.9, 0.95], "step": 7},
      {"wd_mult": 0.0, "lr_mult": 1.0, "max_lr": 0.001, "min_lr": 1e-05, "lr": 0.0009, "weight_decay": 0.0, "eps": 1e-08, "betas": [0.9, 0.95], "step": 7}]}})"));
    common.Set("opt_param_scheduler", Json(R"({"max_lr": 0.001, "num_steps": 56})"));
  }
  common.Set("args", Namespace(args));
  catalog.objects["common"] = std::move(common);
  catalog.SortEntries();
  return catalog;
}

inline const Entry* FindEntry(const Catalog& catalog, std::string_view name) {
  const std::int32_t index = catalog.Find(name);
  return index < 0 ? nullptr : &catalog.entries[static_cast<std::size_t>(index)];
}

/// Every element of `root` as the (leaf, position) it comes from.
inline std::map<Dims, std::pair<int, Dims>> Elements(const expr::Expr& root) {
  std::map<Dims, std::pair<int, Dims>> elements;
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
      elements[to] = {piece.leaf, from};
      for (std::size_t i = at.size(); i-- > 0;) {
        if (++at[i] < piece.loops[i].count) break;
        at[i] = 0;
      }
    }
  }
  return elements;
}

inline Value Golden() {
  std::ifstream file(std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/dcp/expected.json");
  std::stringstream text;
  text << file.rdbuf();
  return Json(text.str());
}

}  // namespace crossdock::dialects::mcore
