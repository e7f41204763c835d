// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/levels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/digits.h"

namespace crossdock::dialects::tunix {
namespace {

using maxtext::KeyPath;

constexpr std::string_view kCount = "count";

struct NumpyName {
  DType dtype;
  std::string_view name;
};
constexpr std::array kNumpyNames = {
    NumpyName{DType::kI32, "int32"},   NumpyName{DType::kU32, "uint32"},   NumpyName{DType::kI64, "int64"}, NumpyName{DType::kU64, "uint64"},
    NumpyName{DType::kI16, "int16"},   NumpyName{DType::kU16, "uint16"},   NumpyName{DType::kI8, "int8"},   NumpyName{DType::kU8, "uint8"},
    NumpyName{DType::kF32, "float32"}, NumpyName{DType::kBF16, "bfloat16"}, NumpyName{DType::kF16, "float16"}, NumpyName{DType::kF64, "float64"},
    NumpyName{DType::kBool, "bool"},
};

Result<Constant> ConstantFrom(const std::string& name, const Value& json) {
  const std::string dtype = json.GetString("dtype").value_or("");
  const auto known = std::find_if(kNumpyNames.begin(), kNumpyNames.end(), [&](const NumpyName& row) { return row.name == dtype; });
  const Value* value = json.Find("value");
  if (known == kNumpyNames.end() || value == nullptr) return BrokenRecord("`" + Printable(name) + "` has no value of a known type");
  Constant out{known->dtype, {}, *value, {}};
  if (const Value* shape = json.Find("shape")) {
    if (shape->as_sequence() == nullptr || value->as_sequence() == nullptr) return BrokenRecord("`" + Printable(name) + "` has a shape but no list of values");
    for (const Value& size : *shape->as_sequence()) {
      if (size.as_int() == nullptr || *size.as_int() < 1) return BrokenRecord("`" + Printable(name) + "` has no shape");
      out.shape.push_back(*size.as_int());
    }
  }
  if (const Value* key = json.Find("random_key")) out.random_key = *key;
  return out;
}

Result<std::string> Text(const Value& json, std::string_view key) {
  const Value* found = json.Find(key);
  if (found == nullptr) return std::string();
  if (found->as_string() == nullptr) return BrokenRecord(fmt::format("`{}` is no text", key));
  return *found->as_string();
}

/// "opt_state.0.count" as keys of the optimizer's item.
KeyPath StatePathOf(std::string_view name) { return maxtext::PathTo({Value(kStateItem)}, name); }

bool IsText(const Value& key, std::string_view text) { return key.as_string() != nullptr && *key.as_string() == text; }

/// Digits, or an index.
bool IsIndexKey(const Value& key) {
  if (key.as_int() != nullptr) return true;
  return key.as_string() != nullptr && OnlyDigits(*key.as_string());
}

std::string KeyWord(const Value& key) { return key.as_int() != nullptr ? std::to_string(*key.as_int()) : *key.as_string(); }

class Placer {
 public:
  Placer(const Levels& levels, const KeyPath& seen) : levels_(levels), seen_(seen) {}

  std::optional<KeyPath> Run() {
    if (seen_.size() > 2 && IsText(seen_[0], "params") && IsText(seen_[1], "params")) return Model(2);
    if (seen_.size() > 2 && IsText(seen_[0], "nnx_aux") && IsText(seen_[1], "model")) return Model(2);
    if (seen_.size() == 1 && IsText(seen_[0], "step")) {
      if (levels_.dropped.contains("step")) return std::nullopt;  // MultiSteps' counter of updates, which is recorded as well
      return Boxed(StatePathOf("step"));
    }
    if (seen_.size() > 1 && IsText(seen_[0], "opt_state")) return State();
    return std::nullopt;
  }

 private:
  std::optional<KeyPath> Boxed(KeyPath path) const {
    if (levels_.value) path.emplace_back("value");
    return path;
  }

  std::optional<KeyPath> Model(std::size_t from) const {
    KeyPath path = maxtext::PathTo({Value(kParamsItem)}, levels_.adapter);
    path.insert(path.end(), seen_.begin() + static_cast<std::ptrdiff_t>(from), seen_.end());
    return Boxed(std::move(path));
  }

  /// A counter of a schedule: of a member of a chain other than the first.
  [[nodiscard]] bool IsSchedule() const {
    const std::size_t n = seen_.size();
    return n > 2 && IsText(seen_[n - 1], kCount) && IsIndexKey(seen_[n - 2]) && KeyWord(seen_[n - 2]) != "0";
  }

  std::optional<KeyPath> State() const {
    if (IsIndexKey(seen_.back()) && !InSubtree(seen_.size() - 1)) return std::nullopt;  // None in place of a member without state
    if (levels_.schedule && IsSchedule() && !InSubtree(seen_.size() - 1)) {
      if (levels_.schedule->empty()) return std::nullopt;
      return Boxed(StatePathOf(*levels_.schedule));
    }
    KeyPath path = StatePathOf("opt_state");
    for (const std::string& key : levels_.opt_state) path.emplace_back(key);
    std::size_t at = 1;
    if (IsIndexKey(seen_[at])) {
      const auto moved = levels_.moved.find(KeyWord(seen_[at]));
      path = maxtext::PathTo(std::move(path), moved == levels_.moved.end() ? KeyWord(seen_[at]) : moved->second);
      ++at;
    }
    for (bool below = false; at < seen_.size(); ++at) {
      if (below) {
        path.push_back(seen_[at]);
        continue;
      }
      path.emplace_back(KeyWord(seen_[at]));
      if (!IsText(seen_[at], "mu") && !IsText(seen_[at], "nu")) continue;
      below = true;
      if (at + 1 < seen_.size() && IsText(seen_[at + 1], "params")) ++at;
      path = maxtext::PathTo(std::move(path), levels_.state_adapter);
    }
    return Boxed(std::move(path));
  }

