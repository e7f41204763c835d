// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/carry.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "dialects/maxtext/chunk_grid.h"
#include "dialects/maxtext/consumer.h"
#include "dialects/maxtext/inventory.h"
#include "dialects/maxtext/step_words.h"

namespace crossdock::dialects::tunix {
namespace {

using maxtext::KeyPath;
using maxtext::OptimizerKind;

bool IsState(std::string_view name) { return name.starts_with("opt_state"); }

class Carrier {
 public:
  Carrier(const View& view, const TargetOptions& options, bool no_optim) : view_(view), options_(options), no_optim_(no_optim || view.optimizer == OptimizerKind::kNone) {}

  Result<TargetState> Run() {
    CROSSDOCK_ASSIGN_OR_RETURN(const maxtext::Consumer consumer, maxtext::ChooseConsumer(options_.consumer, options_.consumer_version));
    CROSSDOCK_ASSIGN_OR_RETURN(const maxtext::Inventory inventory, maxtext::TakeInventory(view_.catalog, no_optim_));
    CROSSDOCK_RETURN_IF_ERROR(CheckPairs(inventory));
    own_biases_ = consumer.own_biases();
    const std::int64_t step = options_.iteration.value_or(inventory.counters.step.value_or(0));
    if (step < 0 || step > std::numeric_limits<std::int32_t>::max()) {
      return MakeError(ErrorCode::kUsage, "MaxText counts no such step").WithExpected(fmt::format("0 to {}", std::numeric_limits<std::int32_t>::max())).WithFound(std::to_string(step));
    }
    Arrays();
    Counters(step);
    Finish(consumer, inventory.scanned);
    out_.unit_name = std::to_string(options_.iteration.value_or(view_.catalog.step.value_or(step)));
    out_.catalog.step = step;
    return std::move(out_);
  }

 private:
  /// A parameter may have no state (frozen, not an adapter's), but not half of one.
  static Status CheckPairs(const maxtext::Inventory& inventory) {
    for (const auto& [name, slots] : inventory.tensors) {
      const bool mu = slots[static_cast<std::size_t>(Slot::kAdamMu)] >= 0;
      if (mu == (slots[static_cast<std::size_t>(Slot::kAdamNu)] >= 0)) continue;
      return MakeError(ErrorCode::kIncomplete, "a parameter has one Adam moment but not the other")
          .WithTensor(name)
          .WithExpected("`adam_mu` and `adam_nu`")
          .WithFound(mu ? "`adam_mu` only" : "`adam_nu` only")
          .WithHint("`--no-optim` converts the parameters alone");
    }
    return OkStatus();
  }

  void Row(Value path, std::string_view type, const Value* random_key = nullptr) {
    Value row = Value::MakeDict();
    row.Set("path", std::move(path));
    row.Set("value_type", Value(type));
    if (random_key != nullptr) row.Set("ext_metadata", *random_key);
    rows_.emplace_back(maxtext::ArrayName(*row.Find("path")->as_sequence()), std::move(row));
  }

  bool IsCounter(const std::string& name) const { return view_.catalog.objects.at("scalars").Find(name) != nullptr; }

  void Add(const std::string& name, std::int32_t seen) {
    const Entry& entry = view_.catalog.entries[static_cast<std::size_t>(seen)];
    const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
    total_ += bytes ? *bytes : 0;
    made_.push_back({{name, Slot::kParam, entry.dtype, entry.shape, {}}, expr::Leaf(view_.entry_of[static_cast<std::size_t>(seen)], entry.dtype, entry.shape)});
  }

  /// A routed bias has no gradient: a variable of the model, which 0.2.5 restores from another place than parameters.
  bool IsRoutedBias(const std::string& name) const {
    constexpr std::string_view kParams = "params.params.";
    if (!own_biases_ || !name.starts_with(kParams) || !name.ends_with("gate.bias")) return false;
    const std::string own = name.substr(kParams.size());
    return std::none_of(view_.catalog.entries.begin(), view_.catalog.entries.end(), [&](const Entry& entry) { return IsState(entry.name) && entry.name.ends_with(own); });
  }

  void Arrays() {
    for (const Value& row : *view_.catalog.objects.at("tree").as_sequence()) {
      const Value& path = *row.Find("path");
      const std::string name = maxtext::ArrayName(*path.as_sequence());
      if ((IsState(name) && no_optim_) || IsCounter(name)) continue;
      Row(path, *row.GetString("value_type"), row.Find("ext_metadata"));
      const std::int32_t seen = view_.catalog.Find(name);
      if (seen < 0) continue;
      Add(name, seen);
      if (!IsRoutedBias(name)) continue;
      KeyPath variable = {Value("nnx_aux"), Value("model")};
      variable.insert(variable.end(), path.as_sequence()->begin() + 2, path.as_sequence()->end());
      Add(maxtext::ArrayName(variable), seen);
      Row(Value::MakeList(std::move(variable)), "np.ndarray");
    }
  }

