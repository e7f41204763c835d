// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "dialects/hf/claim.h"
#include "dialects/hf/fp8_choice.h"

namespace crossdock::dialects::hf {
namespace {

using Strategy = Fp8Options::Strategy;

/// Beginnings that mean the same part of a model in its files and in a loader, each in two or three spellings.
constexpr std::array<std::array<std::string_view, 3>, 6> kSpellings = {{
    {"model.language_model.", "language_model.model.", ""},
    {"model.visual.", "visual.", ""},
    {"model.vision_tower.", "vision_tower.", ""},
    {"model.multi_modal_projector.", "multi_modal_projector.", ""},
    {"language_model.lm_head", "lm_head", ""},
    {"model.layers.", "model.language_model.layers.", "language_model.model.layers."},
}};

void AddSpellings(const std::string& module, std::set<std::string>* out) {
  out->insert(module);
  for (const auto& same : kSpellings) {
    for (const std::string_view from : same) {
      if (from.empty() || !module.starts_with(from)) continue;
      for (const std::string_view to : same) {
        if (!to.empty()) out->insert(std::string(to) + module.substr(from.size()));
      }
      return;
    }
  }
}

/// A weight of two axes that is no FP8: layers with it must be listed.
bool IsPlainMatrix(const Entry& entry) {
  return std::string_view(entry.name).ends_with(".weight") && entry.shape.size() == 2 && entry.dtype != DType::kF8E4M3;
}

Value ListOf(const std::vector<std::string>& words) {
  ValueList list;
  for (const std::string& word : words) list.emplace_back(word);
  return Value::MakeList(std::move(list));
}

Value BlockOf(const Fp8Options& fp8) { return Value::MakeList({Value(fp8.block.rows), Value(fp8.block.cols)}); }

Value Float8(std::string_view strategy, bool dynamic) {
  Value out = Value::MakeDict();
  out.Set("num_bits", Value(std::int64_t{8}));
  out.Set("type", Value("float"));
  out.Set("symmetric", Value(true));
  out.Set("strategy", Value(strategy));
  out.Set("dynamic", Value(dynamic));
  return out;
}

Value CompressedTensors(const Fp8Options& fp8, const std::vector<std::string>& unquantized) {
  constexpr std::array kNames = {"block", "channel", "tensor"};
  Value weights = Float8(kNames[static_cast<std::size_t>(fp8.strategy)], false);
  weights.Set("observer", Value("minmax"));
  Value activations = Float8("token", true);
  if (fp8.strategy == Strategy::kBlock) {
    weights.Set("block_structure", BlockOf(fp8));
    activations = Float8("group", true);
    activations.Set("group_size", Value(fp8.block.cols));
  }
  Value group = Value::MakeDict();
  group.Set("targets", ListOf({"Linear"}));
  group.Set("weights", std::move(weights));
  group.Set("input_activations", std::move(activations));
  group.Set("output_activations", Value());
  Value groups = Value::MakeDict();
  groups.Set("group_0", std::move(group));
  Value out = Value::MakeDict();
  out.Set("quant_method", Value("compressed-tensors"));
  out.Set("format", Value("float-quantized"));
  out.Set("quantization_status", Value("compressed"));
  out.Set("config_groups", std::move(groups));
  out.Set("ignore", ListOf(unquantized));
  return out;
}

}  // namespace

std::vector<std::string> UnquantizedModules(const HubState& hub, const std::vector<Entry>& entries) {
  std::set<std::string> modules;
  const bool parts = !hub.family->text_config.empty();
  const auto add = [&](const std::string& module) {
    if (parts) return AddSpellings(module, &modules);
    modules.insert(module);
  };
  for (const Entry& entry : entries) {
    if (IsPlainMatrix(entry)) add(std::string(ModuleOf(entry.name)));
  }
  // A tied head has no tensor, but is a linear layer all the same.
  if (!hub.model.Holds("untied")) add(std::string(ModuleOf(HeadOf(*hub.family))));
  return {modules.begin(), modules.end()};
}

Value QuantizationConfig(const Fp8Options& fp8, bool power_of_two, const std::vector<std::string>& unquantized) {
  Value out;
  if (fp8.compressed_tensors) {
    out = CompressedTensors(fp8, unquantized);
  } else {
    out = Value::MakeDict();
    out.Set("activation_scheme", Value("dynamic"));
    out.Set("fmt", Value("e4m3"));
    out.Set("quant_method", Value("fp8"));
    if (fp8.strategy == Strategy::kBlock) out.Set("weight_block_size", BlockOf(fp8));
    out.Set("modules_to_not_convert", ListOf(unquantized));
  }
  if (power_of_two) out.Set("scale_fmt", Value("ue8m0"));
  return out;
}

Status CheckFp8List(const Catalog& written) {
  const auto config = written.objects.find("config.json");
  const Value* said = config == written.objects.end() ? nullptr : config->second.Find("quantization_config");
  if (said == nullptr) return OkStatus();
  const Value* list = said->Find("ignore");
  if (list == nullptr) list = said->Find("modules_to_not_convert");
  const auto differs = [&](const Entry& entry, const char* expected, const char* found) {
    return MakeError(ErrorCode::kCorrupt, "config.json does not say of a layer what its weight is")
        .WithPath(written.root)
        .WithTensor(entry.name)
        .WithExpected(expected)
        .WithFound(found);
  };
  std::set<std::string_view> listed;
  if (list != nullptr && list->as_sequence() != nullptr) {
    for (const Value& word : *list->as_sequence()) {
      if (word.as_string() != nullptr) listed.insert(*word.as_string());
    }
  }
  for (const Entry& entry : written.entries) {
    const bool is_listed = listed.contains(ModuleOf(entry.name));
    if (entry.dtype == DType::kF8E4M3 && is_listed) return differs(entry, "a layer that is not listed", "FP8, and listed as not quantized");
    if (IsPlainMatrix(entry) && !is_listed) return differs(entry, "a layer that is listed as not quantized", "no FP8, and not listed");
  }
  return OkStatus();
}

}  // namespace crossdock::dialects::hf