  /// The key stands below mu or nu: it is of the model.
  [[nodiscard]] bool InSubtree(std::size_t at) const {
    return std::any_of(seen_.begin(), seen_.begin() + static_cast<std::ptrdiff_t>(at), [](const Value& key) { return IsText(key, "mu") || IsText(key, "nu"); });
  }

  const Levels& levels_;
  const KeyPath& seen_;
};

}  // namespace

Error BrokenRecord(const std::string& what) {
  return MakeError(ErrorCode::kCorrupt, "the record of post-training's levels in the step's metadata is broken: " + what)
      .WithTensor("custom_metadata.crossdock.tunix_levels")
      .WithHint("take the entry out of _CHECKPOINT_METADATA, and name a Tunix checkpoint of the same trainer as template");
}

Value ToValue(const Levels& levels) {
  Value out = Value::MakeDict();
  out.Set("adapter", Value(levels.adapter));
  out.Set("opt_state", Value(fmt::format("{}", fmt::join(levels.opt_state, "."))));
  Value dropped = Value::MakeDict();
  for (const auto& [name, constant] : levels.dropped) {
    Value row = Value::MakeDict();
    const auto* known = std::find_if(kNumpyNames.begin(), kNumpyNames.end(), [&](const NumpyName& n) { return n.dtype == constant.dtype; });
    row.Set("dtype", Value(known == kNumpyNames.end() ? DTypeName(constant.dtype) : known->name));
    row.Set("value", constant.value);
    if (!constant.shape.empty()) {
      ValueList sizes;
      for (const std::int64_t size : constant.shape) sizes.emplace_back(size);
      row.Set("shape", Value::MakeList(std::move(sizes)));
    }
    if (!constant.random_key.is_null()) row.Set("random_key", constant.random_key);
    dropped.Set(name, std::move(row));
  }
  out.Set("dropped", std::move(dropped));
  if (levels.state_adapter != levels.adapter) out.Set("state_adapter", Value(levels.state_adapter));
  if (!levels.moved.empty()) {
    Value moved = Value::MakeDict();
    for (const auto& [index, path] : levels.moved) moved.Set(index, Value(path));
    out.Set("moved", std::move(moved));
  }
  if (levels.schedule) out.Set("schedule", Value(*levels.schedule));
  if (!levels.value) out.Set("value", Value(false));
  return out;
}

Result<Levels> LevelsFrom(const Value& json) {
  if (json.as_dict() == nullptr) return BrokenRecord("it is no object");
  Levels out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.adapter, Text(json, "adapter"));
  out.state_adapter = out.adapter;
  if (json.Find("state_adapter") != nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(out.state_adapter, Text(json, "state_adapter"));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string shells, Text(json, "opt_state"));
  for (const Value& key : maxtext::PathTo({}, shells)) out.opt_state.push_back(*key.as_string());
  if (const Value* dropped = json.Find("dropped")) {
    if (dropped->as_dict() == nullptr) return BrokenRecord("`dropped` is no object");
    for (const auto& [name, row] : dropped->as_dict()->items) {
      CROSSDOCK_ASSIGN_OR_RETURN(out.dropped[*name.as_string()], ConstantFrom(*name.as_string(), row));
    }
  }
  if (const Value* moved = json.Find("moved")) {
    if (moved->as_dict() == nullptr) return BrokenRecord("`moved` is no object");
    for (const auto& [index, path] : moved->as_dict()->items) {
      if (path.as_string() == nullptr) return BrokenRecord("`moved` names no path");
      out.moved[*index.as_string()] = *path.as_string();
    }
  }
  if (json.Find("schedule") != nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(out.schedule, Text(json, "schedule"));
  }
  out.value = json.GetBool("value").value_or(true);
  return out;
}

Result<std::optional<Levels>> LevelsIn(const Value& custom_metadata) {
  const Value* json = custom_metadata.as_dict() == nullptr ? nullptr : custom_metadata.FindPath("crossdock.tunix_levels");
  if (json == nullptr) return std::optional<Levels>();
  CROSSDOCK_ASSIGN_OR_RETURN(Levels levels, LevelsFrom(*json));
  return std::optional(std::move(levels));
}

std::optional<KeyPath> StoredPath(const Levels& levels, const KeyPath& seen) { return Placer(levels, seen).Run(); }

std::string Describe(const Levels& levels) {
  std::vector<std::string> words;
  if (!levels.adapter.empty()) words.push_back("adapter " + levels.adapter);
  if (levels.state_adapter != levels.adapter) words.push_back(levels.state_adapter.empty() ? "none around the optimizer's moments" : levels.state_adapter + " around the optimizer's moments");
  std::string name = "opt_state";
  for (const std::string& key : levels.opt_state) {
    std::vector<std::string> hyperparameters;
    const std::string prefix = name + ".hyperparams.";
    for (const auto& [dropped, constant] : levels.dropped) {
      if (dropped.starts_with(prefix)) hyperparameters.push_back(dropped.substr(prefix.size()));
    }
    if (!hyperparameters.empty()) {
      words.push_back(fmt::format("inject_hyperparams ({})", fmt::join(hyperparameters, ", ")));
    } else if (key == "inner_opt_state") {
      words.emplace_back("MultiSteps");
    } else {
      words.push_back(OnlyDigits(key) ? "chain " + key : "a wrapper");
    }
    name += "." + key;
  }
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace crossdock::dialects::tunix
