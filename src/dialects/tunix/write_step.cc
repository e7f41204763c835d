// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/write_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/names.h"

namespace crossdock::dialects::tunix {
namespace {

using maxtext::ArrayName;
using maxtext::KeyPath;
using maxtext::PathTo;

bool IsArray(const Value& row) {
  const std::string type = row.GetString("value_type").value_or("");
  return type == "jax.Array" || type == "np.ndarray" || type == "scalar";
}

const KeyPath& PathOf(const Value& row) {
  const Value* path = row.Find("path");
  CROSSDOCK_CHECK(path != nullptr && path->as_sequence() != nullptr && !path->as_sequence()->empty());  // maxtext's WriteHub made it
  return *path->as_sequence();
}

bool Begins(const KeyPath& path, std::string_view key) { return path.front().as_string() != nullptr && *path.front().as_string() == key; }

/// Elements of nothing, in the form of `like`.
Result<expr::Expr> ZerosLike(const expr::Expr& like) {
  const std::int64_t count = CheckedCount(like->shape);
  CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr flat, expr::Reshape(like, {count}));
  CROSSDOCK_ASSIGN_OR_RETURN(flat, expr::Slice(std::move(flat), Box{{0}, {0}}));
  CROSSDOCK_ASSIGN_OR_RETURN(flat, expr::Pad(std::move(flat), Dims{0}, {count}));
  return expr::Reshape(std::move(flat), like->shape);
}

bool Ends(std::string_view name, std::string_view key) { return name == key || (name.ends_with(key) && name[name.size() - key.size() - 1] == '.'); }

class StepMaker {
 public:
  StepMaker(TargetState made, const StepRequest& request) : made_(std::move(made)), request_(request), levels_(request.levels) {}

  Result<TargetState> Run() {
    const ValueList rows = std::move(*made_.catalog.objects.at("tree").mutable_sequence());
    scalars_before_ = std::move(made_.catalog.objects["scalars"]);
    updates_ = Updates();
    has_state_ = std::any_of(rows.begin(), rows.end(), [](const Value& row) { return Begins(PathOf(row), "opt_state") && IsArray(row); });
    // A routed bias stands in two places of MaxText's tree: the one of its own variables is a module's.
    for (const bool variables : {true, false}) {
      for (const Value& row : rows) {
        if (Begins(PathOf(row), "nnx_aux") == variables) Move(row);
      }
    }
    Recorded();
    CROSSDOCK_RETURN_IF_ERROR(RenameEntries());
    CROSSDOCK_RETURN_IF_ERROR(Gathered());
    CROSSDOCK_RETURN_IF_ERROR(CheckTree());
    Finish();
    return std::move(made_);
  }

 private:
  /// Where a leaf of MaxText's tree goes; nothing for what a step does not have.
  [[nodiscard]] std::optional<KeyPath> PlaceOf(const KeyPath& path) const {
    if (!has_state_ && (Begins(path, "opt_state") || Begins(path, "step"))) return std::nullopt;
    return StoredPath(levels_, path);
  }

  void Row(KeyPath path, Value row) {
    row.Set("path", Value::MakeList(std::move(path)));
    if (IsArray(row)) row.Set("value_type", "jax.Array");
    rows_.push_back(std::move(row));
  }

  void Move(const Value& row) {
    const std::string before = ArrayName(PathOf(row));
    std::optional<KeyPath> place = PlaceOf(PathOf(row));
    const Value* scalar = scalars_before_.Find(before);
    if (!place) {
      if (scalar != nullptr || !IsArray(row)) return;  // a counter, a placeholder
      homeless_.insert(before);
      return;
    }
    std::string name = ArrayName(*place);
    if (!taken_.insert(name).second) {
      again_.insert(before);
      return;
    }
    if (scalar != nullptr) {
      Value own = *scalar;
      if (before == "step") own.Set("dtype", Value(DTypeName(DType::kU32)));
      scalars_.Set(name, std::move(own));
    } else {
      names_[before] = std::move(name);
    }
    Row(*std::move(place), row);
  }

  [[nodiscard]] Value Scalar(const std::string& name, const Constant& constant) const {
    ValueList shape;
    for (const std::int64_t size : constant.shape) shape.emplace_back(size);
    ValueList values = constant.shape.empty() ? ValueList{constant.value} : *constant.value.as_sequence();
    const bool counter = constant.shape.empty() && constant.value.as_int() != nullptr && !name.starts_with(kParamsItem);
    if (counter) {
      if (Ends(name, "mini_step")) values = {Value(0)};  // no gradients are gathered
      if (request_.counters_follow && (Ends(name, "count") || Ends(name, "gradient_step"))) values = {Value(updates_)};
      if (request_.counters_follow && name == "step") values = {Value(updates_ * PartsOfUpdate(constant))};
    }
    Value out = Value::MakeDict();
    out.Set("dtype", Value(DTypeName(constant.dtype)));
    out.Set("shape", Value::MakeList(std::move(shape)));
    out.Set("values", Value::MakeList(std::move(values)));
    return out;
  }

