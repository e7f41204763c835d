// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/names.h"
#include "dialects/tunix/adapter.h"
#include "dialects/tunix/leaf_tree.h"
#include "dialects/tunix/optimizer_levels.h"

namespace crossdock::dialects::tunix {
namespace {

using maxtext::KeyPath;
using maxtext::OptimizerKind;

/// Where the schedules of adamw and of Muon's groups keep their counters.
constexpr int kAdamSchedule = 2;
constexpr int kMuonSchedule = 3;

bool IsRandom(const std::string& name, const LeafNode& leaf) {
  return !leaf.random_key.is_null() || maxtext::ParseTreeKey("nnx_aux." + name).kind == maxtext::TreeKey::Kind::kRandom;
}

class Viewer {
 public:
  explicit Viewer(const Catalog& source) : source_(source) {}

  Result<View> Run() {
    CROSSDOCK_ASSIGN_OR_RETURN(params_, LeavesOf(source_, kParamsItem));
    CROSSDOCK_ASSIGN_OR_RETURN(state_, LeavesOf(source_, kStateItem));
    out_.levels.adapter = AdapterOfParams(params_);
    CROSSDOCK_RETURN_IF_ERROR(CheckModel());
    CROSSDOCK_RETURN_IF_ERROR(Parameters());
    Optimizer();
    Untaken();
    Finish();
    return std::move(out_);
  }

 private:
  Status CheckModel() const {
    const LeafNode& model = Within(params_, out_.levels.adapter);
    if (!params_.HoldsArrays()) {
      return MakeError(ErrorCode::kIncomplete, "the step holds no parameters").WithPath(source_.root)
          .WithExpected("arrays in the item model_params")
          .WithHint(state_.HoldsArrays() ? "give the step, not its item optimizer_state" : "");
    }
    if (model.Below("decoder") != nullptr || model.Below("token_embedder") != nullptr) return OkStatus();
    std::vector<std::string> found;
    for (const auto& [key, child] : model.children) found.push_back(key);
    return MakeError(ErrorCode::kUnsupported, "the model's modules are not MaxText's: models of Tunix's own are not converted")
        .WithPath(source_.root)
        .WithExpected("decoder and token_embedder in model_params, alone or in `base`")
        .WithFound(SomeNames(found))
        .WithHint("export the model to safetensors with Tunix, and convert that");
  }

  const Entry& EntryOf(const LeafNode& leaf) const { return source_.entries[static_cast<std::size_t>(leaf.entry)]; }

  /// The value of a small array of the source, as its reader lists it; null where it does not.
  const Value* RowOf(const LeafNode& leaf) const {
    const auto scalars = source_.objects.find("scalars");
    return leaf.entry < 0 || scalars == source_.objects.end() ? nullptr : scalars->second.Find(EntryOf(leaf).name);
  }

  void Row(const KeyPath& path, std::string_view type) {
    Value row = Value::MakeDict();
    row.Set("path", Value::MakeList(path));
    row.Set("value_type", Value(type));
    rows_.emplace_back(maxtext::ArrayName(path), std::move(row));
  }

  void Add(const KeyPath& path, const LeafNode& leaf) {
    CountBox(leaf);
    if (leaf.entry < 0) return Row(path, leaf.type);
    taken_.insert(leaf.entry);
    Row(path, "np.ndarray");
    Entry entry = EntryOf(leaf);
    entry.name = maxtext::ArrayName(path);
    entries_.emplace_back(std::move(entry), leaf.entry);
  }

  void AddCounter(const KeyPath& path, const LeafNode& leaf) {
    Add(path, leaf);
    if (const Value* row = RowOf(leaf)) scalars_.Set(maxtext::ArrayName(path), *row);
  }

  void CountBox(const LeafNode& leaf) { ++(leaf.boxed ? boxed_ : bare_); }

  static void Count(LeftOut& left, const std::string& name, std::int64_t bytes) {
    if (left.name.empty()) left = {name, "", 0, 0};
    ++left.count;
    left.bytes += bytes;
  }

  std::int64_t BytesOf(const LeafNode& leaf) const {
    const Result<std::int64_t> bytes = ByteSize(EntryOf(leaf).dtype, EntryOf(leaf).shape);
    return bytes ? *bytes : 0;
  }

