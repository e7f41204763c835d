// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/extra_state.h"

#include "dialects/mcore/keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// Linear layers and norms; the grouped experts name theirs otherwise.
bool IsTransformerEngine(std::string_view module) {
  const std::string_view last = module.substr(module.rfind('.') + 1);
  return (last.starts_with("linear_") || last.ends_with("norm")) && module.find(".experts.") == std::string_view::npos;
}

}  // namespace

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
    if (ParseTensorKey(entry.name).kind != TensorKey::Kind::kModel || !entry.name.starts_with("decoder.")) continue;
    const std::string module = entry.name.substr(0, entry.name.rfind('.'));
    if (!IsTransformerEngine(module)) continue;
    if (HasLayerAxis(entry.name)) {
      for (std::int64_t i = 0; i < layers; ++i) objects[fmt::format("object:{}._extra_state/shard_{}_{}", module, i, layers)] = EmptyExtraState();
    } else {
      objects[fmt::format("object:{}._extra_state/shard_0_1", module)] = EmptyExtraState();
    }
  }
  return objects;
}

}  // namespace crossdock::dialects::mcore