  /// Of the record's run: how many micro-batches an update had, which the optimizer's `step` counts beside MultiSteps; 1 where it had none yet.
  [[nodiscard]] std::int64_t PartsOfUpdate(const Constant& step) const {
    for (const auto& [name, constant] : levels_.dropped) {
      const std::int64_t* updates = Ends(name, "gradient_step") ? constant.value.as_int() : nullptr;
      if (updates != nullptr && *updates > 0) return std::max<std::int64_t>(1, *step.value.as_int() / *updates);
    }
    return 1;
  }

  /// How often the parameters were updated: what the schedule counts, else the step.
  [[nodiscard]] std::int64_t Updates() const {
    for (const char* name : {"opt_state.2.count", "opt_state.inner_states.adam.inner_state.2.count", "opt_state.inner_states.muon.inner_state.3.count", "step"}) {
      const Value* row = scalars_before_.Find(name);
      if (row != nullptr) return *row->Find("values")->as_sequence()->front().as_int();
    }
    return 0;
  }

  /// What the record holds beyond MaxText's tree.
  void Recorded() {
    for (const auto& [name, constant] : levels_.dropped) {
      const bool of_params = name.starts_with(std::string(kParamsItem) + ".");
      if (!of_params && !has_state_) continue;
      KeyPath path = of_params ? PathTo({}, name) : PathTo({Value(kStateItem)}, name);
      if (levels_.value) path.emplace_back("value");
      std::string whole = ArrayName(path);
      if (!taken_.insert(whole).second) continue;  // a counter that MaxText has too
      scalars_.Set(whole, Scalar(name, constant));
      Value row = Value::MakeDict();
      row.Set("value_type", "jax.Array");
      if (!constant.random_key.is_null()) row.Set("ext_metadata", constant.random_key);
      Row(std::move(path), std::move(row));
    }
  }

  Status RenameEntries() {
    if (!homeless_.empty()) {
      return MakeError(ErrorCode::kUnsupported, "a Tunix step has no place for these tensors")
          .WithTensor(*homeless_.begin())
          .WithFound(SomeNames({homeless_.begin(), homeless_.end()}))
          .WithHint("--no-optim leaves the optimizer state behind");
    }
    for (std::size_t i = 0; i < made_.exprs.size(); ++i) {
      Entry& entry = made_.catalog.entries[i];
      if (again_.contains(entry.name)) continue;
      entry.name = names_.at(entry.name);
      kept_.emplace_back(std::move(entry), std::move(made_.exprs[i]));
    }
    return OkStatus();
  }

  /// MultiSteps' gathered gradients: zeros, one a parameter that is trained.
  Status Gathered() {
    std::vector<std::pair<Entry, expr::Expr>> added;
    std::string level = std::string(kStateItem) + ".opt_state";
    for (const std::string& key : levels_.opt_state) {
      if (key == "inner_opt_state") CROSSDOCK_RETURN_IF_ERROR(GatheredAt(level + ".acc_grads", &added));
      level += "." + key;
    }
    for (auto& [entry, made] : added) kept_.emplace_back(std::move(entry), std::move(made));
    return OkStatus();
  }

  Status GatheredAt(const std::string& prefix, std::vector<std::pair<Entry, expr::Expr>>* added) {
    for (const auto& [entry, made] : kept_) {
      const std::size_t at = entry.name.find(".mu.");
      if (!entry.name.starts_with(kStateItem) || at == std::string::npos) continue;
      Entry zeros = entry;
      zeros.name = prefix + "." + entry.name.substr(at + 4);
      CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr nothing, ZerosLike(made));
      Value row = Value::MakeDict();
      row.Set("value_type", "jax.Array");
      Row(PathTo({}, zeros.name), std::move(row));
      added->emplace_back(std::move(zeros), std::move(nothing));
    }
    return OkStatus();
  }

