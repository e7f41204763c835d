// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/fsdp_view.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "dialects/mcore/args.h"
#include "dialects/mcore/common_state.h"
#include "dialects/mcore/extra_state.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/registration_order.h"
#include "dialects/mcore/view_catalog.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;

constexpr const char* kMark = "fsdp_dtensor";   // of the reader's catalog, and of the view
constexpr std::string_view kModelPrefix = "model.";
constexpr std::string_view kWrapper = "module.";
constexpr std::string_view kStatePrefix = "optimizer.state.";
constexpr std::string_view kGroupsPrefix = "optimizer.param_to_group_meta.";
/// A weight, or a bias, that Megatron stores in two halves.
constexpr std::array<std::string_view, 2> kGatedProjections = {".linear_fc1.weight", ".linear_fc1.bias"};
constexpr std::int64_t kMostLayers = 16384;
/// Parts of a joined projection whose rule is not fc1's.
constexpr std::array<std::string_view, 2> kOtherJoined = {".in_proj.weight.", ".conv1d."};

std::string_view Unwrapped(std::string_view name) {
  while (name.starts_with(kWrapper)) name.remove_prefix(kWrapper.size());
  return name;
}

/// What an entry is: a slot of a parameter.
struct StoredPart {
  Slot slot = Slot::kParam;
  std::string key;          ///< torch_dist's
  int half = -1;            ///< of fc1: 0 gate, 1 up; -1: all of it
};

class FsdpView {
 public:
  FsdpView(const Catalog& source, bool no_optim) : source_(source), no_optim_(no_optim) {}

  Result<GlobalView> Run() {
    ReadItems();
    for (std::size_t i = 0; i < source_.entries.size(); ++i) CROSSDOCK_RETURN_IF_ERROR(Take(static_cast<std::int32_t>(i)));
    CROSSDOCK_RETURN_IF_ERROR(JoinHalves());
    CROSSDOCK_RETURN_IF_ERROR(AddMasters());
    CROSSDOCK_RETURN_IF_ERROR(StackLayers());
    view_.identity = false;
    view_.catalog.format = source_.format;
    view_.catalog.root = source_.root;
    view_.catalog.step = source_.step;
    view_.catalog.side_files = source_.side_files;
    for (auto& [name, whole] : whole_) Add(name.first, name.second, std::move(whole));
    view_.catalog.objects["common"] = std::move(common_);
    view_.catalog.objects[kMark] = Value(true);
    view_.notices.push_back(fmt::format("the checkpoint is Megatron-FSDP's: {} of its main weights are rounded to the run's type, {} of them are masters", rounded_, masters_));
    CROSSDOCK_RETURN_IF_ERROR(SortView(&view_));
    CROSSDOCK_RETURN_IF_ERROR(AddExtraStates());
    return std::move(view_);
  }

 private:
  /// Such trees hold none of TransformerEngine's, and torch_dist's loader asks for one of every module.
  Status AddExtraStates() {
    const std::int64_t said = args_.GetInt("num_layers").value_or(layers_);
    if (said != layers_) {
      return MakeError(ErrorCode::kCorrupt, "the arguments and the tensors of a checkpoint disagree about its layers").WithTensor("args")
          .WithExpected(fmt::format("num_layers {}", layers_)).WithFound(std::to_string(said))
          .WithHint("take the checkpoint from where it was saved: files of another run are among these");
    }
    if (LayerSpecOf(args_) != LayerSpec::kTransformerEngine) return OkStatus();
    for (auto& [name, value] : EmptyExtraStates(view_.catalog.entries, layers_)) view_.catalog.objects[name] = std::move(value);
    return OkStatus();
  }

