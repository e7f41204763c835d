// SPDX-License-Identifier: Apache-2.0
#include "convert/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <unordered_map>

#include "base/digits.h"
#include "convert/kinds.h"
#include "dialects/hf/dcp_keys.h"
#include "dialects/maxtext/state_tree.h"
#include "dialects/maxtext/tree_binding.h"
#include "dialects/mcore/keys.h"
#include "family/bind.h"
#include "family/builtin_files.h"
#include "family/row_syntax.h"

namespace crossdock::convert {
namespace {

/// The rule file's text at `line`, without what leads it.
std::string_view LineOf(std::string_view text, int line) {
  for (int i = 1; i < line && !text.empty(); ++i) text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  text = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

/// True when the row at `line` of `text` is the one for a hub name: lines are counted a file, and files include others.
bool IsRowOf(std::string_view text, int line, std::string_view hub_name) {
  std::string_view row = LineOf(text, line);
  if (!row.starts_with("[\"")) return false;
  row = row.substr(2, row.find('"', 2) - 2);
  row = row.substr(0, row.find(' '));  // "lm_head.weight ? untied"
  const Result<std::int64_t> names = family::GroupCount(row);
  for (std::int64_t at = 0; names && at < *names; ++at) {
    if (hub_name.ends_with(family::ExpandGroups(row, at))) return true;
  }
  return false;
}

/// "dense.toml:23": the family's own file, or the built-in one that it includes.
std::string RuleText(const family::FamilyFile& family, int line, std::string_view hub_name) {
  const std::size_t colon = family.path.find(':');
  const std::string own = family.path.starts_with("builtin:") ? family.path.substr(colon + 1) : family.path;
  if (IsRowOf(family.text, line, hub_name)) return fmt::format("{}:{}", own, line);
  for (const family::BuiltinFile& file : family::BuiltinFiles()) {
    if (IsRowOf(file.text, line, hub_name)) return fmt::format("{}:{}", file.name, line);
  }
  return fmt::format("{}:{}", own, line);
}

/// A weight of two axes is [out, in] in both dialects; the layer axis of a stack comes first.
std::vector<std::string> AxisNames(std::size_t rank, int stack_axis, bool embedding) {
  std::vector<std::string> names;
  const std::size_t own = rank - (stack_axis >= 0 ? 1U : 0U);
  if (own == 2) names = embedding ? std::vector<std::string>{"vocabulary", "hidden"} : std::vector<std::string>{"out", "in"};
  if (own == 1) names = {"out"};
  while (names.size() < own) names.push_back(fmt::format("axis {}", names.size()));
  if (stack_axis >= 0) names.insert(names.begin() + stack_axis, "layer");
  return names;
}

bool IsVocabulary(std::string_view name) {
  return name.find("embed") != std::string_view::npos || name.find("lm_head") != std::string_view::npos ||
         name.find("output_layer") != std::string_view::npos;
}

/// Where the digits of a name's first number stand that is a whole dotted part; npos when there is none.
std::pair<std::size_t, std::size_t> NumberPart(std::string_view name) {
  std::size_t at = 0;
  while (at < name.size()) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    const bool digits = part.size() < 9 && OnlyDigits(part);
    if (digits) return {at, end};
    at = end + 1;
  }
  return {std::string_view::npos, 0};
}

/// A name around its first number.
struct Pattern {
  std::string_view before;
  std::string_view after;
  bool numbered = false;
  bool operator==(const Pattern&) const = default;
};

struct PatternHash {
  std::size_t operator()(const Pattern& pattern) const {
    const std::hash<std::string_view> hash;
    return hash(pattern.before) * 31 + hash(pattern.after);
  }
};

/// `numbers` ascend, each once.
std::string Ranges(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const std::int64_t first = *it;
    std::int64_t last = first;
    for (++it; it != numbers.end() && *it == last + 1; ++it) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", first == last ? fmt::format("{}", first) : fmt::format("{}..{}", first, last));
  }
  return out;
}

}  // namespace

std::string_view WithoutSlot(std::string_view name) {
  if (name.starts_with("param/")) return name.substr(6);
  if (name.starts_with("optim/")) {
    const std::size_t slash = name.find('/', 6);
    if (slash != std::string_view::npos) return name.substr(slash + 1);
  }
  const dialects::mcore::TensorKey key = dialects::mcore::ParseTensorKey(name);
  if (key.kind == dialects::mcore::TensorKey::Kind::kState) return name.substr(name.size() - key.model_key.size());
  return name;
}

