// SPDX-License-Identifier: Apache-2.0
#include "convert/manifest.h"

#include <set>

#include "convert/kinds.h"
#include "convert/momentum.h"
#include "convert/rules.h"
#include "convert/summary.h"
#include "crossdock/convert.h"

namespace crossdock::convert {
namespace {

/// "adam", "muon" or "none" for a hub name.
class OwnerIndex {
 public:
  explicit OwnerIndex(const dialects::HubState& hub) {
    for (const dialects::HubTensor& t : hub.tensors) {
      if (t.slot == Slot::kAdamMu) adam_.insert(t.name);
      if (t.slot == Slot::kMuonMu) muon_.insert(t.name);
    }
  }
  [[nodiscard]] const char* Of(const std::string& hub_name) const {
    if (muon_.contains(hub_name)) return "muon";
    return adam_.contains(hub_name) ? "adam" : "none";
  }

 private:
  std::set<std::string> adam_, muon_;
};

/// What the numbers in an expression stand for: [number, name of the stored tensor].
Value SourcesOf(const Source& source, const expr::Expr& root) {
  ValueList rows;
  for (int leaf : expr::LeafOrdinals(root)) {
    const Entry& entry = source.reader->catalog().entries[static_cast<std::size_t>(leaf)];
    rows.push_back(Value::MakeList({Value(leaf), Value(entry.name)}));
  }
  return Value::MakeList(std::move(rows));
}

Value ShapeJson(const Shape& shape) {
  ValueList out;
  for (std::int64_t size : shape) out.emplace_back(size);
  return Value::MakeList(std::move(out));
}

}  // namespace

std::string MakeManifest(const Source& source, const Target& target) {
  const RuleBook rules = RuleBook::Make(source.hub, target.kind);
  const OwnerIndex partition(source.hub);
  Value out = Value::MakeDict();
  out.Set("version", VersionString());
  out.Set("source", source.found.path);
  out.Set("source_format", formats::KindName(source.found.kind));
  out.Set("target_format", formats::KindName(target.kind));
  out.Set("family", source.hub.family == nullptr ? Value() : Value(source.hub.family->name));
  out.Set("optimizer", source.hub.optimizer.empty() ? Value("none") : Value(source.hub.optimizer));
  if (source.momentum) out.Set("muon_momentum", MomentumJson(*source.momentum));
  out.Set("plan_hash", target.plan.hash);
  ValueList rows;
  const std::vector<Entry>& entries = target.placement.catalog.entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const RuleOf* rule = rules.Find(entries[i].name);
    Value row = Value::MakeDict();
    row.Set("name", entries[i].name);
    row.Set("slot", SlotName(SlotOfTarget(entries[i])));
    row.Set("dtype", DTypeName(entries[i].dtype));
    row.Set("shape", ShapeJson(entries[i].shape));
    row.Set("hub", rule == nullptr ? Value::MakeList() : StringList(rule->hub));
    row.Set("rule", rule == nullptr ? Value() : Value(rule->rule));
    row.Set("expression", expr::Describe(target.exprs[i]));
    row.Set("sources", SourcesOf(source, target.exprs[i]));
    row.Set("partition", rule == nullptr || rule->hub.empty() ? "none" : partition.Of(rule->hub.front()));
    rows.push_back(std::move(row));
  }
  out.Set("tensors", Value::MakeList(std::move(rows)));
  std::vector<dialects::LeftOut> left_out = source.hub.left_out;
  left_out.insert(left_out.end(), target.state.left_out.begin(), target.state.left_out.end());
  out.Set("left_out", LeftOutJson(left_out));
  return ToJson(out) + "\n";
}

}  // namespace crossdock::convert