  /// What MaxText's tree has no place for: recorded where its value is known.
  void Drop(const std::string& name, const LeafNode& leaf, LeftOut& left) {
    CountBox(leaf);
    if (leaf.entry < 0) return;
    taken_.insert(leaf.entry);
    Count(left, name, BytesOf(leaf));
    const Value* row = RowOf(leaf);
    const Value* values = row == nullptr ? nullptr : row->Find("values");
    const ValueList* list = values == nullptr ? nullptr : values->as_sequence();
    if (list == nullptr || list->empty()) return;
    const Entry& entry = EntryOf(leaf);
    out_.levels.dropped[name] = {entry.dtype, entry.shape, entry.shape.empty() ? list->front() : *values, leaf.random_key};
  }

  // ---- parameters ----

  Status Parameters() {
    const LeafNode& model = Within(params_, out_.levels.adapter);
    bool others = false;
    VisitLeaves(model, "", [&](const std::string& name, const LeafNode& leaf) {
      names_.insert(name);
      if (IsRandom(name, leaf)) return Drop(Dotted(kParamsItem, Dotted(out_.levels.adapter, name)), leaf, random_);
      Add(maxtext::PathTo({Value("params"), Value("params")}, name), leaf);
      (IsLora(name) ? out_.has_lora : others) = true;
    });
    out_.lora_alone = out_.has_lora && !others;
    if (&model == &params_) return OkStatus();
    std::string trained;
    for (const auto& [key, child] : params_.children) {
      if (&child == &model) continue;
      VisitLeaves(child, key, [&](const std::string& name, const LeafNode& leaf) {
        const bool random = IsRandom(name, leaf);
        if (!random && leaf.entry >= 0 && !EntryOf(leaf).shape.empty() && trained.empty()) trained = Dotted(kParamsItem, name);
        Drop(Dotted(kParamsItem, name), leaf, random ? random_ : settings_);
      });
    }
    if (trained.empty()) return OkStatus();
    return MakeError(ErrorCode::kUnsupported, "a parameter stands beside the model, where MaxText's tree has no place for it")
        .WithPath(source_.root)
        .WithTensor(trained)
        .WithExpected(fmt::format("parameters within model_params.{} alone", out_.levels.adapter))
        .WithHint("save a step that holds the model without what the trainer puts beside it, and convert that");
  }

  // ---- the optimizer ----

  void Optimizer() {
    const OptimizerLevels found = FindOptimizerLevels(state_, source_);
    if (const LeafNode* step = state_.Find("step"); step != nullptr && step->leaf) {
      // Pre-training's step is one of the model; where MultiSteps gathers gradients, the optimizer's counts their parts.
      if (found.updates) Drop("step", *step, settings_);
      AddCounter({Value("step")}, found.updates ? *At(state_, *found.updates) : *step);
    }
    out_.optimizer = found.kind;
    out_.optimizer_refusal = found.refusal;
    out_.levels.opt_state = found.shells;
    for (const auto& [name, leaf] : found.dropped) Drop(name, *leaf, settings_);
    for (const auto& [name, node] : found.accumulated) Accumulated(name, *node);
    if (found.kind == OptimizerKind::kAdamPax) Moments(*found.root, {Value("opt_state")}, true);
    if (found.kind == OptimizerKind::kAdamW) AdamW(found);
    if (found.kind == OptimizerKind::kMuon) Muon(found);
  }

  /// {count, mu, nu} and what a group of Muon's holds beside them, under `prefix`.
  void Moments(const LeafNode& node, const KeyPath& prefix, bool collection) {
    for (const auto& [key, child] : node.children) {
      KeyPath path = prefix;
      path.emplace_back(key);
      if (child.leaf) {
        if (key == "count") AddCounter(path, child);
        if (key == "ns_coeffs") Add(path, child);
        continue;
      }
      if (key != "mu" && key != "nu") continue;
      const std::string adapter = AdapterOfState(child, names_);
      out_.levels.state_adapter = adapter;
      if (collection) path.emplace_back("params");
      VisitLeaves(Within(child, adapter), "", [&](const std::string& name, const LeafNode& leaf) { Add(maxtext::PathTo(path, name), leaf); });
    }
  }

