// SPDX-License-Identifier: Apache-2.0
/// \file  Tunix steps as Orbax's reader returns them, made from names: one leaf a line, `NAME`, `NAME = NUMBER` for a counter (I32),
/// `NAME = NUMBER.0` for a setting (F32), `NAME None` for a placeholder. Arrays are F32 [4, 2].
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "dialects/maxtext/state_tree.h"
#include "tensor/catalog.h"
#include "unit/dialects/samples.h"

namespace crossdock::dialects::tunix {

inline Catalog Step(const std::string& lines) {
  Catalog catalog;
  catalog.format = "orbax";
  catalog.root = "/run/actor/7";
  catalog.step = 7;
  Value scalars = Value::MakeDict();
  ValueList rows;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, mark, number;
    if (!(words >> name)) continue;
    words >> mark >> number;
    Value row = Value::MakeDict();
    row.Set("path", Value::MakeList(maxtext::PathTo({}, name)));
    row.Set("value_type", Value(mark == "None" ? "None" : "jax.Array"));
    if (name.ends_with(".key.value")) row.Set("ext_metadata", Json(R"({"random_key_impl": "threefry2x32"})"));
    rows.push_back(std::move(row));
    if (mark == "None") continue;
    Entry entry{name, Slot::kParam, DType::kF32, {4, 2}, {}};
    if (mark == "=") {
      const bool real = number.find('.') != std::string::npos;
      entry.shape = {};
      entry.dtype = real ? DType::kF32 : DType::kI32;
      scalars.Set(name, Json(std::string(R"({"dtype": ")") + (real ? "F32" : "I32") + R"(", "shape": [], "values": [)" + number + "]}"));
    }
    if (name.ends_with(".key.value")) {
      entry.dtype = DType::kU32;
      entry.shape = {2};
      scalars.Set(name, Json(R"({"dtype": "U32", "shape": [2], "values": [0, 42]})"));
    }
    Chunk chunk;
    chunk.box = Box::Whole(entry.shape);
    entry.chunks.push_back(std::move(chunk));
    catalog.entries.push_back(std::move(entry));
  }
  catalog.objects["tree"] = Value::MakeList(std::move(rows));
  catalog.objects["scalars"] = std::move(scalars);
  catalog.SortEntries();
  return catalog;
}

/// "opt_state.[0].mu.params.decoder..." of every row of a seen tree; placeholders end in " None".
inline std::set<std::string> PathsOf(const Catalog& catalog) {
  std::set<std::string> out;
  for (const Value& row : *catalog.objects.at("tree").as_sequence()) {
    std::string path;
    for (const Value& key : *row.Find("path")->as_sequence()) path += (path.empty() ? "" : ".") + (key.as_int() != nullptr ? "[" + std::to_string(*key.as_int()) + "]" : *key.as_string());
    out.insert(row.GetString("value_type") == "np.ndarray" ? path : path + " " + *row.GetString("value_type"));
  }
  return out;
}

/// The same model everywhere: two parameters.
inline const std::string kKernel = "decoder.layers.mlp.wi_0.kernel";
inline const std::string kTable = "token_embedder.embedding";

inline std::string Lines(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += name + "\n";
  return out;
}

/// model_params, in an adapter or not.
inline std::string Params(const std::string& adapter) {
  return Lines({"model_params." + adapter + kKernel + ".value", "model_params." + adapter + kTable + ".value"});
}

/// {count, mu, nu} below `at`.
inline std::string Adam(const std::string& at, const std::string& adapter, const std::string& count = "5") {
  std::string out = Lines({at + "count.value = " + count});
  for (const char* slot : {"mu.", "nu."}) out += Lines({at + slot + adapter + kKernel + ".value", at + slot + adapter + kTable + ".value"});
  return out;
}

inline const std::string kOptState = "optimizer_state.opt_state.";
inline const std::string kStep = "optimizer_state.step.value = 7\n";

/// inject_hyperparams around what stands below "inner_state.".
inline std::string Injected(const std::vector<std::string>& hyperparameters) {
  std::string out = Lines({kOptState + "count.value = 6"});
  for (const std::string& name : hyperparameters) out += Lines({kOptState + "hyperparams." + name + ".value = 0.5"});
  return out + Lines({kOptState + "hyperparams_states.learning_rate.count.value = 6"});
}

/// What MaxText's pre-training writes for this model.
inline std::set<std::string> PreTraining() {
  std::set<std::string> out = {"step", "opt_state.[0].count", "opt_state.[1] None", "opt_state.[2].count"};
  for (const std::string& name : {kKernel, kTable}) {
    out.insert("params.params." + name);
    out.insert("opt_state.[0].mu.params." + name);
    out.insert("opt_state.[0].nu.params." + name);
  }
  return out;
}

}  // namespace crossdock::dialects::tunix
