// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/infer_letters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/checked_math.h"
#include "family/row_syntax.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::int64_t kMaxLayers = 100'000;

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
    for (const family::Group& group : family_.groups) {
      CROSSDOCK_RETURN_IF_ERROR(CountLayers(group));
      for (const family::Row& row : group.rows) {
        CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t alternatives, family::GroupCount(row.hub));
        for (std::int64_t i = 0; i < alternatives; ++i) {
          std::map<std::string, std::int64_t> first;
          for (const auto& range : group.index) first[range.letter] = 0;
          const std::string name = family::FillIndices(group.hub_prefix + family::ExpandGroups(row.hub, i), first);
          const Shape* shape = shape_of_(name);
          if (shape == nullptr) continue;
          const std::vector<std::string> axes = family::SplitOutside(family::ExpandGroups(row.shape, i), ',');
          if (axes.size() != shape->size()) continue;  // told later, as a wrong shape
          for (std::size_t a = 0; a < axes.size(); ++a) {
            if (auto equation = MakeEquation(axes[a], (*shape)[a], name)) equations_.push_back(std::move(*equation));
          }
        }
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

  /// "l in 0..layers": the number of the first layer that is not there.
  Status CountLayers(const family::Group& group) {
    if (group.index.size() != 1 || group.index[0].first != "0" || group.rows.empty()) return OkStatus();
    const family::Group::IndexRange& range = group.index[0];
    if (!family_.letters.contains(range.last)) return OkStatus();
    std::int64_t count = 0;
    const auto has_layer = [&](std::int64_t layer) {
      return std::any_of(group.rows.begin(), group.rows.end(), [&](const family::Row& row) {
        return shape_of_(family::FillIndices(group.hub_prefix + family::ExpandGroups(row.hub, 0), {{range.letter, layer}})) != nullptr;
      });
    };
    while (count < kMaxLayers && has_layer(count)) ++count;
    if (count > 0) letters[range.last] = count;
    return OkStatus();
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
