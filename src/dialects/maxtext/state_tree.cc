// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/state_tree.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/digits.h"

namespace crossdock::dialects::maxtext {
namespace {

/// Takes the part before the next dot off a name.
std::string_view TakePart(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('.'), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

bool IsRandom(std::string_view name) {
  for (std::string_view rest = name; !rest.empty();) {
    const std::string_view part = TakePart(rest);
    if (part == "rngs" || part == "dropout") return true;
  }
  return false;
}

TreeKey ParseState(std::string_view rest) {
  TreeKey key;
  std::string_view level;  // the last number passed
  bool outermost = true;
  while (!rest.empty()) {
    const std::string_view part = TakePart(rest);
    if (OnlyDigits(part)) {
      level = part;
    } else if (part == "inner_states") {
      key.muon = TakePart(rest) == "muon";
      level = {};
    } else if (part == "mu" || part == "nu") {
      if (rest.starts_with("params.")) rest.remove_prefix(7);
      if (rest.empty() || (key.muon && part == "nu")) return key;
      key.kind = TreeKey::Kind::kState;
      key.slot = part == "nu" ? Slot::kAdamNu : key.muon ? Slot::kMuonMu : Slot::kAdamMu;
      key.name = std::string(rest);
      return key;
    } else if (part == "count" && rest.empty()) {
      key.kind = TreeKey::Kind::kCount;
      key.schedule = !level.empty() && level != "0";
      key.wrapper = outermost;
      return key;
    } else if (part == "ns_coeffs" && rest.empty()) {
      key.kind = TreeKey::Kind::kCoefficients;
      return key;
    } else if (part != "inner_state") {
      return key;
    }
    outermost = false;
  }
  return key;
}

/// A level of an optax chain: an index of a list, or NNX's number as a dict key.
Value Level(const StateForm& form, int number) {
  if (form.kind == OptimizerKind::kMuon && !form.linen) return {std::to_string(number)};
  return {number};
}

KeyPath GroupPath(const StateForm& form, bool muon) {
  KeyPath path = {Value("opt_state")};
  if (form.kind == OptimizerKind::kMuon) {
    for (const char* part : {"inner_states", muon ? "muon" : "adam", "inner_state"}) path.emplace_back(part);
  }
  return path;
}

KeyPath With(KeyPath path, Value last) {
  path.push_back(std::move(last));
  return path;
}

}  // namespace

std::string ArrayName(const KeyPath& path) {
  std::string name;
  for (const Value& part : path) {
    if (!name.empty()) name += '.';
    name += part.as_int() != nullptr ? std::to_string(*part.as_int()) : *part.as_string();
  }
  return name;
}

KeyPath PathTo(KeyPath prefix, std::string_view name) {
  while (!name.empty()) prefix.emplace_back(std::string(TakePart(name)));
  return prefix;
}

KeyPath StatePath(const StateForm& form, Slot slot, std::string_view name) {
  CROSSDOCK_CHECK(slot == Slot::kAdamMu || slot == Slot::kAdamNu || slot == Slot::kMuonMu);
  KeyPath path = GroupPath(form, slot == Slot::kMuonMu);
  if (form.kind != OptimizerKind::kAdamPax) path.push_back(Level(form, 0));
  path.emplace_back(slot == Slot::kAdamNu ? "nu" : "mu");
  if (form.kind != OptimizerKind::kMuon || form.linen) path.emplace_back("params");
  return PathTo(std::move(path), name);
}

CounterPaths CountersOf(const StateForm& form, bool muon) {
  const KeyPath group = GroupPath(form, muon);
  if (form.kind == OptimizerKind::kAdamPax) return {With(group, Value("count")), {}};
  return {With(With(group, Level(form, 0)), Value("count")), With(With(group, Level(form, muon ? 3 : 2)), Value("count"))};
}

std::vector<KeyPath> EmptyStates(const StateForm& form) {
  if (form.kind == OptimizerKind::kAdamW) return {With(GroupPath(form, false), Value(1))};
  if (form.kind != OptimizerKind::kMuon || !form.linen) return {};
  return {With(GroupPath(form, false), Value(1)), With(GroupPath(form, true), Value(1)), With(GroupPath(form, true), Value(2))};
}

KeyPath CoefficientsPath(const StateForm& form) { return With(With(GroupPath(form, true), Level(form, 0)), Value("ns_coeffs")); }

TreeKey ParseTreeKey(std::string_view name) {
  std::string_view rest = name;
  const std::string_view top = TakePart(rest);
  TreeKey key;
  if (top == "step" && rest.empty()) {
    key.kind = TreeKey::Kind::kStep;
  } else if (top == "opt_state") {
    key = ParseState(rest);
  } else if (top == "params") {
    std::string_view below = rest;
    const std::string_view collection = TakePart(below);
    if (collection == "params" && !below.empty()) {
      key.kind = TreeKey::Kind::kParam;
      key.name = std::string(below);
    } else if (collection == "MoEBiasVar" && !below.empty()) {
      key.kind = TreeKey::Kind::kVariable;
      key.name = std::string(below);
    }
  } else if (top == "nnx_aux") {
    std::string_view below = rest;
    key.kind = IsRandom(rest) ? TreeKey::Kind::kRandom : TakePart(below) == "model" && !below.empty() ? TreeKey::Kind::kVariable : TreeKey::Kind::kOther;
    key.name = std::string(key.kind == TreeKey::Kind::kVariable ? below : rest);
  }
  return key;
}

}  // namespace crossdock::dialects::maxtext
