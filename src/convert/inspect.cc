// SPDX-License-Identifier: Apache-2.0
/// Inspect: what a checkpoint holds, from headers only. A format that is recognised is described even when no family is
/// known for it; what contradicts its family is a problem, and then the report is not consistent.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "convert/kinds.h"
#include "convert/rules.h"
#include "convert/source.h"
#include "convert/summary.h"
#include "convert/target.h"
#include "crossdock/convert.h"
#include "family/detect.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): this file is the room's front door
using formats::Kind;

struct SlotFacts {
  std::int64_t tensors = 0, elements = 0, bytes = 0;
  std::set<std::string> dtypes;
  std::optional<DType> last_dtype;   ///< most tensors have that of the one before
};

struct Facts {
  Source source;
  RuleBook rules;
  std::map<Slot, SlotFacts> slots;
  std::vector<std::int32_t> seen_of;   ///< of a Tunix source: entries of the seen catalog by those that are stored; -1: none
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
  std::vector<std::string> notices, problems;
};

/// Whether config.json names a family at all: without one the tensors are listed as they are.
bool KnowsFamily(const Source& source, const InspectOptions& options, std::vector<std::string>* notices) {
  if (options.family || options.rules || IsMegatron(source.found.kind) || source.found.kind == Kind::kTunix) return true;
  const auto& objects = source.reader->catalog().objects;
  const auto config = objects.find("config.json");
  if (config == objects.end() && !source.reference) {
    notices->emplace_back("there is no config.json, so the family is unknown");
    return false;
  }
  std::vector<const family::FamilyFile*> families;
  for (const family::FamilyFile& file : family::BuiltinFamilies()) families.push_back(&file);
  const family::ModelConfig values =
      config != objects.end() ? family::ModelConfig{"hf", config->second} : *source.reference->config;
  const Result<const family::FamilyFile*> found = family::DetectByConfig(values, families);
  if (found) return true;
  notices->push_back("the family is unknown: " + found.error().message);
  return false;
}

Status Understand(const SourceRequest& request, const InspectOptions& options, Facts* facts) {
  if (const Status seen = SeeTunix(false, &facts->source); !seen) return facts->problems.push_back(seen.error().ToString()), OkStatus();
  if (!KnowsFamily(facts->source, options, &facts->notices)) return OkStatus();
  const Status hub = ReadSourceHub(request, &facts->source);
  if (hub) return OkStatus();
  const Error& error = hub.error();
  if (error.code == ErrorCode::kUsage || error.code == ErrorCode::kIo || error.code == ErrorCode::kUnsafe) return error;
  // A Megatron checkpoint of a model that no family describes is still a sound checkpoint.
  // And a step of Tunix's is one whatever names no family: it stores no configuration.
  const bool foreign = (IsMegatron(facts->source.found.kind) && error.code == ErrorCode::kUnsupported) || (facts->source.tunix && error.code != ErrorCode::kCorrupt);
  (foreign ? facts->notices : facts->problems).push_back(error.ToString());
  return OkStatus();
}

/// What is listed: names as the checkpoint has them, Megatron's of older ages as they are seen.
const Catalog& Listed(const Source& source) { return source.tunix ? source.reader->catalog() : source.seen(); }

/// The slot of an entry of `Listed`.
Slot SlotOf(const Facts& facts, std::size_t index) {
  const Entry& entry = Listed(facts.source).entries[index];
  if (!facts.source.tunix) return SlotOfTarget(entry);
  const std::int32_t seen = facts.seen_of[index];
  return seen < 0 ? Slot::kParam : SlotOfTarget(facts.source.seen().entries[static_cast<std::size_t>(seen)]);
}

void CountAll(Facts* facts) {
  if (facts->source.tunix) {
    facts->seen_of.assign(Listed(facts->source).entries.size(), -1);
    const std::vector<std::int32_t>& of = facts->source.tunix->entry_of;
    for (std::size_t i = 0; i < of.size(); ++i) facts->seen_of[static_cast<std::size_t>(of[i])] = static_cast<std::int32_t>(i);
  }
  for (std::size_t i = 0; i < Listed(facts->source).entries.size(); ++i) {
    const Entry& entry = Listed(facts->source).entries[i];
    SlotFacts& slot = facts->slots[SlotOf(*facts, i)];
    const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
    const Result<std::int64_t> elements = ElementCount(entry.shape);
    ++slot.tensors;
    slot.bytes += bytes ? *bytes : 0;
    slot.elements += elements ? *elements : 0;
    if (slot.last_dtype != entry.dtype) slot.dtypes.emplace(DTypeName(entry.dtype));
    slot.last_dtype = entry.dtype;
    facts->bytes += bytes ? *bytes : 0;
  }
  if (facts->source.hub.family == nullptr) {
    facts->parameters = facts->slots[Slot::kParam].elements;
    return;
  }
  for (const dialects::HubTensor& tensor : facts->source.hub.tensors) {
    if (tensor.slot != Slot::kParam) continue;
    const Result<std::int64_t> elements = ElementCount(tensor.shape);
    facts->parameters += elements ? *elements : 0;
  }
}

