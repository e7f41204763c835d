// SPDX-License-Identifier: Apache-2.0
/// Families: what is supported, per dialect; one family's rule file as it stands.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "convert/kinds.h"
#include "convert/summary.h"
#include "crossdock/convert.h"
#include "crossdock/nearest.h"
#include "family/builtin_files.h"
#include "family/family_file.h"
#include "io/storage.h"
#include "tensor/value.h"

namespace crossdock {
namespace {

/// The dialects of this version that a family has rules for; the hub, hf, is always one.
std::set<std::string> DialectsOf(const family::FamilyFile& file) {
  std::set<std::string> out = {"hf"};
  for (const family::Group& group : file.groups) {
    for (const family::Row& row : group.rows) {
      for (const auto& [dialect, target] : row.targets) {
        if (target.name != "-" && std::ranges::find(file.without, dialect) == file.without.end()) out.insert(dialect);
      }
    }
  }
  return out;
}

/// The operations of its rows beside those that every family has, by name.
std::set<std::string> OperationsOf(const family::FamilyFile& file) {
  std::set<std::string> out;
  const auto add = [&](const family::RowTarget& target) {
    for (const std::vector<std::string>& ops : target.ops) {
      for (const std::string& op : ops) out.insert(op.substr(0, op.find(':')));
    }
  };
  for (const family::Group& group : file.groups) {
    for (const family::Row& row : group.rows) {
      for (const auto& [dialect, target] : row.targets) {
        if (std::ranges::find(file.without, dialect) == file.without.end()) add(target);
      }
    }
  }
  for (const auto& [name, spelling] : file.spellings) {
    for (const family::SpellingRow& row : spelling.rows) add(row.target);
  }
  for (const char* plain : {"id", "col", "row", "vocab"}) out.erase(plain);
  return out;
}

/// The file and what it includes.
std::string RulesInFull(const family::FamilyFile& file) {
  std::string out = file.text;
  for (const std::string& name : file.included) {
    for (const family::BuiltinFile& included : family::BuiltinFiles()) {
      if (included.name == name) out += fmt::format("\n# ---- {} ----\n{}", name, included.text);
    }
  }
  return out;
}

Value Describe(const family::FamilyFile& file) {
  Value row = Value::MakeDict();
  row.Set("name", file.name);
  row.Set("model_type", file.model_type);
  row.Set("architectures", convert::StringList(file.architectures));
  const std::set<std::string> dialects = DialectsOf(file);
  row.Set("dialects", convert::StringList({dialects.begin(), dialects.end()}));
  row.Set("models", file.models);
  row.Set("megatron_names", convert::StringList(file.consumers));
  const std::set<std::string> operations = OperationsOf(file);
  row.Set("operations", convert::StringList({operations.begin(), operations.end()}));
  Value verified = Value::MakeDict();
  for (const auto& [judge, what] : file.verified) verified.Set(judge, what);
  row.Set("verified", std::move(verified));
  return row;
}

}  // namespace

Result<Report> Families(const std::string& name, const std::optional<std::string>& rules) {
  Report report;
  std::vector<const family::FamilyFile*> files;
  for (const family::FamilyFile& file : family::BuiltinFamilies()) files.push_back(&file);
  std::optional<family::FamilyFile> own;
  if (rules) {
    const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(*storage, *rules));
    CROSSDOCK_ASSIGN_OR_RETURN(own, family::ParseFamilyFile(text, *rules));
    // The user's file goes before one of ours that has the same name, as in a conversion.
    std::erase_if(files, [&](const family::FamilyFile* file) { return file->name == own->name; });
    files.push_back(&*own);
  }
  Value list = Value::MakeList();
  std::size_t width = 12;
  for (const family::FamilyFile* listed : files) width = std::max(width, listed->name.size());
  report.text = fmt::format("{:<{}} {:<19} {}\n", "family", width, "dialects", "architectures");
  std::vector<std::string_view> known;
  for (const family::FamilyFile* listed : files) {
    const family::FamilyFile& file = *listed;
    known.emplace_back(file.name);
    const std::set<std::string> dialects = DialectsOf(file);
    report.text += fmt::format("{:<{}} {:<19} {}\n", file.name, width, fmt::format("{}", fmt::join(dialects, ", ")),
                               fmt::join(file.architectures, ", "));
    if (!file.models.empty()) report.text += fmt::format("  models      {}\n", file.models);
    if (const std::set<std::string> operations = OperationsOf(file); !operations.empty()) report.text += fmt::format("  operations  {}\n", fmt::join(operations, ", "));
    for (const auto& [judge, what] : file.verified) report.text += fmt::format("  verified    {}: {}\n", judge, what);
    list.mutable_sequence()->push_back(Describe(file));
    if (file.name != name) continue;
    Value one = Describe(file);
    const std::string full = RulesInFull(file);
    one.Set("rules", full);
    return Report{full, ToJson(one) + "\n", true, true, {}};
  }
  if (!name.empty()) {
    return MakeError(ErrorCode::kUsage, fmt::format("there is no family `{}`", Printable(name)))
        .WithHint(Nearest(name, known).empty() ? "`crossdock families` lists them" : DidYouMean(name, known));
  }
  Value out = Value::MakeDict();
  out.Set("families", std::move(list));
  Value formats_list = Value::MakeList();
  report.text += fmt::format("\n{:<16} {:<6} {:<6} {}\n", "format", "read", "write", "what");
  for (const convert::KindSpec& spec : convert::KindTable()) {
    report.text += fmt::format("{:<16} {:<6} {:<6} {}\n", formats::KindName(spec.kind), spec.reads ? "yes" : "-",
                               spec.writes ? "yes" : "-", spec.what);
    Value row = Value::MakeDict();
    row.Set("name", formats::KindName(spec.kind));
    row.Set("read", spec.reads);
    row.Set("write", spec.writes);
    formats_list.mutable_sequence()->push_back(std::move(row));
  }
  out.Set("formats", std::move(formats_list));
  report.json = ToJson(out) + "\n";
  return report;
}

}  // namespace crossdock
