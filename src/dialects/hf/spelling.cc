// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "family/row_syntax.h"

namespace crossdock::dialects::hf {
namespace {

/// One way to spell the model, and how much of it is there.
struct Candidate {
  Spellings spellings;
  family::Binding binding;
  std::int64_t named = 0, fitting = 0;

  [[nodiscard]] bool Whole() const { return fitting == static_cast<std::int64_t>(binding.tensors.size()); }
};

std::string Spelled(const Spellings& spellings) {
  std::string out;
  for (const std::string& name : spellings) out += fmt::format("{}`{}`", out.empty() ? "" : " with ", name);
  return out.empty() ? "the released form" : out;
}

/// Every choice of at most one set of prefixes and one set of rows, the released form first.
std::vector<Spellings> Choices(const family::FamilyFile& family) {
  std::vector<Spellings> prefixes = {{}};
  std::vector<Spellings> choices;
  for (const auto& [name, spelling] : family.spellings) {
    if (spelling.rows.empty()) prefixes.push_back({name});
  }
  for (const Spellings& prefix : prefixes) {
    choices.push_back(prefix);
    for (const auto& [name, spelling] : family.spellings) {
      if (spelling.rows.empty()) continue;
      choices.push_back(prefix);
      choices.back().push_back(name);
    }
  }
  return choices;
}

Result<family::Binding> BindTo(const family::FamilyFile& family, const family::Model& model, const Spellings& spellings) {
  family::BindOptions options;
  options.dialect = "hf";
  options.spellings = spellings;
  return family::Bind(family, model, options);
}

bool SameNames(const family::Binding& a, const family::Binding& b) {
  return std::ranges::equal(a.tensors, b.tensors, {}, &family::DialectTensor::name, &family::DialectTensor::name);
}

bool SameForms(const family::Binding& a, const family::Binding& b) {
  return SameNames(a, b) && std::ranges::equal(a.tensors, b.tensors, [](const auto& x, const auto& y) { return x.shape == y.shape && expr::Describe(x.forward) == expr::Describe(y.forward); });
}

/// All spellings that differ, with how many of their tensors are there by name and how many of these fit by shape.
Result<std::vector<Candidate>> CandidatesOf(const family::FamilyFile& family, const family::Model& model, const std::function<bool(const std::string&)>& is_there,
                                            const ShapeLookup& shape_of) {
  std::vector<Candidate> candidates;
  for (Spellings& spellings : Choices(family)) {
    Candidate one{std::move(spellings), {}};
    CROSSDOCK_ASSIGN_OR_RETURN(one.binding, BindTo(family, model, one.spellings));
    if (std::ranges::any_of(candidates, [&](const Candidate& other) { return SameForms(other.binding, one.binding); })) continue;
    for (const family::DialectTensor& tensor : one.binding.tensors) {
      if (!is_there(tensor.name)) continue;
      ++one.named;
      const Shape* shape = shape_of(tensor.name);
      if (shape != nullptr && *shape == tensor.shape) ++one.fitting;
    }
    candidates.push_back(std::move(one));
  }
  return candidates;
}

/// Names count before shapes.
bool Farther(const Candidate& a, const Candidate& b) { return std::tie(a.named, a.fitting) < std::tie(b.named, b.fitting); }

Error Ambiguous(const Candidate& a, const Candidate& b, const std::string& where) {
  std::string tensor;
  for (std::size_t i = 0; i < a.binding.tensors.size() && tensor.empty(); ++i) {
    if (expr::Describe(a.binding.tensors[i].forward) != expr::Describe(b.binding.tensors[i].forward)) tensor = a.binding.tensors[i].name;
  }
  return MakeError(ErrorCode::kUnsupported, "two spellings of the family explain the same tensors")
      .WithPath(where)
      .WithTensor(tensor)
      .WithExpected("names or shapes that tell them apart")
      .WithFound(fmt::format("{} and {}, which differ in the order of values only", Spelled(a.spellings), Spelled(b.spellings)))
      .WithHint("`--rules FILE` with a copy of the family's file (families/NAME.toml of the sources) that keeps the one that holds");
}

}  // namespace

Result<Spellings> FindSpelling(const family::FamilyFile& family, const family::Model& model, const ShapeLookup& shape_of, const std::string& where) {
  if (family.spellings.empty()) return Spellings();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, CandidatesOf(family, model, [&](const std::string& name) { return shape_of(name) != nullptr; }, shape_of));
  const auto whole = [](const Candidate& one) { return one.Whole(); };
  const auto first = std::ranges::find_if(candidates, whole);
  if (first != candidates.end()) {
    const auto second = std::find_if(first + 1, candidates.end(), [&](const Candidate& one) { return one.Whole() && SameNames(one.binding, first->binding); });
    if (second != candidates.end()) return Ambiguous(*first, *second, where);
    return first->spellings;
  }
  // What is missing is told by names, what does not fit by shapes: the nearest spelling gives the shortest list.
  const auto best = std::ranges::max_element(candidates, Farther);
  return best->spellings;
}