/// Whether the report has a line for each tensor.
bool NamesTensors(const Source& source, const InspectOptions& options) {
  return options.tensors || IsMegatron(source.found.kind);
}

Result<Facts> Gather(io::Storage& storage, const InspectOptions& options) {
  SourceRequest request;
  request.path = options.path;
  request.from = options.from;
  request.step = options.step;
  request.family = options.family;
  request.rules = options.rules;
  request.hf_template = options.hf_template;
  request.allow = options.allow;
  Facts facts;
  CROSSDOCK_ASSIGN_OR_RETURN(facts.source, OpenSource(storage, request));
  CROSSDOCK_RETURN_IF_ERROR(Understand(request, options, &facts));
  // Elsewhere lines are folded patterns of names, and binding 100,000 of them is most of the time that takes.
  if (NamesTensors(facts.source, options)) facts.rules = RuleBook::Make(facts.source.hub, facts.source.found.kind);
  CountAll(&facts);
  const std::vector<std::string>& format_notices = facts.source.reader->catalog().notices;
  for (const std::vector<std::string>* list : {&std::as_const(facts.source.found.notices), &format_notices, &std::as_const(facts.source.hub.notices)}) {
    facts.notices.insert(facts.notices.end(), list->begin(), list->end());
  }
  return facts;
}

/// The stored chunks that make the entry `index` of the seen catalog.
std::vector<Chunk> ChunksOf(const Source& source, std::size_t index) {
  const Catalog& stored = source.reader->catalog();
  if (!source.view || source.view->identity) return stored.entries[index].chunks;
  std::vector<int> leaves = expr::LeafOrdinals(source.view->exprs[index]);
  std::ranges::sort(leaves);
  leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
  std::vector<Chunk> chunks;
  for (const int leaf : leaves) {
    const std::vector<Chunk>& more = stored.entries[static_cast<std::size_t>(leaf)].chunks;
    chunks.insert(chunks.end(), more.begin(), more.end());
  }
  return chunks;
}

std::vector<std::string> FilesOf(const Catalog& catalog, const std::vector<Chunk>& chunks) {
  std::set<std::int32_t> numbers;
  for (const Chunk& chunk : chunks) numbers.insert(chunk.file);
  std::vector<std::string> out;
  for (std::int32_t number : numbers) {
    if (number >= 0) out.push_back(catalog.files[static_cast<std::size_t>(number)].path);
  }
  return out;
}

/// "decoder...linear_fc1.weight  BF16 [4, 512, 64] (layer, out, in)  =  model.layers.{0..3}.mlp.gate_proj.weight, ..."
std::string TensorLine(const Facts& facts, std::size_t index, bool files) {
  const Entry& entry = Listed(facts.source).entries[index];
  std::string line = fmt::format("{}  {} {}", Printable(entry.name), DTypeName(entry.dtype), ToString(entry.shape));
  const RuleOf* rule = facts.rules.Find(entry.name);
  if (rule != nullptr && rule->axes.size() == entry.shape.size()) line += fmt::format(" ({})", fmt::join(rule->axes, ", "));
  if (rule != nullptr && IsMegatron(facts.source.found.kind)) line += fmt::format("  =  {}", fmt::join(FoldNames({rule->hub.begin(), rule->hub.end()}), ", "));
  if (files) line += fmt::format("  in {}", fmt::join(FilesOf(facts.source.reader->catalog(), ChunksOf(facts.source, index)), ", "));
  return line;
}

std::vector<std::string> TensorLines(const Facts& facts, const InspectOptions& options) {
  const bool all = options.tensors;
  const Catalog& catalog = Listed(facts.source);
  std::vector<std::string> lines;
  if (NamesTensors(facts.source, options)) {
    for (std::size_t i = 0; i < catalog.entries.size(); ++i) {
      if (all || SlotOf(facts, i) == Slot::kParam) lines.push_back(TensorLine(facts, i, all));
    }
    return lines;
  }
  std::vector<std::string_view> names;
  names.reserve(catalog.entries.size());
  for (const Entry& entry : catalog.entries) names.emplace_back(entry.name);
  for (const std::string& name : FoldNames(names)) lines.push_back(Printable(name));
  return lines;
}

