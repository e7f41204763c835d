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

/// The tensors that one scanned tensor is made of, by their block and the place in it.
struct Stack {
  std::string container;
  std::map<std::pair<std::int64_t, std::int64_t>, DialectTensor> parts;
  std::int64_t blocks = 1;            ///< how many there must be
  std::int64_t within = 1;            ///< of how many layers each
  bool outer = true;                  ///< blocks lie along an axis
  bool inner = false;                 ///< so do the layers of one
};

Error DoesNotStack(const std::string& name, const Stack& stack) {
  return MakeError(ErrorCode::kUnsupported, "layers of different kinds cannot be scanned together")
      .WithTensor(name)
      .WithExpected(fmt::format("a part of each of the {} layers or blocks of {}", stack.blocks * stack.within, stack.container))
      .WithFound(fmt::format("{}", stack.parts.size()))
      .WithHint("--no-scan-layers writes each layer on its own");
}

/// Of the first layers, which are not scanned.
bool IsAlone(const DialectTensor& tensor, const Cycle& cycle) { return cycle.alone > 0 && tensor.first_layer && *tensor.first_layer < cycle.alone; }

/// `parts` along a new axis of `joined`, which has the shape of one of them.
Status StackUp(const std::vector<expr::Expr>& parts, int scan_axis, DialectTensor& joined) {
  const int axis = StackAxis(joined.shape, scan_axis);
  Result<expr::Expr> stacked = expr::Stack(parts, axis);
  if (!stacked) return std::move(std::move(stacked).error()).WithTensor(joined.name);
  joined.forward = *std::move(stacked);
  joined.shape = joined.forward->shape;
  joined.stack_axis = axis;
  if (joined.expert_axis >= axis) ++joined.expert_axis;
  return OkStatus();
}

Result<DialectTensor> Join(std::string name, Stack stack, int scan_axis) {
  DialectTensor joined = stack.parts.begin()->second;
  joined.name = std::move(name);
  joined.hub.clear();
  std::vector<std::vector<expr::Expr>> blocks;
  for (const auto& [at, part] : stack.parts) {
    if (blocks.empty() || static_cast<std::int64_t>(blocks.back().size()) == stack.within) blocks.emplace_back();
    blocks.back().push_back(part.forward);
    joined.hub.insert(joined.hub.end(), part.hub.begin(), part.hub.end());
  }
  const DialectTensor one = joined;
  std::vector<expr::Expr> parts;
  for (const std::vector<expr::Expr>& block : blocks) {
    if (stack.inner) {
      joined.shape = one.shape;
      joined.expert_axis = one.expert_axis;
      CROSSDOCK_RETURN_IF_ERROR(StackUp(block, scan_axis, joined));
      parts.push_back(joined.forward);
    } else {
      parts.push_back(block.front());
    }
  }
  if (stack.outer) CROSSDOCK_RETURN_IF_ERROR(StackUp(parts, scan_axis, joined));
  return joined;
}

/// Where a tensor of a scanned layer goes: the name of the array, and the stack that it is a part of; none where it lies by itself.
struct Placed {
  std::string name;
  std::optional<Stack> stack;
};
Placed Place(const LayerName& layer, std::int64_t number, std::int64_t count, const Cycle& cycle) {
  const std::int64_t blocks = count / cycle.length;
  const std::int64_t place = number % cycle.length;
  const bool left_over = number >= blocks * cycle.length;
  const std::string container = "decoder." + layer.container + (left_over ? "_remainder." : ".");
  if (cycle.local.empty()) {
    const std::string within = cycle.length == 1 ? "" : fmt::format("{}{}.", cycle.layer, place);
    if (left_over) return {container + within + layer.rest, std::nullopt};
    return {container + within + layer.rest, Stack{layer.container, {}, blocks}};
  }
  if (place + 1 == cycle.length) return {container + cycle.global + "." + layer.rest, Stack{layer.container, {}, blocks}};
  const std::int64_t locals = left_over ? count % cycle.length : cycle.length - 1;
  return {container + cycle.local + "." + layer.rest, Stack{layer.container, {}, left_over ? 1 : blocks, locals, !left_over, true}};
}

}  // namespace

Result<Cycle> CycleOf(const family::FamilyFile& family, const family::Model& model) {
  Cycle cycle;
  for (const auto& [key, text] : family.maxtext_flags) {
    if (key == "needs") continue;   // tree_binding.h
    if (const auto kind = model.kinds.find(text); key == "cycle" && kind != model.kinds.end()) {
      // Without a layer of this kind no block is whole.
      cycle.length = std::ranges::find(kind->second, true) - kind->second.begin() + 1;
      continue;
    }
    if (key == "cycle") {
      CROSSDOCK_ASSIGN_OR_RETURN(cycle.length, family::EvaluateInteger(text, model.letters));
      if (cycle.length >= 1) continue;
    } else if (key == "alone") {
      CROSSDOCK_ASSIGN_OR_RETURN(cycle.alone, family::EvaluateInteger(text, model.letters));
      if (cycle.alone >= 0) continue;
    } else if (key == "remainder" && (text == "true" || text == "false")) {
      cycle.remainder = text == "true";
      continue;
    } else if ((key == "layer" || key == "local" || key == "global") && !text.empty() && family.maxtext_flags.contains("local") == family.maxtext_flags.contains("global")) {
      (key == "layer" ? cycle.layer : key == "local" ? cycle.local : cycle.global) = text;
      continue;
    }
    return MakeError(ErrorCode::kUsage, fmt::format("[maxtext] of the family {} cannot be used", family.name))
        .WithPath(family.path)
        .WithExpected("cycle (a whole number of at least 1, or a kind of layers), needs (a condition), alone (a whole number), remainder (true or false), layer (a name), local and global (two names)")
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
    if (count % cycle.length != 0 && !cycle.remainder) {
      return MakeError(ErrorCode::kUnsupported, fmt::format("MaxText scans this model in blocks of {} layers, into which its {} layers do not divide", cycle.length, count))
          .WithHint("--no-scan-layers writes each layer on its own");
    }
    Placed placed = Place(*layer, number, count, cycle);
    if (!placed.stack) {
      tensor.name = std::move(placed.name);
      arranged.push_back(std::move(tensor));
      continue;
    }
    const auto [stack, fresh] = stacks.try_emplace(placed.name, *std::move(placed.stack));
    if (fresh) order.push_back(std::move(placed.name));
    stack->second.parts.emplace(std::pair(number / cycle.length, number % cycle.length), std::move(tensor));
  }
  for (const std::string& name : order) {
    Stack& stack = stacks.at(name);
    if (static_cast<std::int64_t>(stack.parts.size()) != stack.blocks * stack.within) return DoesNotStack(name, stack);
    CROSSDOCK_ASSIGN_OR_RETURN(DialectTensor joined, Join(name, std::move(stack), form.axis));
    arranged.push_back(std::move(joined));
  }
  return arranged;
}

}  // namespace crossdock::dialects::maxtext