  void AdamW(const OptimizerLevels& found) {
    const LeafNode& adam = *At(*found.root, found.adam);
    Moments(adam, {Value("opt_state"), Value(0)}, true);
    if (found.adam != "0") out_.levels.moved["0"] = found.adam;
    Row({Value("opt_state"), Value(1)}, "None");
    const KeyPath schedule = {Value("opt_state"), Value(kAdamSchedule), Value("count")};
    if (found.schedule) {
      AddCounter(schedule, *At(*found.root, *found.schedule)->Find("count"));
      if (*found.schedule != std::to_string(kAdamSchedule)) out_.levels.moved[std::to_string(kAdamSchedule)] = *found.schedule;
    } else {
      MakeSchedule(schedule, found, adam.Find("count"));
    }
  }

  /// Pre-training's optimizer counts by a counter of its own, without which its schedule would begin anew.
  void MakeSchedule(const KeyPath& path, const OptimizerLevels& found, const LeafNode* own) {
    out_.levels.schedule = found.shell_count.value_or("");
    const LeafNode* count = found.shell_count ? At(state_, *found.shell_count) : own;
    const Value* row = count == nullptr ? nullptr : RowOf(*count);
    if (row == nullptr) return;
    Value made = *row;
    made.Set("dtype", Value(DTypeName(DType::kI32)));
    scalars_.Set(maxtext::ArrayName(path), std::move(made));
    Row(path, "np.ndarray");
  }

  void Muon(const OptimizerLevels& found) {
    for (const auto& [group, child] : found.root->Below("inner_states")->children) {
      const LeafNode* chain = child.Below("inner_state");
      if (chain == nullptr) continue;
      const KeyPath prefix = {Value("opt_state"), Value("inner_states"), Value(group), Value("inner_state")};
      const int own = group == "muon" ? kMuonSchedule : kAdamSchedule;
      for (const auto& [key, member] : chain->children) {
        KeyPath path = prefix;
        path.emplace_back(key);
        Moments(member, path, false);
      }
      if (chain->Find(std::to_string(own)) != nullptr || chain->Find("0") == nullptr) continue;
      KeyPath path = prefix;
      path.emplace_back(std::to_string(own));
      path.emplace_back("count");
      MakeSchedule(path, found, chain->Find("0")->Find("count"));
    }
  }

  static const LeafNode* At(const LeafNode& root, std::string_view path) {
    const LeafNode* at = &root;
    for (const Value& key : maxtext::PathTo({}, path)) at = at == nullptr ? nullptr : at->Find(*key.as_string());
    return at;
  }

  void Accumulated(const std::string& name, const LeafNode& node) {
    LeftOut left;
    VisitLeaves(node, name, [&](const std::string& leaf, const LeafNode& at) {
      CountBox(at);
      if (at.entry < 0) return;
      taken_.insert(at.entry);
      Count(left, leaf, BytesOf(at));
    });
    const std::string steps = name.substr(0, name.rfind('.')) + ".mini_step";
    const auto gathered = out_.levels.dropped.find(steps);
    if (gathered != out_.levels.dropped.end() && gathered->second.value.as_int() != nullptr && *gathered->second.value.as_int() > 0) {
      out_.notices.push_back(fmt::format("ATTENTION: the step was saved with gradients of {} of its micro-steps gathered; they are left out, and the way back begins the step anew", *gathered->second.value.as_int()));
    }
    Tell(left, "gradients that MultiSteps gathers between updates; zero after one");
  }

  /// What none of the above has seen: numbers are recorded; what may be a parameter's state would be lost.
  void Untaken() {
    VisitLeaves(state_, "", [&](const std::string& name, const LeafNode& leaf) {
      if (leaf.entry < 0 || taken_.contains(leaf.entry)) return;
      const bool moment = name.find(".mu.") != std::string::npos || name.find(".nu.") != std::string::npos;
      if (EntryOf(leaf).shape.empty() && !moment) return Drop(name, leaf, settings_);
      if (out_.optimizer_refusal.empty()) out_.optimizer_refusal = fmt::format("the optimizer keeps {}, which no other place has", Printable(name));
    });
  }

  // ---- the end ----

  void Tell(LeftOut& left, const char* reason) {
    if (left.name.empty()) return;
    if (left.count > 1) left.name += fmt::format(" and {} more", left.count - 1);
    left.reason = reason;
    out_.left_out.push_back(std::move(left));
  }

