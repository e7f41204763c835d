// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/rope.h"

#include <algorithm>
#include <array>

namespace crossdock::dialects::hf {
namespace {

void ReadScaling(const Value& dict, Rope* rope) {
  const Value::Dict* items = dict.as_dict();
  if (items == nullptr) return;
  if (const auto type = dict.GetString("type")) rope->type = *type;  // transformers before 4.45
  if (const auto type = dict.GetString("rope_type")) rope->type = *type;
  if (rope->type == "mrope") rope->type = "default";  // three positions a token, the same frequencies; transformers reads it so
  for (const auto& [key, value] : items->items) {
    const std::string* name = key.as_string();
    if (name == nullptr || *name == "type" || *name == "rope_type" || *name == "rope_theta") continue;
    rope->factors.Set(*name, value);
  }
}

Value ScalingOf(const Rope& rope) {
  Value out = Value::MakeDict();
  for (const auto& [key, value] : rope.factors.as_dict()->items) out.Set(*key.as_string(), value);
  out.Set("rope_type", Value(rope.type));
  return out;
}

bool SameFactor(const Value& a, const Value* b) {
  if (b == nullptr) return false;
  const auto number = [](const Value& v) -> std::optional<double> {
    if (const auto* i = v.as_int()) return static_cast<double>(*i);
    if (const auto* f = v.as_float()) return *f;
    return std::nullopt;
  };
  const auto x = number(a);
  const auto y = number(*b);
  return x && y ? *x == *y : a.Equals(*b);
}

}  // namespace

bool Rope::SameScaling(const Rope& other) const {
  const ValueDict& mine = factors.as_dict()->items;
  if (type != other.type || mine.size() != other.factors.as_dict()->items.size()) return false;
  return std::all_of(mine.begin(), mine.end(),
                     [&](const auto& item) { return SameFactor(item.second, other.factors.Find(*item.first.as_string())); });
}

Rope ReadRope(const Value& config) {
  Rope rope;
  rope.theta = config.GetFloat("rope_theta");
  if (const Value* scaling = config.Find("rope_scaling")) ReadScaling(*scaling, &rope);
  if (const Value* parameters = config.Find("rope_parameters"); parameters != nullptr && parameters->as_dict() != nullptr) {
    rope.type = "default";
    rope.factors = Value::MakeDict();
    ReadScaling(*parameters, &rope);
    if (const auto theta = parameters->GetFloat("rope_theta")) rope.theta = theta;
  }
  return rope;
}

void WriteRope(const Rope& rope, Value* config) {
  const bool has_new = config->Find("rope_parameters") != nullptr;
  const bool has_old = config->Find("rope_theta") != nullptr || config->Find("rope_scaling") != nullptr;
  if (has_old || !has_new) {
    if (rope.theta) config->Set("rope_theta", Value(*rope.theta));
    if (rope.type != "default") {
      config->Set("rope_scaling", ScalingOf(rope));
    } else if (config->Find("rope_scaling") != nullptr || !has_new) {
      config->Set("rope_scaling", Value());
    }
  }
  if (has_new || !has_old) {
    Value parameters = ScalingOf(rope);
    if (rope.theta) parameters.Set("rope_theta", Value(*rope.theta));
    config->Set("rope_parameters", std::move(parameters));
  }
}

bool IsKnownRopeType(const std::string& type) {
  constexpr std::array kTypes = {"default", "linear", "dynamic", "yarn", "longrope", "llama3"};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

}  // namespace crossdock::dialects::hf
