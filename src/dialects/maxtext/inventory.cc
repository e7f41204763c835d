// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/inventory.h"

#include <fmt/format.h>

#include <algorithm>

#include "dialects/maxtext/layers.h"
#include "dialects/maxtext/state_tree.h"

namespace crossdock::dialects::maxtext {
namespace {

std::int64_t BytesOf(const Entry& entry) {
  const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
  return bytes ? *bytes : 0;
}

/// Where several places may hold a variable: what training itself restores comes first.
int Rank(std::string_view array) { return array.starts_with("nnx_aux.") ? 0 : 1; }

class Sorter {
 public:
  Sorter(const Catalog& catalog, bool no_optim) : catalog_(catalog), no_optim_(no_optim) {}

  Result<Inventory> Run() {
    for (std::size_t i = 0; i < catalog_.entries.size(); ++i) CROSSDOCK_RETURN_IF_ERROR(One(static_cast<std::int32_t>(i)));
    CROSSDOCK_RETURN_IF_ERROR(Scalars());
    if (inventory_.tensors.empty()) return NoModel();
    CROSSDOCK_RETURN_IF_ERROR(FormOfLayers());
    Tell(random_, "random generators and what else training makes anew when it is absent");
    Tell(settings_, "settings and counters of an optimizer's wrapper, which no other place has");
    if (no_optim_) Tell(optimizer_, "left behind by --no-optim");
    return std::move(inventory_);
  }

 private:
  Error NoModel() const {
    const bool tunix = std::any_of(catalog_.entries.begin(), catalog_.entries.end(), [](const Entry& e) { return e.name.starts_with("base.") || e.name.ends_with(".value"); });
    Error error = MakeError(catalog_.entries.empty() ? ErrorCode::kIncomplete : ErrorCode::kUnsupported, "the checkpoint holds no parameters where MaxText keeps them")
                      .WithExpected("arrays under params.params")
                      .WithFound(catalog_.entries.empty() ? "no arrays" : fmt::format("{} arrays, the first is {}", catalog_.entries.size(), Printable(catalog_.entries.front().name)));
    error.hint = tunix ? "this looks like an export of NNX, which this version does not read; of Tunix give the step, whose items are called model_params and optimizer_state" : "choose another step or path";
    return error;
  }

  static void Add(LeftOut& left, const std::string& name, std::int64_t bytes) {
    if (left.name.empty()) left = {name, "", 0, 0};
    ++left.count;
    left.bytes += bytes;
  }

  void Tell(LeftOut& left, const char* reason) {
    if (left.name.empty()) return;
    if (left.count > 1) left.name += fmt::format(" and {} more", left.count - 1);
    left.reason = reason;
    inventory_.left_out.push_back(std::move(left));
  }

  Status One(std::int32_t index) {
    const Entry& entry = catalog_.entries[static_cast<std::size_t>(index)];
    if (HasValue(entry.name)) return OkStatus();
    const TreeKey key = ParseTreeKey(entry.name);
    const bool state = entry.name.starts_with("opt_state");
    inventory_.has_states = inventory_.has_states || key.kind == TreeKey::Kind::kState;
    if (state && no_optim_) return Add(optimizer_, entry.name, BytesOf(entry)), OkStatus();
    switch (key.kind) {
      case TreeKey::Kind::kParam: return Place(key, index);
      case TreeKey::Kind::kState: return Place(key, index);
      case TreeKey::Kind::kVariable: return Variable(key, index), OkStatus();
      case TreeKey::Kind::kRandom: return Add(random_, entry.name, BytesOf(entry)), OkStatus();
      case TreeKey::Kind::kCoefficients: return OkStatus();  // constants of the optimizer, written anew
      default: break;
    }
    if (state || key.kind == TreeKey::Kind::kCount) {
      Add(settings_, entry.name, BytesOf(entry));
    } else if (entry.name.starts_with("nnx_aux")) {
      Add(random_, entry.name, BytesOf(entry));
    } else if (key.kind != TreeKey::Kind::kStep) {
      inventory_.unknown.push_back(entry.name);
    }
    return OkStatus();
  }

  /// Told by value: Scalars() sees it.
  bool HasValue(const std::string& name) const {
    const auto scalars = catalog_.objects.find("scalars");
    return scalars != catalog_.objects.end() && scalars->second.Find(name) != nullptr;
  }

  Status Place(const TreeKey& key, std::int32_t index) {
    auto [place, fresh] = inventory_.tensors.try_emplace(key.name);
    if (fresh) place->second.fill(-1);
    std::int32_t& slot = place->second[static_cast<std::size_t>(key.slot)];
    if (slot >= 0) {
      return MakeError(ErrorCode::kCorrupt, "two arrays mean the same")
          .WithTensor(catalog_.entries[static_cast<std::size_t>(index)].name)
          .WithFound(fmt::format("also {}", Printable(catalog_.entries[static_cast<std::size_t>(slot)].name)));
    }
    slot = index;
    return OkStatus();
  }