  void Finish() {
    out_.levels.value = boxed_ > 0 || bare_ == 0;
    if (boxed_ > 0 && bare_ > 0) out_.notices.push_back(fmt::format("{} leaves stand in `value`, {} do not", boxed_, bare_));
    if (!state_.HoldsArrays() || out_.optimizer == OptimizerKind::kNone) out_.levels.state_adapter = out_.levels.adapter;
    Tell(random_, "random generators and what else training makes anew; small ones are recorded for the way back");
    Tell(settings_, "settings and counters of the trainer's wrappers, recorded for the way back");
    std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
    std::sort(rows_.begin(), rows_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    Catalog& seen = out_.catalog;
    seen.format = source_.format;
    seen.root = source_.root;
    seen.step = source_.step;
    seen.files = source_.files;
    seen.side_files = source_.side_files;
    for (const auto& [name, object] : source_.objects) {
      if (name != "tree" && name != "scalars") seen.objects[name] = object;
    }
    for (auto& [entry, index] : entries_) {
      seen.entries.push_back(std::move(entry));
      out_.entry_of.push_back(index);
    }
    ValueList rows;
    for (auto& [name, row] : rows_) rows.push_back(std::move(row));
    seen.objects["tree"] = Value::MakeList(std::move(rows));
    seen.objects["scalars"] = std::move(scalars_);
  }

  const Catalog& source_;
  LeafNode params_, state_;
  View out_;
  std::set<std::int32_t> taken_;  ///< entries of the source that were seen, recorded or counted
  std::set<std::string> names_;   ///< of the parameters and variables
  std::vector<std::pair<Entry, std::int32_t>> entries_;
  std::vector<std::pair<std::string, Value>> rows_;
  Value scalars_ = Value::MakeDict();
  std::int64_t boxed_ = 0, bare_ = 0;
  LeftOut random_, settings_;
};

}  // namespace

bool IsLora(std::string_view name) { return name.ends_with("_lora_a") || name.ends_with("_lora_b"); }

Result<expr::Expr> View::OverSource(const expr::Expr& seen) const {
  return expr::Substitute(seen, [&](int ordinal) -> Result<expr::Expr> {
    const Entry& entry = catalog.entries[static_cast<std::size_t>(ordinal)];
    return expr::Leaf(entry_of[static_cast<std::size_t>(ordinal)], entry.dtype, entry.shape);
  });
}

Result<View> SeeAsMaxText(const Catalog& source) { return Viewer(source).Run(); }

View SeeItself(const Catalog& maxtext, Levels levels) {
  constexpr std::string_view kVariables = "nnx_aux.model.";
  const std::string params = "params.params.";
  View out;
  out.levels = std::move(levels);
  std::set<std::string> twice;
  for (const Entry& entry : maxtext.entries) {
    if (entry.name.starts_with(kVariables)) twice.insert(params + entry.name.substr(kVariables.size()));
  }
  out.catalog = maxtext;
  out.catalog.entries.clear();
  for (std::size_t i = 0; i < maxtext.entries.size(); ++i) {
    const Entry& entry = maxtext.entries[i];
    if (twice.contains(entry.name)) continue;
    out.catalog.entries.push_back(entry);
    out.entry_of.push_back(static_cast<std::int32_t>(i));
    const maxtext::TreeKey key = maxtext::ParseTreeKey(entry.name);
    out.has_lora = out.has_lora || IsLora(entry.name);
    if (key.kind != maxtext::TreeKey::Kind::kState) continue;
    const bool flat = entry.name.starts_with("opt_state.mu.") || entry.name.starts_with("opt_state.nu.");
    out.optimizer = entry.name.starts_with("opt_state.inner_states.") ? OptimizerKind::kMuon : flat ? OptimizerKind::kAdamPax : OptimizerKind::kAdamW;
  }
  ValueList rows;
  for (const Value& row : *maxtext.objects.at("tree").as_sequence()) {
    if (!twice.contains(maxtext::ArrayName(*row.Find("path")->as_sequence()))) rows.push_back(row);
  }
  out.catalog.objects["tree"] = Value::MakeList(std::move(rows));
  if (!out.catalog.objects.contains("scalars")) out.catalog.objects["scalars"] = Value::MakeDict();
  return out;
}

}  // namespace crossdock::dialects::tunix
