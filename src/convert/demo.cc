// SPDX-License-Identifier: Apache-2.0
/// Demo: DIR/hf and DIR/full-state through the same planner, executor and writers as any conversion.
#include <fmt/format.h>

#include "convert/demo_model.h"
#include "convert/job.h"
#include "crossdock/convert.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): this file is the room's front door

Status CheckFree(io::Storage& storage, const std::string& dir) {
  if (!io::Exists(storage, dir)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat(dir));
  if (info.kind == io::FileKind::kDirectory) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<io::DirEntry> entries, storage.List(dir));
    if (entries.empty()) return OkStatus();
  }
  return MakeError(ErrorCode::kUsage, "the directory exists already, and a demo replaces nothing")
      .WithPath(dir)
      .WithHint("name a directory that does not exist");
}

Status WriteOne(const DemoModel& model, io::Storage& storage, const std::string& target, const char* format, const Hooks& hooks) {
  ConvertOptions options;
  options.source = "demo";
  options.target = target;
  options.to = format;
  options.memory = std::int64_t{64} << 20U;
  CROSSDOCK_ASSIGN_OR_RETURN(Target planned, PrepareTarget(model.source, options));
  CROSSDOCK_ASSIGN_OR_RETURN(const JobResult result, RunJob(model.source, &planned, storage, options, hooks));
  return OkStatus();
}

}  // namespace

Result<Report> Demo(const std::string& dir, const Hooks& hooks) {
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  CROSSDOCK_RETURN_IF_ERROR(CheckFree(*storage, dir));
  CROSSDOCK_ASSIGN_OR_RETURN(const DemoModel model, MakeDemoModel());
  const std::string hf = io::JoinPath(dir, "hf");
  const std::string full = io::JoinPath(dir, "full-state");
  CROSSDOCK_RETURN_IF_ERROR(WriteOne(model, *storage, hf, "hf", hooks));
  CROSSDOCK_RETURN_IF_ERROR(WriteOne(model, *storage, full, "full-state", hooks));
  Report report;
  report.text = fmt::format(
      "made a small Qwen3 (4 layers, random weights):\n"
      "  {}  Hugging Face directory, bfloat16, with a tokenizer\n"
      "  {}  full training state: float32 masters, Adam moments, counters\n"
      "try:\n"
      "  crossdock convert {} {} --to megatron --tp 2 --pp 2\n",
      Printable(hf, 4096), Printable(full, 4096), Printable(full, 4096), Printable(io::JoinPath(dir, "megatron"), 4096));
  Value json = Value::MakeDict();
  json.Set("command", "demo");
  json.Set("hf", hf);
  json.Set("full_state", full);
  report.json = ToJson(json) + "\n";
  return report;
}

}  // namespace crossdock
