// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>

#include "dialects/hf/claim.h"
#include "dialects/hf/config.h"
#include "dialects/hf/fp8_experts.h"
#include "dialects/hf/fp8_export.h"
#include "dialects/hf/hf_dialect.h"
#include "dialects/hf/hub_target.h"
#include "dialects/hf/spelling.h"

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
  const bool untied = hub.model.Holds("untied");
  if (untied) return false;
  return hub.tied || std::find(options.template_order.begin(), options.template_order.end(), HeadOf(*hub.family)) != options.template_order.end();
}

/// The names that a template has decide which form its model takes.
Result<Spellings> SpellingOfTarget(const HubState& hub, const TargetOptions& options) {
  const auto shape_of = [&](std::string_view name) {
    const auto shape = options.template_shapes.find(std::string(name));
    return shape == options.template_shapes.end() ? nullptr : &shape->second;
  };
  const bool decided = !options.experts.empty();  // then only the prefixes are the template's
  Result<Spellings> found = SpellingOfNames(*hub.family, hub.model, options.template_order, shape_of, "the template");
  if (options.fp8) {
    // Scales are those of single experts: a form that joins them is left, whatever the template has.
    if (decided && options.experts != "single") {
      return MakeError(ErrorCode::kUsage, "FP8 is written expert by expert")
          .WithExpected("`--experts single`, or no `--experts`")
          .WithFound(fmt::format("`--experts {}`", Printable(options.experts)));
    }
    const bool joins = found && std::ranges::any_of(*found, [&](const std::string& name) { return !hub.family->spellings.at(name).rows.empty(); });
    return joins ? WithExperts(*hub.family, "single", *std::move(found)) : std::move(found);
  }
  if (!decided) return found;
  return WithExperts(*hub.family, options.experts, found ? *std::move(found) : Spellings());
}

/// Copies of hub tensors: those that a Hugging Face source had, or that the template lists; all where neither speaks.
Status AddCopies(const HubState& hub, const TargetOptions& options, const Spellings& spellings, const std::vector<SpelledTensor>& tensors, Draft* draft) {
  std::map<std::string_view, const HubTensor*> by_name;
  for (const SpelledTensor& one : tensors) {
    if (one.tensor.slot == Slot::kParam) by_name[one.tensor.name] = &one.tensor;
  }
  for (const HubCopy& copy : hub.copies) {
    if (copy.name == copy.of) continue;  // the source stores it twice, under one hub name
    const std::string name = family::SpelledName(*hub.family, spellings, copy.name);
    const auto& order = options.template_order;
    const bool listed = std::find(order.begin(), order.end(), name) != order.end();
    const bool wanted = order.empty() ? !copy.absent : listed;
    const auto original = by_name.find(family::SpelledName(*hub.family, spellings, copy.of));
    if (!wanted || original == by_name.end()) continue;
    const HubTensor& of = *original->second;
    CROSSDOCK_RETURN_IF_ERROR(draft->Add(name, copy.name, Slot::kParam, of.dtype, of.shape, of.expr, options));
  }
  return OkStatus();
}

/// Names in the order of the rule file, whatever the source or the template has: the same weights then lie in the same files, by
/// whatever way they came.
Result<std::vector<std::string>> OrderOfRules(const HubState& hub, const Spellings& spellings) {
  family::BindOptions bind;
  bind.dialect = "hf";
  bind.spellings = spellings;
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding binding, family::Bind(*hub.family, hub.model, bind));
  std::vector<std::string> order;
  for (const family::DialectTensor& tensor : binding.tensors) order.push_back(tensor.name);
  return order;
}

/// The parameters alone, master weights in their place where they are asked for.
Result<HubState> ParamsOf(const HubState& hub, const TargetOptions& options) {
  HubState params;
  params.family = hub.family;
  params.model = hub.model;
  params.tensors = hub.tensors;
  if (options.params_from_master) CROSSDOCK_RETURN_IF_ERROR(UseMasters(&params));
  std::erase_if(params.tensors, [](const HubTensor& tensor) { return tensor.slot != Slot::kParam; });
  return params;
}

}  // namespace

Status AddHfFolder(const HubState& hub, const TargetOptions& options, DType param_dtype, TargetState* target) {
  TargetState folder;
  CROSSDOCK_RETURN_IF_ERROR(AddConfigAndSideFiles(hub, options, param_dtype, &folder));
  for (SideFile& file : folder.catalog.side_files) {
    file.path = "hf/" + file.path;
    target->catalog.side_files.push_back(std::move(file));
  }
  for (std::string& notice : folder.notices) target->notices.push_back(std::move(notice));
  return OkStatus();
}

Status CheckOptimizerCarried(const HubState& hub) {
  if (hub.optimizer_refusal.empty()) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, "the source's optimizer state cannot be carried: " + hub.optimizer_refusal)
      .WithHint("--no-optim writes the parameters alone");
}

