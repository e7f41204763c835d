// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>

#include "dialects/hf/claim.h"
#include "dialects/hf/config.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/hub_target.h"

namespace crossdock::dialects::hf {
namespace {

bool IsKept(const std::string& name, const TargetOptions& options) {
  return std::any_of(options.keep_dtype.begin(), options.keep_dtype.end(),
                     [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

bool IsTokenizerFile(std::string_view path) {
  constexpr std::array kNames = {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json",
                                 "sentencepiece.bpe.model"};
  return path.ends_with(".tiktoken") ||
         std::any_of(kNames.begin(), kNames.end(), [&](std::string_view name) { return path == name; });
}

bool HasTokenizer(const std::vector<SideFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const SideFile& f) { return IsTokenizerFile(f.path); });
}

/// The template's files are a whole when a tokenizer is among them; else they go over the source's own.
std::vector<SideFile> ChooseSideFiles(const HubState& hub, const TargetOptions& options) {
  std::map<std::string, SideFile> files;
  if (!HasTokenizer(options.template_side_files)) {
    for (const SideFile& file : hub.side_files) files[file.path] = file;
  }
  for (const SideFile& file : options.template_side_files) files[file.path] = file;
  files.erase("config.json");
  std::vector<SideFile> out;
  for (auto& [path, file] : files) {
    if (file.role == SideFile::Role::kSide) out.push_back(std::move(file));
  }
  return out;
}

/// Optimizer state, counters and the rest that a Hugging Face directory has no place for.
void NameWhatStays(const HubState& hub, bool masters_used, TargetState* target) {
  constexpr std::string_view kReason = "a Hugging Face directory holds parameters only";
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.slot == Slot::kParam || (masters_used && tensor.slot == Slot::kMaster)) continue;
    const auto bytes = ByteSize(tensor.dtype, tensor.shape);
    AddLeftOut(&target->left_out, "optimizer state", std::string(kReason), bytes ? *bytes : 0);
  }
  const Counters& c = hub.counters;
  std::string counters;
  const auto add = [&](std::string_view name, const std::optional<std::int64_t>& value) {
    if (value) counters += fmt::format("{}{} {}", counters.empty() ? "" : ", ", name, *value);
  };
  add("step", c.step);
  add("adam_count", c.adam_count);
  add("muon_count", c.muon_count);
  add("consumed_train_samples", c.consumed_train_samples);
  if (!counters.empty()) target->left_out.push_back({"counters: " + counters, "config.json has no place for them", 1, 0});
  if (!hub.extras.as_dict()->items.empty()) {
    target->left_out.push_back({"scheduler and optimizer settings", "config.json has no place for them", 1, 0});
  }
}

bool WantsHeadBesideTied(const HubState& hub, const TargetOptions& options) {
  const bool untied = std::find(hub.model.conditions.begin(), hub.model.conditions.end(), "untied") != hub.model.conditions.end();
  if (untied) return false;
  return hub.tied || std::find(options.template_order.begin(), options.template_order.end(), kHead) != options.template_order.end();
}

}  // namespace

Status Draft::Add(std::string name, const std::string& hub_name, Slot slot, DType source_dtype, const Shape& shape,
                  expr::Expr expr, const TargetOptions& options) {
  Entry entry;
  entry.name = std::move(name);
  entry.dtype = source_dtype;
  entry.shape = shape;
  if (slot == Slot::kParam && options.dtype && IsFloating(source_dtype) && source_dtype != *options.dtype && !IsKept(hub_name, options)) {
    entry.dtype = *options.dtype;
    auto cast_expr = expr::Cast(std::move(expr), *options.dtype);
    if (!cast_expr) return std::move(cast_expr).error().WithTensor(entry.name);
    expr = std::move(cast_expr).value();
    if (cast++ == 0) cast_text = fmt::format("{} to {}", DTypeName(source_dtype), DTypeName(*options.dtype));
  }
  Chunk chunk;
  chunk.box = Box::Whole(shape);
  entry.chunks.push_back(std::move(chunk));
  tensors.emplace_back(std::move(entry), std::move(expr));
  return OkStatus();
}

