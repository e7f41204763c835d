// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "family/formula.h"

namespace crossdock::dialects::maxtext {
namespace {

using family::DialectTensor;

constexpr std::string_view kDecoder = "decoder.";

/// The tensors that one scanned tensor is made of, by their place along its axis.
struct Stack {
  std::string container;
  std::map<std::int64_t, DialectTensor> parts;
};

Error DoesNotStack(const std::string& name, const Stack& stack, std::int64_t blocks) {
  return MakeError(ErrorCode::kUnsupported, "layers of different kinds cannot be scanned together")
      .WithTensor(name)
      .WithExpected(fmt::format("a part of each of the {} layers or blocks of {}", blocks, stack.container))
      .WithFound(fmt::format("{}", stack.parts.size()))
      .WithHint("--no-scan-layers writes each layer on its own");
}

/// Of the first layers, which are not scanned.
bool IsAlone(const DialectTensor& tensor, const Cycle& cycle) { return cycle.alone > 0 && tensor.first_layer && *tensor.first_layer < cycle.alone; }

Result<DialectTensor> Join(std::string name, Stack stack, int scan_axis) {
  DialectTensor joined = stack.parts.begin()->second;
  std::vector<expr::Expr> parts;
  joined.hub.clear();
  for (const auto& [at, part] : stack.parts) {
    parts.push_back(part.forward);
    joined.hub.insert(joined.hub.end(), part.hub.begin(), part.hub.end());
  }
  joined.name = std::move(name);
  const int axis = StackAxis(joined.shape, scan_axis);
  Result<expr::Expr> stacked = expr::Stack(parts, axis);
  if (!stacked) return std::move(std::move(stacked).error()).WithTensor(joined.name);
  joined.forward = *std::move(stacked);
  joined.shape = joined.forward->shape;
  joined.stack_axis = axis;
  if (joined.expert_axis >= axis) ++joined.expert_axis;
  return joined;
}

}  // namespace

Result<Cycle> CycleOf(const family::FamilyFile& family, const family::Letters& letters) {
  Cycle cycle;
  for (const auto& [key, text] : family.maxtext_flags) {
    if (key == "cycle") {
      CROSSDOCK_ASSIGN_OR_RETURN(cycle.length, family::EvaluateInteger(text, letters));
      if (cycle.length >= 1) continue;
    } else if (key == "alone") {
      CROSSDOCK_ASSIGN_OR_RETURN(cycle.alone, family::EvaluateInteger(text, letters));
      if (cycle.alone >= 0) continue;
    } else if (key == "remainder" && (text == "true" || text == "false")) {
      cycle.remainder = text == "true";
      continue;
    }
    return MakeError(ErrorCode::kUsage, fmt::format("[maxtext] of the family {} cannot be used", family.name))
        .WithPath(family.path)
        .WithExpected("cycle (a whole number of at least 1), alone (a whole number) and remainder (true or false)")
        .WithFound(fmt::format("{} = {}", Printable(key), Printable(text)));
  }
  cycle.alone = (cycle.alone + cycle.length - 1) / cycle.length * cycle.length;
  return cycle;
}

std::optional<LayerName> ParseLayerName(std::string_view name) {
  if (!name.starts_with(kDecoder)) return std::nullopt;
  const std::size_t end = name.find('.', kDecoder.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view part = name.substr(kDecoder.size(), end - kDecoder.size());
  const std::size_t score = part.rfind('_');
  if (score == std::string_view::npos || score == 0 || score + 1 == part.size()) return std::nullopt;
  LayerName out{std::string(part.substr(0, score)), 0, std::string(name.substr(end + 1))};
  const char* last = part.data() + part.size();
  const auto [stop, error] = std::from_chars(part.data() + score + 1, last, out.number);
  if (error != std::errc{} || stop != last || out.number < 0) return std::nullopt;
  return out;
}

int StackAxis(const Shape& of_layer, int scan_axis) { return scan_axis <= static_cast<int>(of_layer.size()) ? scan_axis : 0; }

Result<std::vector<DialectTensor>> ArrangeLayers(std::vector<DialectTensor> numbered, const Cycle& cycle, const LayerForm& form) {
  if (!form.scanned) return numbered;
  std::map<std::string, std::int64_t> counts, alone;
  for (const DialectTensor& tensor : numbered) {
    const std::optional<LayerName> layer = ParseLayerName(tensor.name);
    if (!layer) continue;
    counts[layer->container] = std::max(counts[layer->container], layer->number + 1);
    if (IsAlone(tensor, cycle)) alone[layer->container] = std::max(alone[layer->container], layer->number + 1);
  }
  std::vector<DialectTensor> arranged;
  std::vector<std::string> order;
  std::map<std::string, Stack> stacks;
  for (DialectTensor& tensor : numbered) {
    const std::optional<LayerName> layer = ParseLayerName(tensor.name);
    if (!layer) {
      arranged.push_back(std::move(tensor));
      continue;
    }
    if (IsAlone(tensor, cycle)) {
      arranged.push_back(std::move(tensor));
      continue;
    }
    const std::int64_t count = counts.at(layer->container) - alone[layer->container];
    const std::int64_t number = layer->number - alone[layer->container];
    const std::int64_t blocks = count / cycle.length;
    const std::int64_t place = number % cycle.length;
    if (count % cycle.length != 0 && !cycle.remainder) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("MaxText scans this model in blocks of {} layers, into which its {} layers do not divide", cycle.length, count))
          .WithHint("--no-scan-layers writes each layer on its own");
    }
    const std::string within = cycle.length == 1 ? "" : fmt::format("layers_{}.", place);
    if (number >= blocks * cycle.length) {
      tensor.name = fmt::format("decoder.{}_remainder.{}{}", layer->container, within, layer->rest);
      arranged.push_back(std::move(tensor));
      continue;
    }
    std::string name = fmt::format("decoder.{}.{}{}", layer->container, within, layer->rest);
    const auto [stack, fresh] = stacks.try_emplace(name);
    if (fresh) {
      stack->second.container = layer->container;
      order.push_back(std::move(name));
    }
    stack->second.parts.emplace(number / cycle.length, std::move(tensor));
  }
  for (const std::string& name : order) {
    Stack& stack = stacks.at(name);
    const std::int64_t blocks = (counts.at(stack.container) - alone[stack.container]) / cycle.length;
    if (static_cast<std::int64_t>(stack.parts.size()) != blocks) return DoesNotStack(name, stack, blocks);
    CROSSDOCK_ASSIGN_OR_RETURN(DialectTensor joined, Join(name, std::move(stack), form.axis));
    arranged.push_back(std::move(joined));
  }
  return arranged;
}

}  // namespace crossdock::dialects::maxtext