std::string CountersText(const dialects::Counters& counters) {
  std::string out;
  const auto add = [&](const char* name, const std::optional<std::int64_t>& value) {
    if (value) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, *value);
  };
  add("step", counters.step);
  add("adam_count", counters.adam_count);
  add("muon_count", counters.muon_count);
  add("consumed_train_samples", counters.consumed_train_samples);
  return out;
}

std::string LayoutOf(const Value& layout) {
  std::string out;
  if (layout.as_dict() == nullptr) return out;
  for (const auto& [key, value] : layout.as_dict()->items) {
    if (key.as_string() == nullptr || value.is_null()) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", *key.as_string(), value.as_string() != nullptr ? *value.as_string() : ToJson(value, 0));
  }
  return out;
}

/// Megatron loads a run root, not a step of it.
std::string LoadHint(const Source& source) {
  std::string hint = source.hub.load_hint;
  const std::size_t at = hint.find(source.found.path);
  if (!source.found.run_root.empty() && at != std::string::npos) hint.replace(at, source.found.path.size(), source.found.run_root);
  return hint;
}

std::string Text(const Facts& facts, const InspectOptions& options) {
  const Source& source = facts.source;
  const Catalog& catalog = source.reader->catalog();
  const KindSpec& kind = SpecOf(source.found.kind);
  std::string out = fmt::format("{}\nformat      {} ({})\n", Printable(source.found.path, 4096), formats::KindName(source.found.kind), kind.what);
  out += fmt::format("family      {}\n", source.hub.family == nullptr ? "unknown" : source.hub.family->name);
  const std::optional<std::int64_t> step = source.hub.counters.step ? source.hub.counters.step : source.found.step;
  if (source.found.release) {
    out += "step        release\n";
  } else if (step) {
    out += fmt::format("step        {}\n", *step);
  }
  out += fmt::format("parameters  {}\n", facts.parameters);
  out += fmt::format("optimizer   {}\n", source.hub.optimizer.empty() ? "none" : source.hub.optimizer);
  const std::string counters = CountersText(source.hub.counters);
  if (!counters.empty()) out += fmt::format("counters    {}\n", counters);
  const std::string layout = LayoutOf(source.hub.layout);
  if (!layout.empty()) out += fmt::format("layout      {}\n", layout);
  out += fmt::format("{:<9} {:>9} {:>16}  {}\n", "slot", "tensors", "bytes", "dtypes");
  for (const auto& [slot, facts_of] : facts.slots) {
    out += fmt::format("{:<9} {:>9} {:>16}  {}\n", SlotName(slot), facts_of.tensors, facts_of.bytes, fmt::join(facts_of.dtypes, ", "));
  }
  out += Section("optimizer state by parameter", PartitionLines(PartitionOf(source.hub), false));
  std::vector<std::string> files;
  for (const FileRef& file : catalog.files) files.push_back(fmt::format("{:>15}  {}", file.identity.size, Printable(file.path, 4096)));
  out += Section(fmt::format("{} files (bytes)", files.size()), files, options.tensors ? files.size() : 40);
  std::vector<std::string> side;
  for (const SideFile& file : catalog.side_files) side.push_back(Printable(file.path, 4096));
  if (!side.empty()) out += Section("side files", {fmt::format("{}", fmt::join(side, ", "))});
  const std::vector<std::string> lines = TensorLines(facts, options);
  out += Section("tensors", lines, options.tensors ? lines.size() : 60);
  out += Section("left out when converted", LeftOutLines(source.hub.left_out));
  out += Section("notices", facts.notices);
  out += Section("problems", facts.problems);
  const std::string load = LoadHint(source);
  if (!load.empty()) out += fmt::format("load it with:\n  {}\n", load);
  return out;
}