  /// Counters and arguments, and the parameter groups without repeats.
  void ReadItems() {
    common_ = Value::MakeDict();
    Value scheduler = Value::MakeDict();
    std::map<std::string, Value> groups;   // by parameter
    std::int64_t random = 0;
    for (const char* object : {"items", "scalars"}) {
      const auto stored = source_.objects.find(object);
      if (stored == source_.objects.end() || stored->second.as_dict() == nullptr) continue;
      for (const auto& [key, value] : stored->second.as_dict()->items) {
        const std::string& name = *key.as_string();
        constexpr std::string_view kScheduler = "opt_param_scheduler.";
        if (name.starts_with(kGroupsPrefix)) {
          const std::size_t dot = name.rfind('.');
          groups.try_emplace(name.substr(0, dot), Value::MakeDict()).first->second.Set(name.substr(dot + 1), value);
        } else if (name.starts_with(kScheduler)) {
          scheduler.Set(name.substr(kScheduler.size()), value);
        } else if (name.starts_with("rng_state.")) {
          ++random;
        } else if (name.find('.') == std::string::npos) {
          common_.as_dict()->items.emplace_back(key, value);
        }
      }
    }
    if (random > 0) view_.left_out.push_back({"rng_state", "random number generators belong to the ranks of the run that wrote them", random, 0});
    if (!scheduler.as_dict()->items.empty()) common_.Set("opt_param_scheduler", std::move(scheduler));
    if (const Value* args = common_.Find("args"); args != nullptr && args->as_opaque() != nullptr && args->as_opaque()->state != nullptr) {
      args_ = *args->as_opaque()->state;
      if (args_.GetBool("bf16").value_or(false)) run_dtype_ = DType::kBF16;
      if (args_.GetBool("fp16").value_or(false)) run_dtype_ = DType::kF16;
      args_.Set("ckpt_format", Value("torch_dist"));  // what is seen, and what a run that takes these arguments must look for
      common_.Set("args", MakeNamespace(args_));
    }
    if (!groups.empty() && !no_optim_) SetGroups(std::move(groups));
  }

  void SetGroups(std::map<std::string, Value> by_parameter) {
    ValueList unique;
    for (auto& [parameter, group] : by_parameter) {
      const bool known = std::ranges::any_of(unique, [&](const Value& other) { return other.Equals(group); });
      if (!known) unique.push_back(std::move(group));
    }
    Value torch = Value::MakeDict();
    torch.Set("param_groups", Value::MakeList(std::move(unique)));
    Value optimizer = Value::MakeDict();
    optimizer.Set("optimizer", std::move(torch));
    common_.Set("optimizer", std::move(optimizer));
    DeclareFullyReshardable(&common_);
  }

  Status Take(std::int32_t index) {
    const Entry& entry = source_.entries[static_cast<std::size_t>(index)];
    StoredPart part;
    std::string_view rest = entry.name;
    if (rest.starts_with(kModelPrefix)) {
      rest = Unwrapped(rest.substr(kModelPrefix.size()));
    } else if (rest.starts_with(kStatePrefix)) {
      if (no_optim_) return OkStatus();
      rest = Unwrapped(rest.substr(kStatePrefix.size()));
      const std::size_t dot = std::min(rest.rfind('.'), rest.size());
      const std::string_view state = rest.substr(dot);
      if (state != ".exp_avg" && state != ".exp_avg_sq") {
        return MakeError(ErrorCode::kUnsupported, "the optimizer of a Megatron-FSDP run holds state that is not Adam's").WithTensor(entry.name)
            .WithExpected("exp_avg and exp_avg_sq").WithFound(Printable(std::string(state.substr(std::min<std::size_t>(1, state.size()))))).WithHint("--no-optim leaves the optimizer state behind");
      }
      part.slot = state == ".exp_avg" ? Slot::kAdamMu : Slot::kAdamNu;
      rest = rest.substr(0, dot);
    } else {
      return OkStatus();  // random states
    }
    const bool other = rest.find(".experts.") != std::string_view::npos || std::ranges::any_of(kOtherJoined, [&](std::string_view word) { return rest.find(word) != std::string_view::npos; });
    if (other) {
      return MakeError(ErrorCode::kUnsupported, "experts and linear attention of Megatron-FSDP trees are not read by this version").WithTensor(entry.name)
          .WithExpected("layers of attention and one MLP").WithFound(Printable(std::string(rest)))
          .WithHint("load it with Megatron and save it with `--ckpt-format torch_dist`");
    }
    for (const std::string_view projection : kGatedProjections) {
      for (const auto& [end, half] : {std::pair{"_w", 0}, std::pair{"_v", 1}}) {
        if (!rest.ends_with(std::string(projection) + end)) continue;
        part.half = half;
        rest.remove_suffix(2);
      }
    }
    part.key = rest;
    const std::pair name(part.slot, part.key);
    Expr leaf = expr::Leaf(index, entry.dtype, entry.shape);
    if (part.half >= 0) {
      Expr& place = halves_[name][static_cast<std::size_t>(part.half)];
      if (place != nullptr) return Twice(entry.name);
      place = std::move(leaf);
    } else if (!whole_.emplace(name, std::move(leaf)).second) {
      return Twice(entry.name);
    }
    return OkStatus();
  }

  static Error Twice(const std::string& name) { return MakeError(ErrorCode::kCorrupt, "two tensors of a checkpoint mean the same").WithTensor(name)
      .WithExpected("one of each parameter and state, whatever `module.` stands before it").WithFound("another by the same name")
      .WithHint("save the run again, to an empty directory"); }

