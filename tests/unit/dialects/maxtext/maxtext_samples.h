// SPDX-License-Identifier: Apache-2.0
/// \file  MaxText's own trees (tests/golden/maxtext) as catalogs and configurations, for the tests of the maxtext dialect.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "dialects/hf/hf_dialect.h"
#include "dialects/maxtext/maxtext_dialect.h"
#include "dialects/maxtext/state_tree.h"
#include "expr/pull_back.h"
#include "family/detect.h"
#include "unit/dialects/samples.h"

namespace crossdock::dialects::maxtext {

inline Value Golden(const std::string& name) {
  std::ifstream file(std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/maxtext/" + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  return Json(text.str());
}

/// The golden cases whose name holds `part`.
inline std::vector<std::string> GoldenNames(std::string_view part = "") {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/maxtext")) {
    const std::string name = file.path().stem().string();
    if (file.path().extension() == ".json" && name.find(part) != std::string::npos) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The config.json of the same model, in Hugging Face's words.
inline Value HfConfig(const Value& golden) {
  const std::string family = *golden.GetString("family");
  const Value& sizes = *golden.Find("config");
  Value config = Value::MakeDict();
  config.Set("architectures", Value::MakeList({Value(Family(family).architectures.front())}));
  config.Set("model_type", Value(Family(family).model_type));
  const auto copy = [&](const char* from, const char* to) {
    if (const Value* value = sizes.Find(from)) config.Set(to, *value);
  };
  copy("vocab_size", "vocab_size");
  copy("base_emb_dim", "hidden_size");
  copy("base_mlp_dim", "intermediate_size");
  copy("base_num_query_heads", "num_attention_heads");
  copy("base_num_kv_heads", "num_key_value_heads");
  copy("head_dim", "head_dim");
  copy("base_num_decoder_layers", "num_hidden_layers");
  if (family == "gemma2") config.Set("num_hidden_layers", Value(2 * *sizes.GetInt("base_num_decoder_layers")));
  for (const char* to : {"num_experts", "num_local_experts", "n_routed_experts"}) copy("num_experts", to);
  copy("base_moe_mlp_dim", "moe_intermediate_size");
  copy("shared_experts", "n_shared_experts");
  copy("first_num_dense_layers", "first_k_dense_replace");
  for (const char* same : {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) copy(same, same);
  for (const auto& [from, to] : {std::pair("gdn_num_key_heads", "linear_num_key_heads"), std::pair("gdn_num_value_heads", "linear_num_value_heads"), std::pair("gdn_key_head_dim", "linear_key_head_dim"),
                                 std::pair("gdn_value_head_dim", "linear_value_head_dim"), std::pair("gdn_conv_kernel_dim", "linear_conv_kernel_dim"), std::pair("interleave_moe_layer_step", "interleave_moe_layer_step"),
                                 std::pair("base_moe_mlp_dim", "shared_expert_intermediate_size")}) copy(from, to);
  if (family == "llama4") {  // whose experts have the plain word
    copy("base_mlp_dim", "intermediate_size_mlp");
    copy("base_moe_mlp_dim", "intermediate_size");
  }
  if (const auto mtp = golden.GetInt("extra.mtp_num_layers")) config.Set("num_nextn_predict_layers", Value(*mtp));
  if (config.GetInt("q_lora_rank") == 0) config.Set("q_lora_rank", Value());
  if (family == "llama") config.Set("rope_scaling", Json(R"({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192})"));
  bool tied = true;
  for (const Value& row : *golden.Find("tree")->as_sequence()) {
    for (const Value& part : *row.as_sequence()->front().as_sequence()) tied = tied && !(part.as_string() != nullptr && *part.as_string() == "logits_dense");
  }
  config.Set("tie_word_embeddings", Value(tied));
  return config;
}

/// "F32 [64, 3]" or "None" by dotted path; an index of a sequence is marked: "opt_state.[0].count".
inline std::map<std::string, std::string> GoldenTree(const Value& golden) {
  std::map<std::string, std::string> tree;
  for (const Value& row : *golden.Find("tree")->as_sequence()) {
    const ValueList& cells = *row.as_sequence();
    std::string path;
    for (const Value& part : *cells[0].as_sequence()) path += (path.empty() ? "" : ".") + (part.as_int() != nullptr ? "[" + std::to_string(*part.as_int()) + "]" : *part.as_string());
    if (*cells[1].as_string() == "None") {
      tree[path] = "None";
      continue;
    }
    Shape shape;
    for (const Value& size : *cells[3].as_sequence()) shape.push_back(*size.as_int());
    tree[path] = (*cells[2].as_string() == "int32" ? "I32 " : "F32 ") + ToString(shape);
  }
  return tree;
}

/// The same of a target.
inline std::map<std::string, std::string> TreeOf(const TargetState& target) {
  std::map<std::string, std::string> tree;
  for (const Value& row : *target.catalog.objects.at("tree").as_sequence()) {
    const ValueList& parts = *row.Find("path")->as_sequence();
    std::string path;
    for (const Value& part : parts) path += (path.empty() ? "" : ".") + (part.as_int() != nullptr ? "[" + std::to_string(*part.as_int()) + "]" : *part.as_string());
    const std::string type = *row.GetString("value_type");
    if (type != "np.ndarray") {
      tree[path] = type;
      continue;
    }
    const std::string name = ArrayName(parts);
    if (const Value* scalar = target.catalog.objects.at("scalars").Find(name)) {
      Shape shape;
      for (const Value& size : *scalar->Find("shape")->as_sequence()) shape.push_back(*size.as_int());
      tree[path] = *scalar->GetString("dtype") + " " + ToString(shape);
      continue;
    }
    const std::int32_t at = target.catalog.Find(name);
    EXPECT_GE(at, 0) << name;
    if (at < 0) continue;
    const Entry& entry = target.catalog.entries[static_cast<std::size_t>(at)];
    tree[path] = std::string(DTypeName(entry.dtype)) + " " + ToString(entry.shape);
  }
  return tree;
}

/// A golden tree as Orbax's reader would return it; counters get numbers of their own.
inline Catalog Source(const Value& golden) {
  Catalog catalog;
  catalog.format = "orbax";
  catalog.root = "/run/7";
  catalog.step = 7;
  Value scalars = Value::MakeDict();
  for (const Value& row : *golden.Find("tree")->as_sequence()) {
    const ValueList& cells = *row.as_sequence();
    if (*cells[1].as_string() == "None") continue;
    const std::string name = ArrayName(*cells[0].as_sequence());
    Shape shape;
    for (const Value& size : *cells[3].as_sequence()) shape.push_back(*size.as_int());
    if (*cells[2].as_string() == "int32") {
      const bool own = name.ends_with("0.count") || name == "opt_state.count";
      scalars.Set(name, Json(own ? R"({"dtype": "I32", "shape": [], "values": [5]})" : R"({"dtype": "I32", "shape": [], "values": [7]})"));
    } else if (name.ends_with("ns_coeffs")) {
      scalars.Set(name, Json(R"({"dtype": "F32", "shape": [3], "values": [3.4445, -4.775, 2.0315]})"));
    } else {
      Entry entry{name, Slot::kParam, DType::kF32, shape, {}};
      Chunk chunk;
      chunk.box = Box::Whole(shape);
      entry.chunks.push_back(std::move(chunk));
      catalog.entries.push_back(std::move(entry));
    }
  }
  catalog.objects["scalars"] = std::move(scalars);
  catalog.objects["custom_metadata"] = Value::MakeDict();
  catalog.objects["custom_metadata"].Set("scan_layers", *golden.Find("scan_layers"));
  catalog.SortEntries();
  return catalog;
}

inline ReadOptions With(const Value& config) {
  ReadOptions options;
  options.template_config = family::ModelConfig{"hf", config};
  return options;
}

/// A hub of the family's released names, with the state of an optimizer: "", "adam", or "muon" by MaxText's rule.
inline HubState Hub(const std::string& family, const Value& config, const std::string& optimizer) {
  HubState hub;
  hub.family = &Family(family);
  hub.config = {"hf", config};
  const Result<family::Model> model = family::EvaluateModel(*hub.family, hub.config);
  EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().ToString());
  hub.model = *model;
  family::BindOptions options;
  options.dialect = "hf";
  const Result<family::Binding> binding = family::Bind(*hub.family, hub.model, options);
  EXPECT_TRUE(binding.has_value());
  std::int32_t leaf = 0;
  for (const family::HubTensor& tensor : binding->hub) {
    hub.order.push_back(tensor.name);
    const auto add = [&](Slot slot, DType dtype) { hub.tensors.push_back({tensor.name, slot, dtype, tensor.shape, expr::Leaf(leaf++, dtype, tensor.shape)}); };
    add(Slot::kParam, DType::kF32);
    if (optimizer.empty() || family::FitsAny(hub.family->buffers, tensor.name)) continue;
    const bool adams = optimizer == "adam" || tensor.name.find("norm") != std::string::npos || tensor.name.find("embed") != std::string::npos ||
                       tensor.name.find("lm_head") != std::string::npos || tensor.name.ends_with("bias") || tensor.name.find("conv1d") != std::string::npos ||
                       tensor.name.ends_with("A_log") || tensor.name.ends_with("shared_expert_gate.weight");
    if (adams) add(Slot::kAdamMu, DType::kF32);
    if (adams) add(Slot::kAdamNu, DType::kF32);
    if (!adams) add(Slot::kMuonMu, DType::kF32);
  }
  hub.optimizer = optimizer;
  hub.counters.step = 7;
  if (!optimizer.empty()) hub.counters.adam_count = 5;
  if (optimizer == "muon") hub.counters.muon_count = 5;
  return hub;
}

/// The options under which MaxText wrote a golden tree.
inline TargetOptions OptionsOf(const Value& golden) {
  TargetOptions options;
  options.scan_layers = *golden.GetBool("scan_layers");
  options.scan_axis = static_cast<int>(golden.GetInt("extra.param_scan_axis").value_or(1));
  if (*golden.GetString("form") == "linen") options.consumer = "maxtext-linen";
  if (*golden.GetString("opt_type") == "adam_pax") options.set_args["opt_type"] = "adam_pax";
  return options;
}

/// Every element comes from the same place of one entry, with nothing done to it.
inline ::testing::AssertionResult IsWhole(const expr::Expr& root, std::int32_t leaf) {
  std::int64_t count = 0;
  for (const expr::Piece& piece : expr::PullBack(root, Box::Whole(root->shape))) {
    if (piece.leaf != leaf) return ::testing::AssertionFailure() << "leaf " << piece.leaf << " instead of " << leaf;
    const expr::StridedCopy copy = expr::ToCopy(piece, Box::Whole(root->shape), Box::Whole(root->shape));
    if (copy.from != copy.to) return ::testing::AssertionFailure() << "element " << copy.from << " goes to " << copy.to;
    for (const auto& dim : copy.dims) {
      if (dim.from_stride != dim.to_stride) return ::testing::AssertionFailure() << "elements are rearranged";
    }
    double factor = 1;
    for (const expr::ElementOp& op : piece.ops) {
      if (op.op == expr::Op::kScale) factor *= op.factor;
      if (op.op == expr::Op::kOffset) factor += op.factor;
    }
    if (std::abs(factor - 1) > 1e-12) return ::testing::AssertionFailure() << "values are changed by " << factor;
    count += piece.count();
  }
  if (count != CheckedCount(root->shape)) return ::testing::AssertionFailure() << count << " elements";
  return ::testing::AssertionSuccess();
}

}  // namespace crossdock::dialects::maxtext
