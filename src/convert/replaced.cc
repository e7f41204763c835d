// SPDX-License-Identifier: Apache-2.0
#include "convert/replaced.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/recognise.h"

namespace crossdock::convert {
namespace {

constexpr std::size_t kNamesShown = 8;

/// config.json lies in many a project; what makes a Hugging Face directory a checkpoint is its weights.
bool HoldsWeights(const std::vector<io::DirEntry>& entries) {
  return std::ranges::any_of(entries, [](const io::DirEntry& e) {
    return e.kind != io::FileKind::kDirectory &&
           (e.name.ends_with(".safetensors") || e.name.ends_with(".safetensors.index.json") || e.name.starts_with("pytorch_model"));
  });
}

std::string NamesOf(std::vector<io::DirEntry> entries) {
  std::ranges::sort(entries, {}, &io::DirEntry::name);
  std::string out;
  for (std::size_t i = 0; i < std::min(entries.size(), kNamesShown); ++i) {
    out += fmt::format("{}`{}`", out.empty() ? "" : ", ", Printable(entries[i].name));
  }
  if (entries.size() > kNamesShown) out += fmt::format(" and {} more", entries.size() - kNamesShown);
  return out;
}

Error NoCheckpoint(const std::string& unit, std::string found) {
  return MakeError(ErrorCode::kUsage, "what lies at the target is no checkpoint, and `--force` replaces nothing else")
      .WithPath(unit)
      .WithFound(std::move(found))
      .WithHint("name another target, or remove this one yourself");
}

}  // namespace

Result<std::optional<std::string>> WhatIsReplaced(io::Storage& storage, const std::string& unit) {
  const Result<io::FileInfo> info = storage.Stat(unit);
  if (!info) {
    if (info.error().code != ErrorCode::kIncomplete) return info.error();
    return std::optional<std::string>();
  }
  if (info->kind != io::FileKind::kDirectory) return NoCheckpoint(unit, info->kind == io::FileKind::kFile ? "a file" : "a device, a pipe or a socket");
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<io::DirEntry> entries, storage.List(unit));
  if (entries.empty()) return std::optional<std::string>();
  const std::optional<formats::Content> content = formats::ContentOf(storage, unit);
  const bool hf = content && (content->kind == formats::Kind::kHf || content->kind == formats::Kind::kFullState);
  if (!content || (hf && !HoldsWeights(entries))) return NoCheckpoint(unit, NamesOf(entries));
  return std::optional<std::string>(formats::KindName(content->kind));
}

}  // namespace crossdock::convert
