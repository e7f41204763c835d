// SPDX-License-Identifier: Apache-2.0
#include "convert/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

#include "convert/kinds.h"
#include "convert/momentum.h"
#include "dialects/mcore/target_unit.h"
#include "expr/dequantize.h"

namespace crossdock::convert {
namespace {

std::int64_t BytesOfEntry(const Entry& entry) {
  const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
  return bytes ? *bytes : 0;
}

std::map<Slot, SlotTotals> CountSlots(const Source& source, const Target& target) {
  std::map<Slot, SlotTotals> out;
  if (target.resharded) {
    for (const Entry& entry : source.seen().entries) out[SlotOfTarget(entry)].read.Add(BytesOfEntry(entry));
  } else {
    for (const dialects::HubTensor& tensor : source.hub.tensors) out[tensor.slot].read.Add(BytesOf(tensor));
  }
  for (const Entry& entry : target.placement.catalog.entries) out[SlotOfTarget(entry)].written.Add(BytesOfEntry(entry));
  return out;
}

std::vector<std::string> CastLines(const Source& source, const Target& target) {
  std::map<std::pair<DType, DType>, std::int64_t> casts;
  std::map<DType, std::int64_t> quantized;
  std::int64_t inexact = 0;
  const std::vector<Entry>& from = source.reader->catalog().entries;
  for (std::size_t i = 0; i < target.exprs.size(); ++i) {
    const std::vector<int> leaves = expr::LeafOrdinals(target.exprs[i]);
    if (leaves.empty()) continue;
    // A dequantized weight is told by the reader; what is cast is what that gives.
    const DType before = expr::DequantizedType(target.exprs[i]).value_or(from[static_cast<std::size_t>(leaves.front())].dtype);
    if (target.exprs[i]->op == expr::Op::kQuantizeScales) continue;  // told with the values
    const bool quantizes = expr::IsQuantize(target.exprs[i]);
    const DType after = quantizes ? target.exprs[i]->inputs[0]->dtype : target.placement.catalog.entries[i].dtype;
    if (before != after) ++casts[{before, after}];
    if (quantizes) ++quantized[after];
    if (expr::IsInexact(target.exprs[i])) ++inexact;
  }
  std::vector<std::string> lines;
  for (const auto& [pair, count] : casts) {
    lines.push_back(fmt::format("{} tensors cast from {} to {}", count, DTypeName(pair.first), DTypeName(pair.second)));
  }
  for (const auto& [from_type, count] : quantized) lines.push_back(fmt::format("{} tensors quantized from {} to F8_E4M3", count, DTypeName(from_type)));
  if (inexact != 0) lines.push_back(fmt::format("{} tensors are rounded by that and cannot be restored bit for bit", inexact));
  return lines;
}

std::vector<dialects::LeftOut> AllLeftOut(const Source& source, const Target& target, const ConvertOptions& options) {
  std::vector<dialects::LeftOut> all = source.hub.left_out;
  // Megatron to Megatron has what the source's own reading names already, object by object; of random states it alone knows.
  const bool random_told = target.state.random_states > 0 || std::ranges::any_of(target.state.left_out, [](const dialects::LeftOut& item) { return item.name == "rng_state"; });
  if (random_told) std::erase_if(all, [](const dialects::LeftOut& item) { return item.name == "rng_state"; });
  for (const dialects::LeftOut& item : target.state.left_out) {
    const bool told = std::ranges::any_of(source.hub.left_out, [&](const dialects::LeftOut& other) { return item.name.starts_with(other.name + "/"); });
    if (!told) all.push_back(item);
  }
  if (options.no_rng) {
    for (dialects::LeftOut& item : all) {
      if (item.name.find("rng") != std::string::npos) item.reason = "left behind by --no-rng";
    }
  }
  return all;
}

std::vector<std::string> AllNotices(const Source& source, const Target& target) {
  std::vector<std::string> all = source.found.notices;
  for (const std::vector<std::string>* more : {&source.reader->catalog().notices, &source.hub.notices,
                                               &target.state.notices, &target.placement.catalog.notices}) {
    for (const std::string& line : *more) {
      if (std::ranges::find(all, line) == all.end()) all.push_back(line);
    }
  }
  return all;
}

std::string StepText(const std::optional<std::int64_t>& step) { return step ? fmt::format(", step {}", *step) : ""; }

bool IsReleaseSource(const Source& source) { return WritesMegatron(source.found.kind) && dialects::mcore::IsRelease(source.reader->catalog()); }

/// Nothing for a directory called release, whose 0 says nothing.
std::optional<std::int64_t> SourceStep(const Source& source) {
  if (IsReleaseSource(source)) return std::nullopt;
  return source.hub.counters.step ? source.hub.counters.step : source.found.step;
}

std::string LayoutText(const Target& target, const ConvertOptions& options) {
  if (!WritesMegatron(target.kind)) return "";
  const int vpp = target.state.stages.vpp;
  const std::string experts = options.layout.ep > 1 || options.layout.etp > 0
                                  ? fmt::format(", ep {}, etp {}", options.layout.ep, options.layout.etp > 0 ? options.layout.etp : options.layout.tp)
                                  : "";
  const std::string encoder = options.layout.encoder_tp > 0 ? fmt::format(", encoder tp {}", options.layout.encoder_tp) : "";
  return fmt::format(", tp {}, pp {}{}{}{}", options.layout.tp, options.layout.pp, vpp > 1 ? fmt::format(", vpp {}", vpp) : "", experts, encoder);
}

/// The dialect says TARGET where the path stands; a path with a space is quoted for the shell.
std::vector<std::string> LoadLines(const Target& target) {
  const std::string& path = WritesMegatron(target.kind) ? target.root : target.unit;
  std::vector<std::string> lines = target.state.load_line;
  for (std::string& line : lines) {
    const bool plain = path.find_first_of(" \t\n'\"$&;()<>|*?`\\") == std::string::npos;
    for (std::size_t at = line.find("TARGET"); at != std::string::npos;) {
      const bool quoted = at > 0 && line[at - 1] == '"';
      const std::string shown = quoted || plain ? Printable(path, 4096) : "'" + Printable(path, 4096) + "'";
      line.replace(at, 6, shown);
      at = line.find("TARGET", at + shown.size());
    }
  }
  return lines;
}

/// Megatron's legacy files and other formats hold for their own layout.
std::string AnyLayoutText(const Target& target, const ConvertOptions& options) {
  const bool one = options.layout.tp == 1 && options.layout.pp == 1;
  if (target.kind != formats::Kind::kMegatron || one) return "";
  return "any tensor- and pipeline-parallel sizes load it: Megatron divides torch_dist anew when loading\n";
}

std::string TargetStepText(const Target& target) {
  return target.state.unit_name == "release" ? ", release" : StepText(target.placement.catalog.step);
}

std::string FamilyName(const Source& source) { return source.hub.family == nullptr ? "" : source.hub.family->name; }

Value Optional(const std::optional<std::int64_t>& v) { return v ? Value(*v) : Value(); }

std::int64_t SumOf(const std::vector<FileRef>& files) {
  std::int64_t sum = 0;
  for (const FileRef& file : files) sum += file.identity.size;
  return sum;
}

std::vector<std::string> CopiedFiles(const Target& target) {
  std::vector<std::string> names;
  for (const SideFile& file : target.placement.catalog.side_files) {
    if (file.role == SideFile::Role::kSide) names.push_back(file.path);
  }
  return names;
}

std::string SlotTable(const std::map<Slot, SlotTotals>& slots) {
  std::string out = fmt::format("{:<9} {:>9} {:>12}   {:>9} {:>12}\n", "slot", "read", "", "written", "");
  for (const auto& [slot, totals] : slots) {
    out += fmt::format("{:<9} {:>9} {:>12}   {:>9} {:>12}\n", SlotName(slot), totals.read.tensors, HumanBytes(totals.read.bytes),
                       totals.written.tensors, HumanBytes(totals.written.bytes));
  }
  return out;
}

Value SlotJson(const std::map<Slot, SlotTotals>& slots) {
  Value out = Value::MakeDict();
  for (const auto& [slot, totals] : slots) {
    Value row = Value::MakeDict();
    row.Set("tensors_read", totals.read.tensors);
    row.Set("bytes_read", totals.read.bytes);
    row.Set("tensors_written", totals.written.tensors);
    row.Set("bytes_written", totals.written.bytes);
    out.Set(SlotName(slot), std::move(row));
  }
  return out;
}

/// What a summary and a plan tell alike.
struct Shared {
  const Tally& tally;
  std::vector<dialects::LeftOut> left_out;
  std::vector<std::string> notices, copied;
  std::vector<FileRef> files;
};

Shared Collect(const Source& source, const Target& target, const ConvertOptions& options, const Tally& tally) {
  return {tally, AllLeftOut(source, target, options), AllNotices(source, target), CopiedFiles(target), target.AllFiles()};
}

std::string EndsText(const Source& source, const Target& target, const ConvertOptions& options) {
  const std::string family = FamilyName(source);
  const std::string named = family.empty() ? "" : ", " + family;
  return fmt::format("from      {} ({}{}{})\nto        {} ({}{}{}{})\n", Printable(source.found.path, 4096),
                     formats::KindName(source.found.kind), named, IsReleaseSource(source) ? ", release" : StepText(SourceStep(source)), Printable(target.unit, 4096),
                     formats::KindName(target.kind), named, TargetStepText(target),
                     LayoutText(target, options));
}

Value EndsJson(const char* command, const Source& source, const Target& target, const ConvertOptions& options, const Shared& shared) {
  Value out = Value::MakeDict();
  out.Set("command", command);
  out.Set("version", VersionString());
  const auto end = [&](const std::string& path, formats::Kind kind, const std::optional<std::int64_t>& step) {
    Value v = Value::MakeDict();
    v.Set("path", path);
    v.Set("format", formats::KindName(kind));
    v.Set("family", FamilyName(source));
    v.Set("step", Optional(step));
    return v;
  };
  Value from = end(source.found.path, source.found.kind, SourceStep(source));
  Value to = end(target.unit, target.kind, target.placement.catalog.step);
  if (WritesMegatron(target.kind)) {
    to.Set("tp", options.layout.tp);
    to.Set("pp", options.layout.pp);
    to.Set("vpp", target.state.stages.vpp);
  }
  to.Set("files", static_cast<std::int64_t>(shared.files.size()));
  to.Set("bytes", SumOf(shared.files));
  out.Set("source", std::move(from));
  out.Set("target", std::move(to));
  out.Set("slots", SlotJson(shared.tally.slots));
  if (!shared.tally.partition.empty()) out.Set("partition", PartitionJson(shared.tally.partition, true));
  if (source.momentum) out.Set("muon_momentum", MomentumJson(*source.momentum));
  out.Set("left_out", LeftOutJson(shared.left_out));
  out.Set("casts", StringList(shared.tally.casts));
  out.Set("notices", StringList(shared.notices));
  out.Set("side_files", StringList(shared.copied));
  out.Set("allowed", StringList(options.allow));
  out.Set("plan_hash", target.plan.hash);
  return out;
}

std::string SharedText(const Shared& shared, const ConvertOptions& options) {
  std::string out = SlotTable(shared.tally.slots);
  out += Section("optimizer state by parameter", PartitionLines(shared.tally.partition, true));
  if (!shared.copied.empty()) out += Section("side files", {fmt::format("{}", fmt::join(shared.copied, ", "))});
  out += Section("left out", LeftOutLines(shared.left_out));
  out += Section("cast", shared.tally.casts);
  out += Section("notices", shared.notices);
  if (!options.allow.empty()) out += Section("allowed", {fmt::format("{}", fmt::join(options.allow, ", "))});
  return out;
}

/// "stage 1, chunk 0: layers 3 to 5, embedding"; without virtual stages a chunk is the whole stage.
std::string StageTable(const layout::StageMap& stages) {
  std::vector<std::string> lines;
  for (const layout::StageMap::ModelChunk& held : stages.chunks) {
    std::string line = fmt::format("stage {}", held.stage);
    if (stages.vpp > 1) line += fmt::format(", chunk {}", held.index);
    if (held.count == 0) line += ": no layers";
    if (held.count == 1) line += fmt::format(": layer {}", held.first);
    if (held.count > 1) line += fmt::format(": layers {} to {}", held.first, held.first + held.count - 1);
    lines.push_back(line + (held.embedding ? ", embedding" : "") + (held.head ? ", head" : ""));
  }
  return Section("pipeline stages", lines, 64);
}

Value StagesJson(const layout::StageMap& stages) {
  ValueList rows;
  for (const layout::StageMap::ModelChunk& held : stages.chunks) {
    ValueList layers;
    for (std::int64_t layer = held.first; layer < held.first + held.count; ++layer) layers.emplace_back(layer);
    Value row = Value::MakeDict();
    row.Set("stage", held.stage);
    row.Set("chunk", held.index);
    row.Set("layers", Value::MakeList(std::move(layers)));
    row.Set("embedding", held.embedding);
    row.Set("head", held.head);
    rows.push_back(std::move(row));
  }
  return Value::MakeList(std::move(rows));
}

std::int64_t StatusField(const char* name) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(name)) return std::strtoll(line.c_str() + std::string_view(name).size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

}  // namespace

std::int64_t AnonymousNow() { return StatusField("RssAnon"); }
std::int64_t PeakRss() { return StatusField("VmHWM"); }

std::string HumanBytes(std::int64_t bytes) {
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kNames.size(); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string Section(const std::string& heading, const std::vector<std::string>& lines, std::size_t limit) {
  if (lines.empty()) return "";
  std::string out = heading + ":\n";
  for (std::size_t i = 0; i < std::min(lines.size(), limit); ++i) out += fmt::format("  {}\n", lines[i]);
  if (lines.size() > limit) out += fmt::format("  ... and {} more\n", lines.size() - limit);
  return out;
}

std::vector<std::string> LeftOutLines(const std::vector<dialects::LeftOut>& left_out) {
  std::vector<std::string> lines;
  for (const dialects::LeftOut& item : left_out) {
    std::string line = Printable(item.name);
    if (item.count > 1) line += fmt::format(" ({} of them)", item.count);
    if (item.bytes > 0) line += fmt::format(", {}", HumanBytes(item.bytes));
    lines.push_back(line + ": " + item.reason);
  }
  return lines;
}

Value LeftOutJson(const std::vector<dialects::LeftOut>& left_out) {
  ValueList rows;
  for (const dialects::LeftOut& item : left_out) {
    Value row = Value::MakeDict();
    row.Set("name", item.name);
    row.Set("reason", item.reason);
    row.Set("count", item.count);
    row.Set("bytes", item.bytes);
    rows.push_back(std::move(row));
  }
  return Value::MakeList(std::move(rows));
}

Value StringList(const std::vector<std::string>& lines) {
  ValueList rows;
  for (const std::string& line : lines) rows.emplace_back(line);
  return Value::MakeList(std::move(rows));
}

Tally TallyOf(const Source& source, const Target& target) { return {CountSlots(source, target), PartitionOf(source.hub, target.exprs), CastLines(source, target)}; }

Report MakeSummary(const Source& source, const Target& target, const ConvertOptions& options, const Tally& tally,
                   const Outcome& outcome) {
  const Shared shared = Collect(source, target, options, tally);
  const double seconds = std::max(outcome.measures.seconds, 1e-9);
  const auto rate = static_cast<std::int64_t>(static_cast<double>(outcome.report.bytes_written) / seconds);
  Report out;
  out.text = (outcome.complete_before ? "complete already, nothing was written\n" : "converted\n") + EndsText(source, target, options) + SharedText(shared, options);
  out.text += fmt::format("{} tensors in {} files ({}), opened again and counted{}\n", outcome.reopened, shared.files.size(),
                          HumanBytes(SumOf(shared.files)), outcome.verified ? "; every tensor compared with the source" : "");
  if (outcome.dropped) out.text += "dropped: the unfinished work of an earlier run (`--resume` goes on with it)\n";
  for (const std::string& notice : outcome.report.notices) out.text += notice + "\n";
  if (outcome.replaced) out.text += fmt::format("replaced: the `{}` checkpoint that lay there before\n", *outcome.replaced);
  if (outcome.report.overflows != 0) {
    out.text += fmt::format("{} values became infinite, as `--allow nonfinite` permits\n", outcome.report.overflows);
  }
  if (outcome.report.nonfinite != 0) {
    out.text += fmt::format("{} values are NaN or infinite and were quantized, as `--allow nonfinite` permits\n", outcome.report.nonfinite);
  }
  if (outcome.report.tasks_resumed != 0) {
    out.text += fmt::format("{} of {} pieces were there from the interrupted run\n", outcome.report.tasks_resumed, target.plan.tasks.size());
  }
  out.text += fmt::format("{} read, {} written in {:.2f} s, {}/s; peak memory {} ({} anonymous)\n",
                          HumanBytes(outcome.report.bytes_read), HumanBytes(outcome.report.bytes_written), seconds, HumanBytes(rate),
                          HumanBytes(outcome.measures.peak_rss), HumanBytes(outcome.measures.peak_anonymous));
  out.text += AnyLayoutText(target, options) + fmt::format("load it with:\n  {}\n", fmt::join(LoadLines(target), "\n  "));

  Value json = EndsJson("convert", source, target, options, shared);
  json.Set("bytes_read", outcome.report.bytes_read);
  json.Set("bytes_written", outcome.report.bytes_written);
  json.Set("seconds", outcome.measures.seconds);
  json.Set("bytes_per_second", rate);
  json.Set("peak_memory", outcome.measures.peak_rss);
  json.Set("peak_anonymous", outcome.measures.peak_anonymous);
  json.Set("values_made_infinite", outcome.report.overflows);
  json.Set("values_not_finite", outcome.report.nonfinite);
  json.Set("tasks_resumed", outcome.report.tasks_resumed);
  json.Set("complete_before", outcome.complete_before);
  json.Set("dropped_unfinished_work", outcome.dropped);
  json.Set("run_notices", StringList(outcome.report.notices));
  json.Set("replaced", outcome.replaced ? Value(*outcome.replaced) : Value());
  json.Set("reopened_tensors", outcome.reopened);
  json.Set("verified", outcome.verified);
  json.Set("load", StringList(LoadLines(target)));
  out.json = ToJson(json) + "\n";
  return out;
}

Report MakePlanReport(const Source& source, const Target& target, const ConvertOptions& options, std::int64_t free_bytes,
                      const Status& would_begin) {
  const Tally tally = TallyOf(source, target);
  const Shared shared = Collect(source, target, options, tally);
  const std::int64_t needed = SumOf(shared.files);
  Report out;
  out.text = fmt::format("total     {} in {} files; nothing is written by a dry run\n", HumanBytes(needed), shared.files.size());
  Value files = Value::MakeList();
  std::vector<std::string> lines;
  for (const FileRef& file : shared.files) {
    lines.push_back(fmt::format("{:>15}  {}", file.identity.size, Printable(file.path, 4096)));
    Value row = Value::MakeDict();
    row.Set("path", file.path);
    row.Set("bytes", file.identity.size);
    files.mutable_sequence()->push_back(std::move(row));
  }
  out.text += Section("files (bytes)", lines, 200);
  out.text += EndsText(source, target, options) + SharedText(shared, options);
  out.text += StageTable(target.state.stages);
  out.text += fmt::format("reads     {} in {} pieces of at most {}\n", HumanBytes(target.plan.bytes_read), target.plan.tasks.size(),
                          HumanBytes(target.plan.task_bytes));
  out.text += fmt::format("disk      {} bytes needed, {} bytes free{}\n", needed, free_bytes, needed > free_bytes ? ": NOT ENOUGH" : "");
  out.text += fmt::format("memory    {} expected at the peak, with {} threads; --memory is {}\n", HumanBytes(target.plan.peak_memory),
                          target.threads, HumanBytes(options.memory));
  if (!would_begin) out.text += "the real run would fail: " + would_begin.error().ToString() + "\n";
  out.text += AnyLayoutText(target, options) + fmt::format("load it with:\n  {}\n", fmt::join(LoadLines(target), "\n  "));

  Value json = EndsJson("plan", source, target, options, shared);
  json.Set("files", std::move(files));
  if (!target.state.stages.chunks.empty()) json.Set("stages", StagesJson(target.state.stages));
  json.Set("bytes_read", target.plan.bytes_read);
  json.Set("bytes_written", target.plan.bytes_written);
  json.Set("tasks", static_cast<std::int64_t>(target.plan.tasks.size()));
  json.Set("disk_needed", needed);
  json.Set("disk_free", free_bytes);
  json.Set("would_fail", would_begin ? Value() : Value(would_begin.error().ToString()));
  json.Set("expected_peak_memory", target.plan.peak_memory);
  json.Set("threads", target.threads);
  json.Set("load", StringList(LoadLines(target)));
  out.json = ToJson(json) + "\n";
  return out;
}

}  // namespace crossdock::convert
