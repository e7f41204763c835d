// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/extra_state.h"

#include "dialects/mcore/keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// How many experts lie along the axis after the layers'; 0 for what is no expert's.
std::int64_t ExpertsOf(const Entry& entry) {
  if (entry.name.find(".experts.experts.") == std::string::npos) return 0;
  const std::size_t axis = HasLayerAxis(entry.name) ? 1 : 0;
  return entry.shape.size() > axis ? entry.shape[axis] : 0;
}

}  // namespace

bool IsMegatronsOwnTower(std::string_view key) { return key.starts_with("vision_model.") || key.starts_with("encoder_model."); }

bool IsTransformerEngine(std::string_view module) {
  const std::string_view last = module.substr(module.rfind('.') + 1);
  return last.starts_with("linear_") || last.ends_with("norm") || last == "eh_proj" || last.starts_with("in_proj") || last == "out_proj";
}

Value EmptyExtraState() {
  TensorValue tensor;
  tensor.dtype = DType::kU8;
  tensor.shape = {0};
  tensor.strides = {1};
  tensor.storage = "0";
  tensor.bytes = std::make_shared<const std::string>();
  return Value::MakeList({Value(std::move(tensor))});
}

std::map<std::string, Value> EmptyExtraStates(const std::vector<Entry>& entries, std::int64_t layers) {
  std::map<std::string, Value> objects;
  for (const Entry& entry : entries) {
    const std::string_view key = WithinLanguageModel(entry.name);
    const bool layered = key.starts_with("decoder.") || key.starts_with("mtp.") || IsMegatronsOwnTower(key);
    if (ParseTensorKey(entry.name).kind != TensorKey::Kind::kModel || !layered) continue;
    const std::string module = entry.name.substr(0, entry.name.rfind('.'));
    if (!IsTransformerEngine(module)) continue;
    const bool blocks = IsStackOfTower(entry.name) && !entry.shape.empty();
    const std::int64_t rows = HasLayerAxis(entry.name) ? layers : blocks ? entry.shape[0] : 1;
    const std::int64_t experts = ExpertsOf(entry);
    for (std::int64_t i = 0; i < rows; ++i) {
      if (experts == 0) objects[fmt::format("object:{}._extra_state/shard_{}_{}", module, i, rows)] = EmptyExtraState();
      for (std::int64_t e = 0; e < experts; ++e) {
        const std::string shard = rows == 1 && !HasLayerAxis(entry.name) ? fmt::format("shard_{}_{}", e, experts) : fmt::format("shard_{}.{}_{}.{}", i, e, rows, experts);
        objects[fmt::format("object:{}._extra_state/{}", module, shard)] = EmptyExtraState();
      }
    }
  }
  return objects;
}

}  // namespace crossdock::dialects::mcore
