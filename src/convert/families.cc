// SPDX-License-Identifier: Apache-2.0
/// Families: what is supported, per dialect; one family's rule file as it stands.
#include <fmt/format.h>

#include <set>

#include "convert/kinds.h"
#include "crossdock/convert.h"
#include "family/family_file.h"
#include "tensor/value.h"

namespace crossdock {
namespace {

/// The dialects a family has rules for; the hub, hf, is always one.
std::set<std::string> DialectsOf(const family::FamilyFile& file) {
  std::set<std::string> out = {"hf"};
  for (const family::Group& group : file.groups) {
    for (const family::Row& row : group.rows) {
      for (const auto& [dialect, target] : row.targets) {
        if (target.name != "-") out.insert(dialect);
      }
    }
  }
  return out;
}

Value Describe(const family::FamilyFile& file) {
  Value row = Value::MakeDict();
  row.Set("name", file.name);
  row.Set("model_type", file.model_type);
  Value architectures = Value::MakeList();
  for (const std::string& name : file.architectures) architectures.mutable_sequence()->emplace_back(name);
  row.Set("architectures", std::move(architectures));
  Value dialects = Value::MakeList();
  for (const std::string& name : DialectsOf(file)) dialects.mutable_sequence()->emplace_back(name);
  row.Set("dialects", std::move(dialects));
  return row;
}

}  // namespace

Result<Report> Families(const std::string& name) {
  Report report;
  Value list = Value::MakeList();
  report.text = fmt::format("{:<12} {:<24} {}\n", "family", "dialects", "architectures");
  bool found = false;
  for (const family::FamilyFile& file : family::BuiltinFamilies()) {
    const std::set<std::string> dialects = DialectsOf(file);
    report.text += fmt::format("{:<12} {:<24} {}\n", file.name, fmt::join(dialects, ", "), fmt::join(file.architectures, ", "));
    list.mutable_sequence()->push_back(Describe(file));
    if (file.name != name) continue;
    found = true;
    Value one = Describe(file);
    one.Set("rules", file.text);
    return Report{file.text, ToJson(one) + "\n", true, true, {}};
  }
  if (!name.empty() && !found) {
    return MakeError(ErrorCode::kUsage, fmt::format("there is no family `{}`", Printable(name)))
        .WithHint("`crossdock families` lists them");
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