void Draft::Finish(TargetState* target) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  for (auto& [entry, expr] : tensors) {
    target->catalog.entries.push_back(std::move(entry));
    target->exprs.push_back(std::move(expr));
  }
  if (cast > 0) target->notices.push_back(fmt::format("{} tensors are cast from {}", cast, cast_text));
}

DType MainDType(const Draft& draft) {
  std::map<DType, std::int64_t> bytes;
  for (const auto& [entry, expr] : draft.tensors) {
    if (entry.name.starts_with("optim/") || entry.name.starts_with("optim.")) continue;
    const auto size = ByteSize(entry.dtype, entry.shape);
    bytes[entry.dtype] += size ? *size : 0;
  }
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::kF32 : most->first;
}

Status AddConfigAndSideFiles(const HubState& hub, const TargetOptions& options, DType param_dtype, TargetState* target) {
  CROSSDOCK_ASSIGN_OR_RETURN(ConfigResult config, MakeConfig(hub, options.template_config, param_dtype));
  if (hub.config.words == "mcore" && !options.template_config) {
    target->notices.push_back("config.json was rebuilt from Megatron's arguments (--hf-template DIR takes the original's)");
  }
  for (const ConfigChange& change : config.changes) {
    target->notices.push_back(fmt::format("config.json: {} {} -> {}", Printable(change.key), change.before, change.after));
  }
  SideFile file;
  file.path = "config.json";
  file.bytes = ToJson(config.config, 2) + "\n";
  file.size = static_cast<std::int64_t>(file.bytes->size());
  target->catalog.side_files.push_back(std::move(file));
  target->catalog.objects["config.json"] = std::move(config.config);
  std::vector<SideFile> side_files = ChooseSideFiles(hub, options);
  if (!HasTokenizer(side_files)) {
    target->notices.push_back("no tokenizer files: neither source nor template has any (--tokenizer PATH copies them)");
  }
  for (SideFile& side_file : side_files) target->catalog.side_files.push_back(std::move(side_file));
  return OkStatus();
}

Result<TargetState> WriteHub(const HubState& hub, const TargetOptions& options) {
  TargetState target;
  target.catalog.format = "safetensors";
  std::map<std::string_view, const HubTensor*> masters;
  if (options.params_from_master) {
    for (const HubTensor& tensor : hub.tensors) {
      if (tensor.slot == Slot::kMaster) masters[tensor.name] = &tensor;
    }
    if (masters.empty()) {
      return MakeError(ErrorCode::kIncomplete, "the source has no master weights, which --params-from master asks for")
          .WithHint("leave --params-from out");
    }
  }
  Draft draft;
  for (const HubTensor& tensor : hub.tensors) {
    if (tensor.slot != Slot::kParam) continue;
    const auto master = masters.find(tensor.name);
    const HubTensor& from = master == masters.end() ? tensor : *master->second;
    CROSSDOCK_RETURN_IF_ERROR(draft.Add(tensor.name, tensor.name, Slot::kParam, from.dtype, from.shape, from.expr, options));
    if (tensor.name == kEmbedding && WantsHeadBesideTied(hub, options)) {
      const std::string head(kHead);
      CROSSDOCK_RETURN_IF_ERROR(draft.Add(head, head, Slot::kParam, from.dtype, from.shape, from.expr, options));
      target.notices.push_back("lm_head.weight is written beside the embedding it is tied to, as the reference has it");
    }
  }
  CROSSDOCK_RETURN_IF_ERROR(AddConfigAndSideFiles(hub, options, MainDType(draft), &target));
  draft.Finish(&target);
  NameWhatStays(hub, options.params_from_master, &target);
  target.load_line = {"AutoModelForCausalLM.from_pretrained(\"TARGET\")"};
  return target;
}

}  // namespace crossdock::dialects::hf
