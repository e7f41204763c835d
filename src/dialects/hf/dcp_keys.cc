// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/dcp_keys.h"

#include <algorithm>
#include <array>
#include <utility>

namespace crossdock::dialects::hf {
namespace {

constexpr std::array kWrappers = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
constexpr std::string_view kModel = "model.";

bool IsWrapper(std::string_view segment) { return std::ranges::find(kWrappers, segment) != kWrappers.end(); }

/// The place behind the first whole segment `word` and its dot, or npos.
std::size_t BehindSegment(std::string_view key, std::string_view word) {
  for (std::size_t at = 0; at < key.size();) {
    const std::size_t dot = key.find('.', at);
    if (dot == std::string_view::npos) return dot;
    if (key.substr(at, dot - at) == word) return dot + 1;
    at = dot + 1;
  }
  return std::string_view::npos;
}

}  // namespace

std::string WithoutWrappers(std::string_view key) {
  std::string out;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t dot = std::min(key.find('.', at), key.size());
    const std::string_view segment = key.substr(at, dot - at);
    if (!IsWrapper(segment)) {
      if (!out.empty()) out += '.';
      out += segment;
    }
    at = dot + 1;
  }
  return out;
}

NameIndex::NameIndex(const std::vector<std::string>& hub_names) {
  for (const std::string& name : hub_names) {
    full_.emplace(name, name);
    if (name.starts_with(kModel)) short_.emplace(name.substr(kModel.size()), name);
  }
}

std::optional<NamedKey> NameIndex::Find(std::string_view key, bool shortened) const {
  const std::string plain = WithoutWrappers(key);
  for (const auto* names : {&full_, &short_}) {
    if (names == &short_ && !shortened) break;
    for (std::size_t at = 0; at < plain.size();) {
      const auto found = names->find(plain.substr(at));
      if (found != names->end()) return NamedKey{plain.substr(0, at), found->second, names == &short_};
      const std::size_t dot = plain.find('.', at);
      if (dot == std::string::npos) break;
      at = dot + 1;
    }
  }
  return std::nullopt;
}

bool NameIndex::IsStateOfParameter(std::string_view key) const {
  const std::size_t name = BehindSegment(key, "state");
  const std::size_t last = key.rfind('.');
  return name != std::string_view::npos && last != std::string_view::npos && last > name && Find(key.substr(name, last - name), true).has_value();
}

std::optional<StateKey> ParseStateKey(std::string_view key) {
  constexpr std::pair<std::string_view, StateKind> kKinds[] = {
      {".exp_avg", StateKind::kMu}, {".exp_avg_sq", StateKind::kNu}, {".step", StateKind::kStep}, {".momentum_buffer", StateKind::kMomentum}};
  for (const auto& [ending, kind] : kKinds) {
    if (!key.ends_with(ending)) continue;
    const std::size_t name = BehindSegment(key, "state");
    if (name == std::string_view::npos || name + ending.size() >= key.size()) return std::nullopt;
    const std::string_view prefix = key.substr(0, name - std::string_view("state.").size());
    return StateKey{std::string(prefix), WithoutWrappers(key.substr(name, key.size() - name - ending.size())), kind};
  }
  return std::nullopt;
}

std::optional<GroupKey> ParseGroupKey(std::string_view key) {
  const std::size_t group = BehindSegment(key, "param_groups");
  const std::size_t field = key.rfind('.');
  if (group == std::string_view::npos || field == std::string_view::npos || field <= group) return std::nullopt;
  return GroupKey{std::string(key.substr(group, field - group)), std::string(key.substr(field + 1))};
}

}  // namespace crossdock::dialects::hf
