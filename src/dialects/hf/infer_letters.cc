// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/infer_letters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "base/checked_math.h"
#include "family/row_syntax.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::int64_t kMaxLayers = 100'000;
constexpr std::int64_t kMaxIndex = 16'384;  ///< as family/bind.cc has it
constexpr const char* kLayersLetter = "layers";

/// "q*d" = 24: a product of letters and numbers with a known value.
struct Equation {
  std::vector<std::string> letters;
  std::int64_t value = 0;
  std::string tensor;
};

std::optional<Equation> MakeEquation(const std::string& axis, std::int64_t value, const std::string& tensor) {
  Equation out{{}, value, tensor};
  for (const std::string& part : family::SplitOutside(axis, '*')) {
    const std::string word = family::Trim(part);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc{} && end == word.data() + word.size()) {
      if (number <= 0 || out.value % number != 0) return std::nullopt;
      out.value /= number;
    } else if (word.find_first_of("+-/() ") != std::string::npos || word.empty()) {
      return std::nullopt;  // sums are left to the letters' other rows
    } else {
      out.letters.push_back(word);
    }
  }
  return out;
}

class Solver {
 public:
  Solver(const family::FamilyFile& family, const ShapeLookup& shape_of) : family_(family), shape_of_(shape_of) {}

  Status Collect() {
    CountLayers();
    for (const family::Group& group : family_.groups) CountIndices(group);
    for (const family::Group& group : family_.groups) {
      const auto tuples = Tuples(group);
      for (const family::Row& row : group.rows) {
        CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t alternatives, family::GroupCount(row.hub));
        for (std::int64_t i = 0; i < alternatives; ++i) AddRow(group, row, i, tuples);
      }
    }
    return OkStatus();
  }

  /// Solves what has one unknown, again and again.
  Status Solve() {
    for (bool progress = true; progress;) {
      progress = false;
      for (const Equation& equation : equations_) {
        std::int64_t rest = equation.value;
        std::string open;
        bool solvable = true;
        for (const std::string& letter : equation.letters) {
          const auto known = letters.find(letter);
          if (known == letters.end()) {
            solvable = solvable && open.empty();
            open = letter;
          } else if (known->second == 0 || rest % known->second != 0) {
            return Contradiction(equation, letter, known->second);
          } else {
            rest /= known->second;
          }
        }
        if (!solvable || open.empty()) continue;
        letters[open] = rest;
        progress = true;
      }
    }
    return OkStatus();
  }

  family::Letters letters;

 private:
  Error Contradiction(const Equation& equation, const std::string& letter, std::int64_t value) const {
    return MakeError(ErrorCode::kCorrupt, "the shapes of the tensors do not fit each other")
        .WithTensor(equation.tensor)
        .WithExpected(fmt::format("a multiple of {} (the family's letter {})", value, letter))
        .WithFound(std::to_string(equation.value));
  }

  using Indices = std::map<std::string, std::int64_t>;

  const Shape* ShapeOf(const family::Group& group, const family::Row& row, std::int64_t alternative, const Indices& indices) const {
    return shape_of_(family::FillIndices(group.hub_prefix + family::ExpandGroups(row.hub, alternative), indices, letters));
  }

  bool HasAny(const family::Group& group, const Indices& indices) const {
    return std::any_of(group.rows.begin(), group.rows.end(), [&](const family::Row& row) { return ShapeOf(group, row, 0, indices) != nullptr; });
  }

  /// A group that counts one letter from 0, layers of one kind or of all.
  static bool CountsLayers(const family::Group& group) {
    return group.index.size() == 1 && group.index[0].letter == "l" && group.index[0].first == "0" && group.index[0].last == kLayersLetter;
  }

  /// The number of the first layer that is not there. Layers behind the decoder's (multi-token prediction) look like one of them but
  /// for tensors of their own, by which they are told.
  void CountLayers() {
    if (!family_.letters.contains(kLayersLetter)) return;
    std::set<std::string> shared;
    for (const family::Group& group : family_.groups) {
      if (!CountsLayers(group)) continue;
      for (const family::Row& row : group.rows) shared.insert(row.hub);
    }
    const auto has_layer = [&](std::int64_t layer) {
      return std::any_of(family_.groups.begin(), family_.groups.end(), [&](const family::Group& group) { return CountsLayers(group) && HasAny(group, {{"l", layer}}); });
    };
    const auto is_behind = [&](std::int64_t layer) {
      return std::any_of(family_.groups.begin(), family_.groups.end(), [&](const family::Group& group) {
        if (group.index.size() != 1 || group.index[0].letter == "l") return false;
        return std::any_of(group.rows.begin(), group.rows.end(), [&](const family::Row& row) {
          const std::string pattern = group.hub_prefix + family::ExpandGroups(row.hub, 0);
          if (shared.contains(row.hub) || pattern.find("{" + std::string(kLayersLetter) + "+") == std::string::npos) return false;
          return shape_of_(family::FillIndices(pattern, {{group.index[0].letter, 0}}, {{kLayersLetter, layer}})) != nullptr;
        });
      });
    };
    std::int64_t count = 0;
    while (count < kMaxLayers && has_layer(count) && !is_behind(count)) ++count;
    if (count > 0) letters[kLayersLetter] = count;
  }

  /// What the other indices of a group count to, at the first layer that has it: "e in 0..experts", "i in 0..mtp".
  void CountIndices(const family::Group& group) {
    for (const family::Group::IndexRange& range : group.index) {
      if (range.letter == "l" || range.first != "0" || !family_.letters.contains(range.last) || letters.contains(range.last)) continue;
      for (Indices at : Tuples(group)) {
        std::int64_t count = 0;
        const auto there = [&](std::int64_t number) { return at[range.letter] = number, HasAny(group, at); };
        while (count < kMaxIndex && there(count)) ++count;
        if (count == 0) continue;
        letters[range.last] = count;
        break;
      }
      if (!letters.contains(range.last) && family_.letters.at(range.last).fallback == "0" && letters.contains(kLayersLetter)) letters[range.last] = 0;
    }
  }

  /// Index tuples at which a group may have a tensor: every layer, the first of all else.
  std::vector<Indices> Tuples(const family::Group& group) const {
    Indices first;
    bool layers = false;
    for (const family::Group::IndexRange& range : group.index) {
      first[range.letter] = 0;
      layers = layers || range.letter == "l";
    }
    std::vector<Indices> tuples;
    const auto count = letters.find(kLayersLetter);
    for (std::int64_t layer = 0; layer < (layers && count != letters.end() ? count->second : 1); ++layer) {
      tuples.push_back(first);
      if (layers) tuples.back()["l"] = layer;
    }
    return tuples;
  }

  /// The equations of one tensor of a row, at the first index tuple where it is.
  void AddRow(const family::Group& group, const family::Row& row, std::int64_t alternative, const std::vector<Indices>& tuples) {
    for (const Indices& indices : tuples) {
      const Shape* shape = ShapeOf(group, row, alternative, indices);
      if (shape == nullptr) continue;
      const std::string name = family::FillIndices(group.hub_prefix + family::ExpandGroups(row.hub, alternative), indices, letters);
      const std::vector<std::string> axes = family::SplitOutside(family::ExpandGroups(row.shape, alternative), ',');
      if (axes.size() != shape->size()) return;  // told later, as a wrong shape
      for (std::size_t a = 0; a < axes.size(); ++a) {
        if (auto equation = MakeEquation(axes[a], (*shape)[a], name)) equations_.push_back(std::move(*equation));
      }
      return;
    }
  }

  const family::FamilyFile& family_;
  const ShapeLookup& shape_of_;
  std::vector<Equation> equations_;
};

}  // namespace

Result<family::Letters> InferLetters(const family::FamilyFile& family, const family::Letters& of_template,
                                     const ShapeLookup& shape_of) {
  Solver solver(family, shape_of);
  CROSSDOCK_RETURN_IF_ERROR(solver.Collect());
  CROSSDOCK_RETURN_IF_ERROR(solver.Solve());
  // Head size before head count: it is the one that stays within a family.
  std::vector<std::string> open = {"d"};
  for (const auto& [letter, value] : of_template) open.push_back(letter);
  for (const std::string& letter : open) {
    const auto known = of_template.find(letter);
    if (solver.letters.contains(letter) || known == of_template.end()) continue;
    solver.letters[letter] = known->second;
    CROSSDOCK_RETURN_IF_ERROR(solver.Solve());
  }
  return std::move(solver.letters);
}

}  // namespace crossdock::dialects::hf
