// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_optimizer.h"

#include <array>

#include "base/check.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr std::size_t kGroups = 2;   // with weight decay, without

/// The two groups, the decaying one first.
Result<std::array<Value, kGroups>> Groups(const Value& common) {
  std::array<Value, kGroups> out;
  std::array<int, kGroups> count{};
  const Value* stored = common.FindPath("optimizer.param_groups");
  const ValueList* list = stored != nullptr ? stored->as_sequence() : nullptr;
  if (list != nullptr) {
    for (const Value& group : *list) {
      if (group.as_dict() == nullptr) continue;
      const std::size_t at = group.GetFloat("wd_mult").value_or(1) > 0 ? 0 : 1;
      out[at] = group;
      ++count[at];
    }
  }
  if (count[0] == 1 && count[1] == 1) return out;
  return MakeError(ErrorCode::kUnsupported, "a legacy checkpoint's optimizer needs the two parameter groups of a dense model, with and without weight decay")
      .WithExpected("one of each")
      .WithFound(std::to_string(count[0]) + " with, " + std::to_string(count[1]) + " without")
      .WithHint("write `--to megatron`, or leave the state behind with --no-optim");
}

}  // namespace

bool Decays(const std::string& name, const Shape& shape) { return shape.size() != 1 && !name.ends_with(".bias"); }

std::vector<OptimizerPlace> OptimizerPlaces(const std::vector<std::pair<std::string, Shape>>& parameters) {
  std::vector<OptimizerPlace> out(parameters.size());
  std::size_t number = 0;
  for (std::size_t group = 0; group < kGroups; ++group) {
    std::size_t index = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (Decays(parameters[i].first, parameters[i].second) != (group == 0)) continue;
      out[i] = {number++, group, index++};
    }
  }
  return out;
}

Result<Value> MakePlainOptimizer(const Value& common, const std::vector<OptimizedParameter>& parameters) {
  CROSSDOCK_ASSIGN_OR_RETURN(auto groups, Groups(common));
  std::vector<std::pair<std::string, Shape>> names;
  for (const OptimizedParameter& parameter : parameters) names.emplace_back(parameter.name, parameter.shape);
  const std::vector<OptimizerPlace> places = OptimizerPlaces(names);
  ValueDict state(parameters.size());
  std::array<ValueList, kGroups> masters;
  std::array<ValueList, kGroups> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const OptimizerPlace& place = places[i];
    const auto number = static_cast<std::int64_t>(place.number);
    Value moments = Value::MakeDict();
    moments.Set("exp_avg", parameters[i].mu);
    moments.Set("exp_avg_sq", parameters[i].nu);
    state[place.number] = {Value(number), std::move(moments)};
    CROSSDOCK_CHECK(masters[place.group].size() == place.index);
    masters[place.group].push_back(parameters[i].master);
    numbers[place.group].emplace_back(number);
  }
  ValueList stored;
  for (std::size_t g = 0; g < kGroups; ++g) {
    groups[g].Set("params", Value::MakeList(std::move(numbers[g])));
    stored.push_back(std::move(groups[g]));
  }
  Value inner = Value::MakeDict();
  inner.Set("state", Value::MakeDict(std::move(state)));
  inner.Set("param_groups", Value::MakeList(std::move(stored)));
  Value out = Value::MakeDict();
  out.Set("optimizer", std::move(inner));
  if (const Value* scaler = common.Find("grad_scaler")) out.Set("grad_scaler", *scaler);
  ValueList all;
  for (ValueList& group : masters) all.push_back(Value::MakeList(std::move(group)));
  out.Set("fp32_from_fp16_params", Value::MakeList(std::move(all)));
  return out;
}

Result<Value> MakeDistributedOptimizer(const Value& common) {
  CROSSDOCK_ASSIGN_OR_RETURN(auto groups, Groups(common));
  ValueList stored;
  for (Value& group : groups) {
    group.Erase("params");
    stored.push_back(std::move(group));
  }
  Value inner = Value::MakeDict();
  inner.Set("param_groups", Value::MakeList(std::move(stored)));
  Value out = Value::MakeDict();
  out.Set("optimizer", std::move(inner));
  if (const Value* scaler = common.Find("grad_scaler")) out.Set("grad_scaler", *scaler);
  return out;
}

}  // namespace crossdock::dialects::mcore
