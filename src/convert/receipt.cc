// SPDX-License-Identifier: Apache-2.0
#include "convert/receipt.h"

#include "convert/kinds.h"
#include "crossdock/convert.h"

namespace crossdock::convert {

std::string MakeReceipt(const Source& source, const Target& target, const execute::ExecuteReport& report) {
  Value out = Value::MakeDict();
  out.Set("version", VersionString());
  out.Set("plan_hash", target.plan.hash);
  out.Set("source", source.found.path);
  out.Set("source_format", formats::KindName(source.found.kind));
  out.Set("target", target.unit);
  out.Set("target_format", formats::KindName(target.kind));
  ValueList tensors;
  const std::vector<Entry>& entries = target.placement.catalog.entries;
  for (std::size_t i = 0; i < entries.size() && i < report.digests.size(); ++i) {
    Value row = Value::MakeDict();
    row.Set("name", entries[i].name);
    row.Set("dtype", DTypeName(entries[i].dtype));
    ValueList shape;
    for (std::int64_t size : entries[i].shape) shape.emplace_back(size);
    row.Set("shape", Value::MakeList(std::move(shape)));
    row.Set("bytes", report.digests[i].length);
    row.Set("digest", report.digests[i].ToHex());
    tensors.push_back(std::move(row));
  }
  out.Set("tensors", Value::MakeList(std::move(tensors)));
  return ToJson(out) + "\n";
}

}  // namespace crossdock::convert