Status UseMasters(HubState* hub) {
  std::map<std::string, HubTensor> masters;
  for (const HubTensor& tensor : hub->tensors) {
    if (tensor.slot == Slot::kMaster) masters[tensor.name] = tensor;
  }
  if (masters.empty()) {
    return MakeError(ErrorCode::kIncomplete, "the source has no master weights, which --params-from master asks for")
        .WithHint("leave --params-from out");
  }
  for (HubTensor& tensor : hub->tensors) {
    const auto master = masters.find(tensor.name);
    if (tensor.slot != Slot::kParam || master == masters.end()) continue;
    tensor.dtype = master->second.dtype;
    tensor.expr = master->second.expr;
  }
  return OkStatus();
}

Status Draft::Add(std::string name, const std::string& hub_name, Slot slot, DType source_dtype, const Shape& shape,
                  expr::Expr expr, const TargetOptions& options) {
  Entry entry;
  entry.name = std::move(name);
  entry.dtype = source_dtype;
  entry.shape = shape;
  const bool wanted = slot == Slot::kParam && options.dtype && IsFloating(source_dtype) && source_dtype != *options.dtype;
  const bool island = wanted && family != nullptr && family::FitsAny(family->f32_islands, hub_name);
  if (island) ++kept;
  if (wanted && !island && !IsKept(hub_name, options)) {
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
  if (kept > 0) target->notices.push_back(fmt::format("{} tensors keep their dtype: the family {} computes with them in F32", kept, family->name));
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

/// FP8: the config.json of a Hugging Face source gets its quantization_config and nothing else, not even the dtype in a second spelling.
void AddQuantization(const HubState& hub, const TargetOptions& options, const Value& quantization, ConfigResult* config) {
  const Value* base = hub.config.words == "hf" && !options.template_config ? &hub.config.values : nullptr;
  const bool said = base != nullptr && (base->Find("dtype") != nullptr || base->Find("torch_dtype") != nullptr);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (said && base->Find(key) == nullptr) config->config.Erase(key);
  }
  std::erase_if(config->changes, [](const ConfigChange& change) { return change.key == "quantization_config" || change.key == "compression_config"; });
  config->config.Set("quantization_config", quantization);
}

Status AddConfigAndSideFiles(const HubState& hub, const TargetOptions& options, DType param_dtype, TargetState* target, const Value* quantization) {
  CROSSDOCK_ASSIGN_OR_RETURN(ConfigResult config, MakeConfig(hub, options.template_config, param_dtype));
  if (quantization != nullptr) AddQuantization(hub, options, *quantization, &config);
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
  CROSSDOCK_ASSIGN_OR_RETURN(const HubState params, ParamsOf(hub, options));
  CROSSDOCK_ASSIGN_OR_RETURN(const Spellings spellings, SpellingOfTarget(hub, options));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<SpelledTensor> tensors, Spell(params, spellings));
  Draft draft;
  draft.family = hub.family;
  for (const auto& [tensor, hub_name] : tensors) {
    CROSSDOCK_RETURN_IF_ERROR(draft.Add(tensor.name, hub_name, Slot::kParam, tensor.dtype, tensor.shape, tensor.expr, options));
    if (hub_name == EmbeddingOf(*hub.family) && WantsHeadBesideTied(hub, options)) {
      const std::string head = HeadOf(*hub.family);
      CROSSDOCK_RETURN_IF_ERROR(draft.Add(family::SpelledName(*hub.family, spellings, head), head, Slot::kParam, tensor.dtype, tensor.shape, tensor.expr, options));
      target.notices.push_back(head + " is written beside the embedding it is tied to, as the reference has it");
    }
  }
  target.load_line = {fmt::format("{}.from_pretrained(\"TARGET\")", hub.family->text_config.empty() ? "AutoModelForCausalLM" : "AutoModelForImageTextToText")};
  for (const std::string& name : spellings) target.notices.push_back(fmt::format("the names are spelled as the family's `{}`", name));
  CROSSDOCK_RETURN_IF_ERROR(AddCopies(hub, options, spellings, tensors, &draft));
  if (options.fp8) {
    const DType dtype = MainDType(draft);  // of the values, which stays the dtype to compute in
    CROSSDOCK_ASSIGN_OR_RETURN(Fp8Export fp8, ExportFp8(hub, options, &draft));
    CROSSDOCK_RETURN_IF_ERROR(AddConfigAndSideFiles(hub, options, dtype, &target, &fp8.quantization_config));
    CROSSDOCK_ASSIGN_OR_RETURN(target.order, OrderOfRules(hub, spellings));
    target.order = OrderOfExperts(target.order, draft);
    target.scale_of = std::move(fp8.scale_of);
    if (!fp8.load_line.empty()) target.load_line = {fp8.load_line};
    for (std::string& line : fp8.notices) target.notices.push_back(std::move(line));
  } else {
    CROSSDOCK_RETURN_IF_ERROR(AddConfigAndSideFiles(hub, options, MainDType(draft), &target));
  }
  draft.Finish(&target);
  NameWhatStays(hub, options.params_from_master, &target);
  return target;
}

}  // namespace crossdock::dialects::hf