RuleBook RuleBook::Make(const dialects::HubState& hub, formats::Kind kind) {
  RuleBook book;
  book.nested_ = kind == formats::Kind::kDcp;
  if (hub.family == nullptr) return book;
  const auto bind = [&](const std::string& dialect, bool stacked, bool split) {
    family::BindOptions options;
    options.dialect = dialect;
    options.stacked_layers = stacked;
    options.split_gate_up = split;
    // Only names are wanted: any size that is large enough serves.
    options.padded_vocab = std::int64_t{1} << 40U;
    return family::Bind(*hub.family, hub.model, options);
  };
  if (formats::IsOrbax(kind)) {
    book.AddMaxText(*hub.family, hub.model);
    return book;
  }
  if (!IsMegatron(kind)) {
    const Result<family::Binding> binding = bind("hf", false, false);
    if (!binding) return book;
    for (const family::HubTensor& t : binding->hub) {
      book.Add(t.name, {{t.name}, RuleText(*hub.family, t.row_line, t.name), AxisNames(t.shape.size(), -1, IsVocabulary(t.name))});
    }
    return book;
  }
  for (const bool stacked : {true, false}) {
    for (const bool split : {false, true}) {
      const Result<family::Binding> binding = bind("mcore", stacked, split);
      if (!binding) continue;
      for (const family::DialectTensor& t : binding->tensors) {
        RuleOf rule;
        for (std::int32_t i : t.hub) rule.hub.push_back(family::HubNameOf(*binding, i));
        rule.rule = RuleText(*hub.family, t.row_line, rule.hub.empty() ? t.name : rule.hub.front());
        rule.axes = AxisNames(t.shape.size(), t.stack_axis, IsVocabulary(t.name));
        book.Add(t.name, std::move(rule));
      }
    }
  }
  return book;
}

/// Scanned and by number, of which a tree has one; the axes of its kernels are not told.
void RuleBook::AddMaxText(const family::FamilyFile& family, const family::Model& model) {
  tree_ = true;
  for (const bool scanned : {true, false}) {
    const Result<dialects::maxtext::TreeBinding> binding = dialects::maxtext::BindTree(family, model, {scanned, 1});
    if (!binding) continue;
    for (const std::vector<family::DialectTensor>* tensors : {&binding->tensors, &binding->biases}) {
      for (const family::DialectTensor& t : *tensors) {
        RuleOf rule;
        for (std::int32_t i : t.hub) rule.hub.push_back(family::HubNameOf(binding->numbered, i));
        rule.rule = RuleText(family, t.row_line, rule.hub.empty() ? t.name : rule.hub.front());
        Add(t.name, std::move(rule));
      }
    }
  }
}

const RuleOf* RuleBook::Find(std::string_view name) const {
  if (tree_) {
    const auto leaf = rules_.find(dialects::maxtext::ParseTreeKey(name).name);
    return leaf == rules_.end() ? nullptr : &leaf->second;
  }
  const auto it = rules_.find(WithoutSlot(name));
  if (it != rules_.end()) return &it->second;
  if (!nested_) return nullptr;
  const auto state = dialects::hf::ParseStateKey(name);
  const std::string plain = state ? state->name : dialects::hf::WithoutWrappers(name);
  for (std::size_t at = 0; at != std::string::npos && at < plain.size();) {
    const auto found = rules_.find(std::string_view(plain).substr(at));
    if (found != rules_.end()) return &found->second;
    at = plain.find('.', at);
    if (at != std::string::npos) ++at;
  }
  return nullptr;
}

std::vector<std::string> FoldNames(const std::vector<std::string_view>& names) {
  std::unordered_map<Pattern, std::vector<std::int64_t>, PatternHash> numbers;
  std::vector<decltype(numbers)::value_type*> order;  // nodes of a map stay where they are
  for (const std::string_view name : names) {
    const auto [first, end] = NumberPart(name);
    const bool numbered = first != std::string_view::npos;
    const auto [place, fresh] = numbers.try_emplace(numbered ? Pattern{name.substr(0, first), name.substr(end), true} : Pattern{name, {}, false});
    if (fresh) order.push_back(&*place);
    if (!numbered) continue;
    std::int64_t number = 0;
    std::from_chars(name.data() + first, name.data() + end, number);
    place->second.push_back(number);
  }
  std::vector<std::string> out;
  for (auto* const folded : order) {
    const Pattern& of = folded->first;
    std::vector<std::int64_t>& seen = folded->second;
    if (!of.numbered) {
      out.emplace_back(of.before);
      continue;
    }
    std::ranges::sort(seen);
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    const std::string range = seen.size() == 1 ? fmt::format("{}", seen.front()) : fmt::format("{{{}}}", Ranges(seen));
    out.push_back(fmt::format("{}{}{}", of.before, range, of.after));
  }
  return out;
}

}  // namespace crossdock::convert