  Status JoinHalves() {
    for (auto& [name, parts] : halves_) {
      if (parts[0] == nullptr || parts[1] == nullptr) {
        return MakeError(ErrorCode::kIncomplete, "a gated projection has one of its halves only").WithTensor(name.second)
            .WithExpected(fmt::format("`_w` and `_v` of its {}", SlotName(name.first))).WithFound(parts[0] != nullptr ? "`_w`" : "`_v`")
            .WithHint("copy the missing files from where the checkpoint was saved");
      }
      Result<Expr> whole = expr::Concat({parts[0], parts[1]}, 0);
      if (!whole) return Error(std::move(whole).error()).WithTensor(name.second);
      if (!whole_.emplace(name, *std::move(whole)).second) return Twice(name.second);
    }
    return OkStatus();
  }

  /// The run's parameters, and its masters where there are moments to go on with.
  Status AddMasters() {
    if (!run_dtype_) return OkStatus();
    std::map<std::pair<Slot, std::string>, Expr> masters;
    for (auto& [name, whole] : whole_) {
      if (name.first != Slot::kParam || whole->dtype != DType::kF32) continue;
      if (whole_.contains({Slot::kAdamMu, name.second})) masters.emplace(std::pair(Slot::kMaster, name.second), whole);
      ++rounded_;
      CROSSDOCK_ASSIGN_OR_RETURN(whole, expr::Cast(whole, *run_dtype_));
    }
    masters_ = masters.size();
    whole_.merge(masters);
    return OkStatus();
  }

  /// Layers that are alike lie along one axis in torch_dist of the same run, and its loader asks for that.
  Status StackLayers() {
    std::map<std::pair<Slot, std::string>, std::map<std::int64_t, Expr>> stacks;   // by what follows the number
    std::int64_t last = -1;
    for (const auto& [name, whole] : whole_) {
      const std::optional<std::int64_t> layer = LayerNumber(name.second);
      if (!layer || !std::string_view(name.second).starts_with(kLayersPrefix)) continue;
      const std::size_t rest = name.second.find('.', kLayersPrefix.size()) + 1;
      stacks[{name.first, std::string(kLayersPrefix) + name.second.substr(rest)}][*layer] = whole;
      last = std::max(last, *layer);
    }
    if (last >= kMostLayers) {
      return MakeError(ErrorCode::kCorrupt, "a checkpoint numbers a layer as no model does").WithTensor(std::string(kLayersPrefix) + std::to_string(last))
          .WithExpected(fmt::format("layers below {}", kMostLayers)).WithFound(std::to_string(last)).WithHint("take the checkpoint from where it was saved");
    }
    layers_ = last + 1;
    const auto alike = [&](const auto& stack) {
      const Expr& first = stack.second.begin()->second;
      return static_cast<std::int64_t>(stack.second.size()) == layers_ &&
             std::ranges::all_of(stack.second, [&](const auto& layer) { return layer.second->shape == first->shape && layer.second->dtype == first->dtype; });
    };
    if (!std::ranges::all_of(stacks, alike)) return OkStatus();
    std::erase_if(whole_, [](const auto& item) { return std::string_view(item.first.second).starts_with(kLayersPrefix); });
    for (auto& [name, stack] : stacks) {
      std::vector<Expr> layers;
      for (auto& [number, layer] : stack) layers.push_back(std::move(layer));
      CROSSDOCK_ASSIGN_OR_RETURN(whole_[name], expr::Stack(layers, 0));
    }
    return OkStatus();
  }

  void Add(Slot slot, const std::string& key, Expr whole) {
    view_.catalog.entries.push_back({SlotKey(slot, key), Slot::kParam, whole->dtype, whole->shape, {}});
    view_.exprs.push_back(std::move(whole));
  }

  const Catalog& source_;
  const bool no_optim_;
  Value common_;
  Value args_ = Value::MakeDict();
  std::optional<DType> run_dtype_;
  std::int64_t layers_ = 0;
  std::size_t rounded_ = 0, masters_ = 0;
  std::map<std::pair<Slot, std::string>, Expr> whole_;
  std::map<std::pair<Slot, std::string>, std::array<Expr, 2>> halves_;
  GlobalView view_;
};

}  // namespace

bool IsMegatronFsdp(const Catalog& catalog) { return catalog.objects.contains(kMark); }

Result<GlobalView> SeeMegatronFsdp(const Catalog& source, const ViewOptions& options) { return FsdpView(source, options.no_optim).Run(); }

}  // namespace crossdock::dialects::mcore
