// SPDX-License-Identifier: Apache-2.0
#include "formats/mp_rank/rank_dirs.h"

#include <algorithm>

namespace crossdock::formats::mp_rank {
namespace {

constexpr std::string_view kPrefix = "mp_rank_";
constexpr std::string_view kAncientFile = "model_rng.pt";
constexpr std::size_t kMostNamed = 8;

Result<RankDir> ReadDir(io::Storage& storage, const std::string& dir, const std::string& name, bool* complete) {
  RankDir out;
  out.name = name;
  CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(io::JoinPath(dir, name)));
  bool model = false;
  bool ancient = false;
  for (const io::DirEntry& entry : entries) {
    if (entry.kind == io::FileKind::kDirectory) continue;
    if (entry.name == kModelFile) {
      model = true;
    } else if (entry.name == kDistributedFile) {
      out.distributed = true;
    } else {
      ancient = ancient || entry.name == kAncientFile;
      out.others.push_back(entry.name);
    }
  }
  if (!model && ancient) {
    return MakeError(ErrorCode::kUnsupported, "a rank keeps model and optimizer apart, as Megatron-LM did in 2022")
        .WithPath(io::JoinPath(io::JoinPath(dir, name), kAncientFile))
        .WithExpected(std::string(kModelFile))
        .WithHint("load it with that Megatron-LM and save it again");
  }
  *complete = model;
  std::ranges::sort(out.others);
  return out;
}

}  // namespace

bool IsRankDir(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  int numbers = 0;
  while (!name.empty()) {
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0 || ++numbers > 3) return false;
    name.remove_prefix(digits);
    if (name.empty()) return true;
    if (name[0] != '_') return false;
    name.remove_prefix(1);
  }
  return false;
}

Result<std::vector<RankDir>> ListRankDirs(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(dir));
  std::vector<RankDir> out;
  std::string missing;
  std::size_t count = 0;
  for (const io::DirEntry& entry : entries) {
    if (entry.kind != io::FileKind::kDirectory || !IsRankDir(entry.name)) continue;
    bool complete = false;
    CROSSDOCK_ASSIGN_OR_RETURN(RankDir rank, ReadDir(storage, dir, entry.name, &complete));
    // With a distributed optimizer every rank makes its directory, also those that then write nothing.
    if (!complete && !rank.distributed && rank.others.empty()) continue;
    if (!complete && ++count <= kMostNamed) missing += (missing.empty() ? "`" : ", `") + Printable(entry.name) + "`";
    out.push_back(std::move(rank));
  }
  if (count != 0) {
    return MakeError(ErrorCode::kIncomplete, "ranks have no model file")
        .WithPath(dir)
        .WithExpected("`" + std::string(kModelFile) + "` in " + missing + (count > kMostNamed ? " and more" : ""))
        .WithFound("no such file")
        .WithHint("copy the missing files from where the checkpoint was saved");
  }
  if (out.empty()) {
    return MakeError(ErrorCode::kIncomplete, "no rank's files are here").WithPath(dir).WithExpected("directories mp_rank_00, ...");
  }
  std::ranges::sort(out, {}, &RankDir::name);
  return out;
}

}  // namespace crossdock::formats::mp_rank