Result<Spellings> SpellingOfNames(const family::FamilyFile& family, const family::Model& model, const std::vector<std::string>& names,
                                  const ShapeLookup& shape_of, const std::string& where) {
  Spellings released;
  if (!family.released.empty()) released.push_back(family.released);
  if (family.spellings.empty() || names.empty()) return released;
  const std::set<std::string_view> known(names.begin(), names.end());
  const auto is_known = [&](const std::string& name) { return known.contains(name); };
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, CandidatesOf(family, model, is_known, shape_of));
  const auto best = std::ranges::max_element(candidates, Farther);
  if (best->named == 0) return released;
  for (const Candidate& other : candidates) {
    const bool equal = &other != &*best && other.named == best->named && other.fitting == best->fitting;
    if (equal && SameNames(other.binding, best->binding)) return Ambiguous(*best, other, where);
  }
  return best->spellings;
}

Result<Spellings> WithExperts(const family::FamilyFile& family, const std::string& experts, Spellings found) {
  std::erase_if(found, [&](const std::string& name) { return !family.spellings.at(name).rows.empty(); });
  const auto by_expert = [](const family::Group& group) {
    return std::ranges::any_of(group.index, [](const family::Group::IndexRange& range) { return range.letter == "e"; });
  };
  const bool single = std::ranges::any_of(family.groups, by_expert);
  if (family.letters.contains("experts") && experts == (single ? "single" : "fused")) return found;
  const auto spelling = family.spellings.find(experts);
  if (spelling != family.spellings.end() && !spelling->second.rows.empty()) {
    found.push_back(experts);
    return found;
  }
  std::string known;
  if (family.letters.contains("experts")) known = single ? "`single`" : "`fused`";
  for (const auto& [name, one] : family.spellings) {
    if (!one.rows.empty()) known += fmt::format("{}`{}`", known.empty() ? "" : ", ", name);
  }
  return MakeError(ErrorCode::kUsage, fmt::format("the family {} knows no such form of its experts", family.name))
      .WithExpected(known.empty() ? "no `--experts`: the family has none" : "one of " + known)
      .WithFound(fmt::format("`--experts {}`", Printable(experts)));
}

Result<std::vector<std::string>> NamesOfAllSpellings(const family::FamilyFile& family, const family::Model& model) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Spellings& spellings : Choices(family)) {
    CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding binding, BindTo(family, model, spellings));
    const auto add = [&](std::string name) {
      if (seen.insert(name).second) names.push_back(std::move(name));
    };
    for (const family::DialectTensor& tensor : binding.tensors) add(tensor.name);
    for (const family::HubCopy& copy : binding.copies) add(family::SpelledName(family, spellings, copy.name));
  }
  return names;
}

Result<std::vector<SpelledTensor>> Spell(const HubState& hub, const Spellings& spellings) {
  std::vector<SpelledTensor> out;
  if (spellings.empty()) {
    for (const HubTensor& tensor : hub.tensors) out.push_back({tensor, tensor.name});
    return out;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding binding, BindTo(*hub.family, hub.model, spellings));
  std::map<std::pair<std::string_view, Slot>, const HubTensor*> known;
  for (const HubTensor& tensor : hub.tensors) known[{tensor.name, tensor.slot}] = &tensor;
  for (const family::DialectTensor& spelled : binding.tensors) {
    for (const Slot slot : kAllSlots) {
      std::map<int, const HubTensor*> parts;
      std::string missing;
      for (const std::int32_t ordinal : spelled.hub) {
        const std::string& name = binding.hub[static_cast<std::size_t>(ordinal)].name;
        const auto part = known.find({name, slot});
        if (part == known.end()) missing = name;
        else parts[ordinal] = part->second;
      }
      if (parts.empty()) continue;
      if (!missing.empty()) {
        return MakeError(ErrorCode::kIncomplete, fmt::format("a tensor of several parts lacks one of them ({})", SlotName(slot))).WithTensor(missing)
            .WithExpected("a part of " + spelled.name);
      }
      const HubTensor& first = *parts.begin()->second;
      DType dtype = first.dtype;
      for (const auto& [ordinal, part] : parts) {
        if (part->dtype != dtype) dtype = DType::kF32;
      }
      CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr forward, expr::ForSlot(spelled.forward, slot));
      CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr made, expr::Substitute(forward, [&](int ordinal) { return expr::Cast(parts.at(ordinal)->expr, dtype); }));
      out.push_back({{spelled.name, slot, dtype, spelled.shape, expr::Simplify(made)}, first.name});
    }
  }
  std::ranges::sort(out, [](const SpelledTensor& a, const SpelledTensor& b) { return std::tie(a.tensor.name, a.tensor.slot) < std::tie(b.tensor.name, b.tensor.slot); });
  return out;
}

}  // namespace crossdock::dialects::hf