  void Variable(const TreeKey& key, std::int32_t index) {
    const auto [place, fresh] = inventory_.variables.try_emplace(key.name, index);
    const auto name = [&](std::int32_t at) -> const std::string& { return catalog_.entries[static_cast<std::size_t>(at)].name; };
    if (!fresh && Rank(name(index)) < Rank(name(place->second))) place->second = index;
  }

  // ---- counters ----

  Status Scalars() {
    const auto scalars = catalog_.objects.find("scalars");
    const Value::Dict* dict = scalars == catalog_.objects.end() ? nullptr : scalars->second.as_dict();
    if (dict == nullptr) return OkStatus();
    const auto inner = [](const std::string& name) { return name.starts_with("opt_state.inner_state."); };
    const bool wrapped = std::any_of(catalog_.entries.begin(), catalog_.entries.end(), [&](const Entry& e) { return inner(e.name); });
    for (const auto& [name, value] : dict->items) {
      if (name.as_string() == nullptr) continue;
      const TreeKey key = ParseTreeKey(*name.as_string());
      const bool state = name.as_string()->starts_with("opt_state");
      if (key.kind == TreeKey::Kind::kStep) {
        CROSSDOCK_RETURN_IF_ERROR(Counter(*name.as_string(), value, inventory_.counters.step));
      } else if (state && no_optim_) {
        Add(optimizer_, *name.as_string(), 0);
      } else if (key.kind == TreeKey::Kind::kCount && !(key.wrapper && wrapped)) {
        CROSSDOCK_RETURN_IF_ERROR(Counter(*name.as_string(), value, key.schedule ? schedule_ : key.muon ? inventory_.counters.muon_count : inventory_.counters.adam_count));
      } else if (state && key.kind != TreeKey::Kind::kCoefficients) {
        Add(settings_, *name.as_string(), 0);
      } else if (name.as_string()->starts_with("nnx_aux")) {
        Add(random_, *name.as_string(), 0);
      } else if (key.kind == TreeKey::Kind::kOther) {
        inventory_.unknown.push_back(*name.as_string());
      }
    }
    if (schedule_ && inventory_.counters.step && *schedule_ != *inventory_.counters.step) {
      inventory_.notices.push_back(fmt::format("the learning rate's schedule counts {}, the checkpoint's step is {}: the step counts here", *schedule_, *inventory_.counters.step));
    }
    if (!inventory_.counters.step) inventory_.counters.step = schedule_ ? schedule_ : catalog_.step;
    return OkStatus();
  }

  static Status Counter(const std::string& name, const Value& value, std::optional<std::int64_t>& place) {
    const Value* values = value.Find("values");
    const ValueList* list = values == nullptr ? nullptr : values->as_sequence();
    const std::int64_t* number = list == nullptr || list->size() != 1 ? nullptr : list->front().as_int();
    if (number == nullptr || *number < 0) {
      return MakeError(ErrorCode::kCorrupt, "a counter is no whole number of at least 0").WithTensor(name).WithFound(Printable(ToJson(value, 0), 80));
    }
    place = *number;
    return OkStatus();
  }

  // ---- layers ----

  Status FormOfLayers() {
    std::string numbered;
    std::string scanned;
    for (const auto& [name, slots] : inventory_.tensors) {
      if (ParseLayerName(name)) {
        numbered = name;
      } else if (name.starts_with("decoder.layers.") || name.starts_with("decoder.dense_layers.") || name.starts_with("decoder.moe_layers.")) {
        scanned = name;
      }
    }
    if (!numbered.empty() && !scanned.empty()) inventory_.mixed = fmt::format("{} and {}", Printable(scanned), Printable(numbered));
    inventory_.scanned = !scanned.empty();
    const auto metadata = catalog_.objects.find("custom_metadata");
    const std::optional<bool> said = metadata == catalog_.objects.end() ? std::nullopt : metadata->second.GetBool("scan_layers");
    if (said && *said != inventory_.scanned) {
      inventory_.notices.push_back(fmt::format("the checkpoint's metadata says scan_layers = {}, its names say {}: the names count", *said, inventory_.scanned));
    }
    return OkStatus();
  }

  const Catalog& catalog_;
  const bool no_optim_;
  Inventory inventory_;
  std::optional<std::int64_t> schedule_;
  LeftOut random_;
  LeftOut settings_;
  LeftOut optimizer_;
};

}  // namespace

bool Inventory::Holds(std::string_view part) const {
  const auto has = [&](const auto& item) { return item.first.find(part) != std::string::npos; };
  return std::any_of(tensors.begin(), tensors.end(), has) || std::any_of(variables.begin(), variables.end(), has);
}

std::int64_t Inventory::PredictionLayers() const {
  constexpr std::int64_t kMost = 64;
  std::int64_t count = 0;
  while (count < kMost && Holds(fmt::format("mtp_block.mtp_layer_{}.", count + 1))) ++count;
  return count;
}

Result<Inventory> TakeInventory(const Catalog& catalog, bool no_optim) { return Sorter(catalog, no_optim).Run(); }

}  // namespace crossdock::dialects::maxtext
