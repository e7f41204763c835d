// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/layout.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/digits.h"

namespace crossdock::formats::orbax {
namespace {

constexpr std::string_view kTreeFile = "_METADATA";
constexpr std::string_view kStepFile = "_CHECKPOINT_METADATA";
constexpr std::array<std::string_view, 2> kTunixItems = {"model_params", "optimizer_state"};
constexpr std::string_view kMsgpack = "checkpoint";  // flax's file, before there was a tree file

bool Has(io::Storage& storage, const std::string& dir, std::string_view name) { return io::Exists(storage, io::JoinPath(dir, name)); }

std::optional<std::int64_t> StepOf(const std::string& path) {
  const std::string name = io::BaseName(path);
  const std::size_t from = name.rfind('_');
  const std::string digits = from == std::string::npos ? name : name.substr(from + 1);
  if (!OnlyDigits(digits)) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return error == std::errc{} ? std::optional(step) : std::nullopt;
}

Status CheckFinished(const std::string& path) {
  if (!IsTemporary(io::BaseName(path))) return OkStatus();
  return MakeError(ErrorCode::kIncomplete, "the checkpoint is incomplete: its name says that it was being written")
      .WithPath(path)
      .WithHint("choose another step; this one was not saved to its end");
}

/// An item without its tree file: say what it is instead.
Error NoTree(io::Storage& storage, const std::string& dir) {
  if (Has(storage, dir, kMsgpack)) {
    return MakeError(ErrorCode::kUnsupported, "the item holds its tree in a msgpack file, as Orbax did before 0.5: such files are not read")
        .WithPath(io::JoinPath(dir, kMsgpack)).WithExpected("a file `_METADATA`")
        .WithHint("restore it with Orbax and save it again");
  }
  return MakeError(ErrorCode::kIncomplete, "the item has no tree: nobody can tell what its arrays are")
      .WithPath(dir).WithExpected("a file `_METADATA`");
}

std::string NamesOf(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "`" : ", `") + Printable(name) + "`";
  return out;
}

Result<ItemPlace> AlreadyItem(io::Storage& storage, const std::string& path) {
  ItemPlace place;
  const std::string parent = io::ParentPath(path);
  const bool tunix = IsTunixItem(io::BaseName(path));
  const bool in_step = !Has(storage, path, kStepFile) && (tunix || Has(storage, parent, kStepFile));
  if (in_step) CROSSDOCK_RETURN_IF_ERROR(CheckFinished(parent));
  place.root = in_step ? parent : path;
  if (in_step) place.item = io::BaseName(path);
  if (in_step && tunix) place.together = {place.item};
  place.step = StepOf(place.root);
  if (!Has(storage, path, kTreeFile)) return NoTree(storage, path);
  return place;
}

}  // namespace

bool IsTunixItem(std::string_view name) { return std::ranges::find(kTunixItems, name) != kTunixItems.end(); }

bool IsTemporary(std::string_view name) { return name.find(".orbax-checkpoint-tmp") != std::string_view::npos; }

bool IsItem(io::Storage& storage, const std::string& dir) {
  return Has(storage, dir, kTreeFile) || Has(storage, dir, "manifest.ocdbt") || Has(storage, dir, kMsgpack);
}

Result<ItemPlace> FindItem(io::Storage& storage, const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(CheckFinished(path));
  if (IsItem(storage, path)) return AlreadyItem(storage, path);
  ItemPlace place;
  place.root = path;
  place.step = StepOf(path);
  std::vector<std::string> items;
  std::vector<std::string> unfinished;
  CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(path));
  for (const io::DirEntry& entry : entries) {
    if (entry.kind != io::FileKind::kDirectory) continue;
    if (IsTemporary(entry.name)) {
      unfinished.push_back(entry.name);
    } else if (IsItem(storage, io::JoinPath(path, entry.name))) {
      items.push_back(entry.name);
    } else {
      place.others.push_back(entry.name);
    }
  }
  const auto of_tunix = [](const std::string& name) { return IsTunixItem(std::string_view(name).substr(0, name.find('.'))); };
  if ((items.empty() && !unfinished.empty()) || std::ranges::any_of(unfinished, of_tunix)) {
    return MakeError(ErrorCode::kIncomplete, "the checkpoint is incomplete: an item was not saved to its end")
        .WithPath(path).WithFound(NamesOf(unfinished));
  }
  if (items.empty()) {
    return MakeError(ErrorCode::kIncomplete, "an Orbax checkpoint without arrays")
        .WithPath(path).WithExpected("a directory with `_METADATA` in it").WithFound(place.others.empty() ? "none" : NamesOf(place.others));
  }
  if (std::ranges::find(items, kTunixItems.front()) != items.end()) {
    for (const std::string_view name : kTunixItems) {
      if (std::ranges::find(items, name) != items.end()) place.together.emplace_back(name);
    }
  }
  const auto usual = std::ranges::find(items, place.together.empty() ? "items" : place.together.front());
  if (usual == items.end() && items.size() > 1) {
    return MakeError(ErrorCode::kUsage, "the step holds several items").WithPath(path).WithFound(NamesOf(items))
        .WithHint("give the path of one of them");
  }
  place.item = usual == items.end() ? items.front() : *usual;
  for (const std::string& item : items) {
    if (item != place.item && std::ranges::find(place.together, item) == place.together.end()) place.others.push_back(item);
  }
  std::ranges::sort(place.others);
  if (!Has(storage, place.dir(), kTreeFile)) return NoTree(storage, place.dir());
  for (const std::string& item : place.together) {
    const std::string dir = io::JoinPath(place.root, item);
    if (!Has(storage, dir, kTreeFile)) return NoTree(storage, dir);
  }
  return place;
}

namespace {

/// Its arrays are in a database that has no manifest yet.
bool LacksManifest(io::Storage& storage, const std::string& dir) {
  if (Has(storage, dir, "manifest.ocdbt")) return false;
  const auto entries = storage.List(dir);
  return entries && std::ranges::any_of(*entries, [](const io::DirEntry& e) { return e.name == "d" || e.name.starts_with("ocdbt.process_"); });
}

}  // namespace

std::optional<std::string> UnfinishedReason(io::Storage& storage, const std::string& path) {
  if (IsTemporary(io::BaseName(path))) return "its name says that it was being written";
  const auto place = FindItem(storage, path);
  if (!place) return place.error().code == ErrorCode::kIncomplete ? std::optional(place.error().message) : std::nullopt;
  std::vector<std::string> dirs = {place->dir()};
  for (const std::string& item : place->together) dirs.push_back(io::JoinPath(place->root, item));
  for (const std::string& dir : dirs) {
    if (LacksManifest(storage, dir)) return "`manifest.ocdbt` is missing in `" + Printable(io::BaseName(dir)) + "`, which Orbax writes last";
  }
  return std::nullopt;
}

}  // namespace crossdock::formats::orbax