  /// A record of another model can name a leaf where this one has a module.
  [[nodiscard]] Status CheckTree() const {
    std::set<std::string> leaves;
    for (const Value& row : rows_) {
      KeyPath path = PathOf(row);
      if (levels_.value && path.back().as_string() != nullptr && *path.back().as_string() == "value") path.pop_back();
      std::string name = ArrayName(path);
      const auto [at, fresh] = leaves.insert(std::move(name));
      if (!fresh) return BrokenRecord(fmt::format("two leaves would be `{}`", Printable(*at)));
    }
    for (const std::string& name : leaves) {
      for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        const auto above = leaves.find(name.substr(0, dot));
        if (above != leaves.end()) return BrokenRecord(fmt::format("`{}` would be a leaf and hold `{}`", Printable(*above), Printable(name)));
      }
    }
    return OkStatus();
  }

  void Finish() {
    std::sort(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
    made_.catalog.entries.clear();
    made_.exprs.clear();
    for (auto& [entry, made] : kept_) {
      made_.catalog.entries.push_back(std::move(entry));
      made_.exprs.push_back(std::move(made));
    }
    std::sort(rows_.begin(), rows_.end(), [](const Value& a, const Value& b) { return ArrayName(PathOf(a)) < ArrayName(PathOf(b)); });
    Catalog& catalog = made_.catalog;
    catalog.objects["tree"] = Value::MakeList(std::move(rows_));
    catalog.objects["scalars"] = std::move(scalars_);
    catalog.objects["custom_metadata"] = request_.custom_metadata;
    Value& about = catalog.objects["orbax"];
    about.Erase("item");
    ValueList items = {Value(kParamsItem)};
    if (has_state_) items.emplace_back(kStateItem);
    about.Set("items", Value::MakeList(std::move(items)));
    about.Set("ocdbt", request_.ocdbt);
    about.Set("zarr3", request_.zarr3);
    made_.load_line = {fmt::format("tunix.sft.checkpoint_manager.CheckpointManager(os.path.dirname(\"TARGET\")).maybe_restore(model, optimizer, step={})", catalog.step.value_or(0))};
  }

  TargetState made_;
  const StepRequest& request_;
  const Levels& levels_;
  bool has_state_ = false;
  Value scalars_before_;
  Value scalars_ = Value::MakeDict();
  ValueList rows_;
  std::int64_t updates_ = 0;
  std::vector<std::pair<Entry, expr::Expr>> kept_;
  std::map<std::string, std::string> names_;  ///< of tensors: before -> now
  std::set<std::string> taken_;               ///< names that the step has
  std::set<std::string> again_;               ///< tensors that are there already
  std::set<std::string> homeless_;
};

/// Name -> shape of every leaf; a placeholder's is empty.
std::map<std::string, std::optional<Shape>> LeavesOf(const Catalog& catalog) {
  std::map<std::string, std::optional<Shape>> out;
  const auto tree = catalog.objects.find("tree");
  if (tree == catalog.objects.end() || tree->second.as_sequence() == nullptr) return out;
  const auto scalars = catalog.objects.find("scalars");
  for (const Value& row : *tree->second.as_sequence()) {
    std::string name = ArrayName(PathOf(row));
    std::optional<Shape> shape;
    if (IsArray(row)) {
      shape.emplace();
      const std::int32_t at = catalog.Find(name);
      const Value* scalar = at >= 0 || scalars == catalog.objects.end() ? nullptr : scalars->second.Find(name);
      if (at >= 0) shape = catalog.entries[static_cast<std::size_t>(at)].shape;
      if (scalar != nullptr) {
        for (const Value& size : *scalar->Find("shape")->as_sequence()) shape->push_back(*size.as_int());
      }
    }
    out.emplace(std::move(name), std::move(shape));
  }
  return out;
}

}  // namespace

Result<TargetState> ToStep(TargetState made, const StepRequest& request) { return StepMaker(std::move(made), request).Run(); }

Status CheckFits(const Catalog& step, const Catalog& reference) {
  const auto own = LeavesOf(step);
  const auto wanted = LeavesOf(reference);
  const std::string state = std::string(kStateItem) + ".";
  const bool has_state = std::any_of(own.begin(), own.end(), [&](const auto& leaf) { return leaf.first.starts_with(state); });
  const auto counts = [&](const std::string& name) { return has_state || !name.starts_with(state); };
  const auto refuse = [&](const std::string& name, const char* what) {
    return MakeError(ErrorCode::kUnsupported, fmt::format("what is written does not fit the trainer that saved the template: {}", what))
        .WithPath(reference.root)
        .WithTensor(name);
  };
  for (const auto& [name, shape] : wanted) {
    if (!counts(name)) continue;
    const auto found = own.find(name);
    if (found == own.end()) return refuse(name, "a leaf of the template's that nothing fills").WithHint("a trainer of another model, or of another optimizer, needs a template of its own");
    if (shape.has_value() != found->second.has_value() || (shape && *shape != *found->second)) {
      return refuse(name, "a leaf of another shape").WithExpected(shape ? ToString(*shape) : "a placeholder").WithFound(found->second ? ToString(*found->second) : "a placeholder");
    }
  }
  for (const auto& [name, shape] : own) {
    if (!wanted.contains(name)) return refuse(name, "a leaf that the template has not").WithHint("--no-optim leaves the optimizer state behind");
  }
  return OkStatus();
}

Slot SlotOf(std::string_view name) {
  if (!name.starts_with(kStateItem)) return Slot::kParam;
  const std::size_t mu = name.find(".mu.");
  const std::size_t nu = name.find(".nu.");
  if (mu == std::string_view::npos && nu == std::string_view::npos) return Slot::kParam;
  if (nu < mu) return Slot::kAdamNu;
  return name.substr(0, mu).find(".inner_states.muon.") == std::string_view::npos ? Slot::kAdamMu : Slot::kMuonMu;
}

}  // namespace crossdock::dialects::tunix