Value TensorJson(const Facts& facts, std::size_t index) {
  const Entry& entry = Listed(facts.source).entries[index];
  const std::vector<Chunk> chunks = ChunksOf(facts.source, index);
  Value row = Value::MakeDict();
  row.Set("name", entry.name);
  row.Set("slot", SlotName(SlotOf(facts, index)));
  row.Set("dtype", DTypeName(entry.dtype));
  ValueList shape;
  for (std::int64_t size : entry.shape) shape.emplace_back(size);
  row.Set("shape", Value::MakeList(std::move(shape)));
  const RuleOf* rule = facts.rules.Find(entry.name);
  row.Set("axes", rule != nullptr && rule->axes.size() == entry.shape.size() ? StringList(rule->axes) : Value());
  row.Set("hub", rule != nullptr ? StringList(rule->hub) : Value());
  row.Set("rule", rule != nullptr ? Value(rule->rule) : Value());
  row.Set("chunks", static_cast<std::int64_t>(chunks.size()));
  row.Set("files", StringList(FilesOf(facts.source.reader->catalog(), chunks)));
  return row;
}

Value Json(const Facts& facts, const InspectOptions& options) {
  const Source& source = facts.source;
  const Catalog& catalog = source.reader->catalog();
  const dialects::Counters& counters = source.hub.counters;
  const auto optional = [](const std::optional<std::int64_t>& v) { return v ? Value(*v) : Value(); };
  Value out = Value::MakeDict();
  out.Set("command", "inspect");
  out.Set("version", VersionString());
  out.Set("path", source.found.path);
  out.Set("run_root", source.found.run_root);
  out.Set("format", formats::KindName(source.found.kind));
  out.Set("family", source.hub.family == nullptr ? Value() : Value(source.hub.family->name));
  out.Set("step", optional(counters.step ? counters.step : source.found.step));
  out.Set("release", source.found.release);
  out.Set("parameters", facts.parameters);
  out.Set("bytes", facts.bytes);
  out.Set("optimizer", source.hub.optimizer.empty() ? Value("none") : Value(source.hub.optimizer));
  Value counts = Value::MakeDict();
  counts.Set("step", optional(counters.step));
  counts.Set("adam_count", optional(counters.adam_count));
  counts.Set("muon_count", optional(counters.muon_count));
  counts.Set("consumed_train_samples", optional(counters.consumed_train_samples));
  out.Set("counters", std::move(counts));
  out.Set("layout", source.hub.layout);
  Value slots = Value::MakeDict();
  for (const auto& [slot, of] : facts.slots) {
    Value row = Value::MakeDict();
    row.Set("tensors", of.tensors);
    row.Set("bytes", of.bytes);
    row.Set("dtypes", StringList({of.dtypes.begin(), of.dtypes.end()}));
    slots.Set(SlotName(slot), std::move(row));
  }
  out.Set("slots", std::move(slots));
  if (const Partition partition = PartitionOf(source.hub); !partition.empty()) out.Set("partition", PartitionJson(partition, false));
  ValueList files, keys, tensors;
  for (const FileRef& file : catalog.files) {
    Value row = Value::MakeDict();
    row.Set("path", file.path);
    row.Set("bytes", file.identity.size);
    files.push_back(std::move(row));
  }
  const std::vector<Entry>& entries = Listed(source).entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    keys.emplace_back(entries[i].name);
    if (options.tensors) tensors.push_back(TensorJson(facts, i));
  }
  out.Set("files", Value::MakeList(std::move(files)));
  out.Set("keys", Value::MakeList(std::move(keys)));
  if (options.tensors) out.Set("tensors", Value::MakeList(std::move(tensors)));
  std::vector<std::string> side;
  for (const SideFile& file : catalog.side_files) side.push_back(file.path);
  out.Set("side_files", StringList(side));
  out.Set("left_out", LeftOutJson(source.hub.left_out));
  out.Set("notices", StringList(facts.notices));
  out.Set("problems", StringList(facts.problems));
  out.Set("consistent", facts.problems.empty());
  out.Set("load", LoadHint(source));
  return out;
}

}  // namespace

Result<Report> Inspect(const InspectOptions& options, const Hooks& hooks) {
  if (hooks.on_progress) hooks.on_progress({"reading metadata", 0, 0, ""});
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  CROSSDOCK_ASSIGN_OR_RETURN(Facts gathered, Gather(*storage, options));
  auto owner = std::make_unique<Facts>(std::move(gathered));
  const Facts& facts = *owner;
  Report report;
  report.consistent = facts.problems.empty();
  if (options.text) report.text = Text(facts, options);
  if (options.json) report.json = ToJson(Json(facts, options)) + "\n";
  [[maybe_unused]] static const Facts* kept = nullptr;  // where a leak checker finds what is not freed
  if (options.last) kept = owner.release();
  return report;
}

}  // namespace crossdock