  void Counters(std::int64_t step) {
    Value scalars = Value::MakeDict();
    const auto put = [&](const Value& path, std::int64_t number) {
      Value scalar = Value::MakeDict();
      scalar.Set("dtype", Value(DTypeName(DType::kI32)));
      scalar.Set("shape", Value::MakeList());
      scalar.Set("values", Value::MakeList({Value(number)}));
      scalars.Set(maxtext::ArrayName(*path.as_sequence()), std::move(scalar));
      Row(path, "np.ndarray");
    };
    put(Value::MakeList({Value("step")}), step);
    for (const Value& row : *view_.catalog.objects.at("tree").as_sequence()) {
      const Value& path = *row.Find("path");
      const std::string name = maxtext::ArrayName(*path.as_sequence());
      if (!IsCounter(name) || name == "step" || (IsState(name) && no_optim_)) continue;
      if (!IsState(name)) {  // a random stream's, as it is
        scalars.Set(name, *view_.catalog.objects.at("scalars").Find(name));
        Row(path, "np.ndarray", row.Find("ext_metadata"));
        continue;
      }
      const std::int64_t stored = *view_.catalog.objects.at("scalars").Find(name)->Find("values")->as_sequence()->front().as_int();
      put(path, options_.iteration && maxtext::ParseTreeKey(name).schedule ? step : stored);  // the inventory saw whole numbers
    }
    if (no_optim_) Row(Value::MakeList({Value("opt_state")}), "Dict");
    out_.catalog.objects["scalars"] = std::move(scalars);
  }

  void Finish(const maxtext::Consumer& consumer, bool scanned) {
    std::sort(made_.begin(), made_.end(), [](const Made& a, const Made& b) { return a.entry.name < b.entry.name; });
    for (Made& made : made_) {
      Entry& entry = made.entry;
      const Shape chunk = options_.zstd_level > 0 ? maxtext::ChunkShape(entry.shape, ElementSize(entry.dtype), {}, maxtext::ChunkBytes(total_)) : entry.shape;
      entry.chunks = maxtext::CutIntoChunks(entry.shape, chunk);
      out_.catalog.entries.push_back(std::move(entry));
      out_.exprs.push_back(std::move(made.expr));
    }
    std::sort(rows_.begin(), rows_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    ValueList rows;
    for (auto& [name, row] : rows_) rows.push_back(std::move(row));
    out_.catalog.objects["tree"] = Value::MakeList(std::move(rows));
    const auto found = view_.catalog.objects.find("custom_metadata");
    const Value stored = found == view_.catalog.objects.end() ? Value::MakeDict() : found->second;
    Value carried = maxtext::OwnWords(stored);
    carried.Set(maxtext::kLevelsWord, ToValue(view_.levels));
    out_.catalog.objects["custom_metadata"] = maxtext::StepMetadata(stored, scanned, std::move(carried));
    out_.catalog.objects["orbax"] = maxtext::OrbaxForm(consumer, options_.zstd_level);
    out_.catalog.format = "orbax";
    out_.catalog.side_files = view_.catalog.side_files;
    out_.load_line = maxtext::LoadLine(!no_optim_, scanned);
    out_.notices.push_back(fmt::format("carried array by array in the form of {}, layers {}", consumer.name(), scanned ? "scanned as they are" : "each on its own (scan_layers=false)"));
    if (view_.lora_alone) out_.notices.emplace_back("the step holds LoRA's adapters alone: MaxText needs the base model's weights beside it");
  }

  struct Made {
    Entry entry;
    expr::Expr expr;
  };
  const View& view_;
  const TargetOptions& options_;
  const bool no_optim_;
  bool own_biases_ = false;
  std::int64_t total_ = 0;
  std::vector<Made> made_;
  std::vector<std::pair<std::string, Value>> rows_;
  TargetState out_;
};

}  // namespace

Result<TargetState> CarryToMaxText(const View& view, const TargetOptions& options, bool no_optim) {
  if (!no_optim && !view.optimizer_refusal.empty()) {
    return MakeError(ErrorCode::kUnsupported, "the optimizer state cannot be carried: " + view.optimizer_refusal).WithHint("leave the state behind with --no-optim");
  }
  return Carrier(view, options, no_optim).Run();
}

}  // namespace crossdock::dialects::tunix
