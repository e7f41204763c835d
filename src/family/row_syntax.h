// SPDX-License-Identifier: Apache-2.0
/// \file  The small syntax inside a row of a family file: {a,b} groups, {l} indices, "name : op, op", "? word".
/// See families/SCHEMA.md. Errors: kUsage without a place; the caller adds file and line.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "family/family_file.h"

namespace crossdock::family {

/// How many parallel names a pattern stands for: the size of its {a,b} groups, 1 without any.
/// kUsage when groups differ in size or a brace is open.
[[nodiscard]] Result<std::int64_t> GroupCount(std::string_view pattern);
/// The `at`-th of them: every group replaced by its `at`-th member. {l} stays. REQUIRES: GroupCount succeeded.
[[nodiscard]] std::string ExpandGroups(std::string_view pattern, std::int64_t at);
/// A pattern with {l} and {layers+i} placeholders, taken apart once to be filled for many layers and experts. REQUIRES: balanced braces.
class IndexPattern {
 public:
  explicit IndexPattern(std::string_view pattern);
  /// As FillIndices.
  [[nodiscard]] std::string Fill(const std::map<std::string, std::int64_t>& indices, const std::map<std::string, std::int64_t>& letters) const;

 private:
  struct Piece {
    std::string before;        ///< text before the placeholder
    std::string placeholder;   ///< without its braces
  };
  std::vector<Piece> pieces_;
  std::string rest_;
};
/// {l} replaced by its number, {layers+i} by what the formula over indices and letters gives; a name that is neither stays.
/// REQUIRES: balanced braces.
[[nodiscard]] std::string FillIndices(std::string_view pattern, const std::map<std::string, std::int64_t>& indices,
                                      const std::map<std::string, std::int64_t>& letters = {});
/// The names in {l} and {layers+i} placeholders of a pattern, letters included.
[[nodiscard]] std::vector<std::string> IndicesOf(std::string_view pattern);

/// Splits at `separator` outside of braces and parentheses, and trims.
[[nodiscard]] std::vector<std::string> SplitOutside(std::string_view text, char separator);
[[nodiscard]] std::string Trim(std::string_view text);

/// "name : op, op" or "name : {op, op|op}" with `targets` names. The table of operations is in rule_ops.h.
[[nodiscard]] Result<RowTarget> ParseTarget(std::string_view column, std::int64_t sources);
/// "l in 0..layers if moe, e in 0..experts".
[[nodiscard]] Result<std::vector<Group::IndexRange>> ParseIndex(std::string_view text);

}  // namespace crossdock::family
