// SPDX-License-Identifier: Apache-2.0
#include "convert/export_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "convert/replaced.h"
#include "formats/recognise.h"
#include "formats/registry.h"

namespace crossdock {
namespace convert {

constexpr const char* kIteration = "iter_";

Result<std::string> SavePath(const ExportOptions& options, std::int64_t step) {
  if (options.to != formats::KindName(formats::Kind::kMegatron)) return ExportPath(options.dst, options.overwrite, step);
  if (step >= 0) return io::JoinPath(options.dst, fmt::format("iter_{:07d}", step));
  return MakeError(ErrorCode::kUsage, "an iteration has no negative number").WithFound(fmt::format("{}", step));
}

Status CheckReplaces(io::Storage& storage, const std::string& path, formats::Kind kind) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> there, WhatIsReplaced(storage, path));
  if (there && *there != formats::KindName(kind)) {
    const bool hf = kind == formats::Kind::kHf;
    return MakeError(ErrorCode::kUsage, fmt::format("a save replaces an earlier {}, and what lies at the target is none", hf ? "Hugging Face directory" : "iteration of its kind")).WithPath(path)
        .WithExpected(fmt::format("nothing, or a `{}` checkpoint", formats::KindName(kind))).WithFound(fmt::format("a `{}` checkpoint", *there))
        .WithHint(hf ? "save to another directory than the run's own checkpoints" : "save to the root of the run, or to a new one");
  }
  if (kind != formats::Kind::kHf) return OkStatus();
  const std::string parent = io::ParentPath(io::AbsolutePath(path));
  if (!io::BaseName(io::AbsolutePath(path)).starts_with(kIteration) || !io::Exists(storage, parent)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<io::DirEntry> entries, storage.List(parent));
  for (const io::DirEntry& entry : entries) {
    bool of_megatron = entry.name == formats::kTracker;
    if (entry.kind == io::FileKind::kDirectory && entry.name.starts_with(kIteration)) {
      const std::optional<formats::Content> content = formats::ContentOf(storage, io::JoinPath(parent, entry.name));
      of_megatron = content && content->kind != formats::Kind::kHf;
    }
    if (!of_megatron) continue;
    return MakeError(ErrorCode::kUsage, "the target lies among the run's own checkpoints, under a name that Megatron gives to those").WithPath(path)
        .WithExpected(fmt::format("no checkpoint of Megatron in `{}`", Printable(parent))).WithFound(fmt::format("`{}`", Printable(entry.name)))
        .WithHint("save to another directory, or under another name, such as `hf_{step}`");
  }
  return OkStatus();
}

}  // namespace convert

Result<std::string> ExportPath(const std::string& dst, bool overwrite, std::int64_t step) {
  std::string out;
  bool field = false;
  for (std::size_t at = 0; at < dst.size(); ++at) {
    if (dst.compare(at, 2, "{{") == 0 || dst.compare(at, 2, "}}") == 0) {
      out += dst[at++];
      continue;
    }
    if (dst[at] != '{') {
      out += dst[at];
      continue;
    }
    const std::size_t end = dst.find('}', at);
    const std::string inside = dst.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    const std::size_t colon = std::min(inside.find(':'), inside.size());
    const std::string name = inside.substr(0, colon);
    std::string form = colon < inside.size() ? inside.substr(colon + 1) : "";
    if (form.ends_with('d')) form.pop_back();
    const bool digits = form.size() <= 3 && form.find_first_not_of("0123456789") == std::string::npos;
    if (end == std::string::npos || (name != "step" && name != "rollout_id") || !digits) {
      return MakeError(ErrorCode::kUsage, "the target's template has a field that is none").WithPath(dst)
          .WithExpected("`{step}`, `{rollout_id}` or with a width `{step:07d}`").WithFound(Printable("{" + inside + "}"));
    }
    const bool zeros = form.starts_with('0');
    const std::size_t width = form.empty() ? 0 : static_cast<std::size_t>(std::stoi(form));
    std::string number = fmt::format("{}", step);
    if (number.size() < width) number.insert(0, width - number.size(), zeros ? '0' : ' ');
    out += number;
    field = true;
    at = end;
  }
  if (out.empty()) return MakeError(ErrorCode::kUsage, "a save needs a target");
  return field || overwrite ? out : io::JoinPath(out, fmt::format("iter_{:07d}", step));
}

}  // namespace crossdock
