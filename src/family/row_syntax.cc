// SPDX-License-Identifier: Apache-2.0
#include "family/row_syntax.h"

#include <optional>

#include "family/formula.h"
#include "family/rule_ops.h"
#include "fmt/format.h"

namespace crossdock::family {
namespace {

/// Calls `see(group text, position, end)` for each brace group; false when braces do not balance.
template <typename See>
bool ForEachGroup(std::string_view pattern, See see) {
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == '}') return false;
    if (pattern[at] != '{') continue;
    const std::size_t end = pattern.find('}', at);
    if (end == std::string_view::npos || pattern.substr(at + 1, end - at - 1).find('{') != std::string_view::npos) return false;
    see(pattern.substr(at + 1, end - at - 1), at, end + 1);
    at = end;
  }
  return true;
}

std::vector<std::string> Members(std::string_view group) { return SplitOutside(group, ','); }

Error Bad(std::string what) { return MakeError(ErrorCode::kUsage, std::move(what)); }

Result<std::vector<std::string>> ParseOps(std::string_view text, std::int64_t sources, bool joined) {
  std::vector<std::string> ops = SplitOutside(text, ',');
  bool first = true;
  for (const std::string& op : ops) {
    CROSSDOCK_ASSIGN_OR_RETURN(const OpInfo info, FindOp(op));
    if (info.joins != 0 && (!first || !joined)) return Bad(fmt::format("\"{}\" joins tensors: it must be the first operation of a row with one target", op));
    if (info.joins != 0 && info.joins != sources) {
      return Bad(fmt::format("\"{}\" joins {} tensors, the row has {}", op, info.joins, sources));
    }
    if (info.splits != 0 && !first) return Bad(fmt::format("\"{}\" splits a tensor: it must be the first operation of a row", op));
    if (joined && first && info.joins == 0) return Bad(fmt::format("{} tensors become one, but \"{}\" does not join", sources, op));
    first = false;
  }
  return ops;
}

}  // namespace

std::string Trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

std::vector<std::string> SplitOutside(std::string_view text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{' || c == '(') ++depth;
    if (c == '}' || c == ')') --depth;
    if (c == separator && depth == 0) {
      parts.push_back(Trim(text.substr(start, at - start)));
      start = at + 1;
    }
  }
  parts.push_back(Trim(text.substr(start)));
  return parts;
}

Result<std::int64_t> GroupCount(std::string_view pattern) {
  std::int64_t count = 1;
  bool equal = true;
  const bool balanced = ForEachGroup(pattern, [&](std::string_view group, std::size_t, std::size_t) {
    const auto size = static_cast<std::int64_t>(Members(group).size());
    if (size == 1) return;  // an index
    equal = equal && (count == 1 || count == size);
    count = size;
  });
  if (!balanced) return Bad(fmt::format("\"{}\" has braces that do not match", Printable(pattern)));
  if (!equal) return Bad(fmt::format("the groups of \"{}\" differ in size", Printable(pattern)));
  return count;
}

std::string ExpandGroups(std::string_view pattern, std::int64_t at) {
  std::string out;
  std::size_t copied = 0;
  ForEachGroup(pattern, [&](std::string_view group, std::size_t begin, std::size_t end) {
    const std::vector<std::string> members = Members(group);
    if (members.size() == 1) return;
    out += pattern.substr(copied, begin - copied);
    out += members[static_cast<std::size_t>(at)];
    copied = end;
  });
  return out += pattern.substr(copied);
}

IndexPattern::IndexPattern(std::string_view pattern) {
  std::size_t copied = 0;
  ForEachGroup(pattern, [&](std::string_view group, std::size_t begin, std::size_t end) {
    pieces_.push_back({std::string(pattern.substr(copied, begin - copied)), std::string(group)});
    copied = end;
  });
  rest_ = pattern.substr(copied);
}

std::string IndexPattern::Fill(const std::map<std::string, std::int64_t>& indices, const std::map<std::string, std::int64_t>& letters) const {
  fmt::memory_buffer out;  // a name fits into it: it is allocated once, when it is whole
  const auto add = [&](std::string_view text) { out.append(text.data(), text.data() + text.size()); };
  for (const Piece& piece : pieces_) {
    add(piece.before);
    std::optional<std::int64_t> number;
    if (const auto index = indices.find(piece.placeholder); index != indices.end()) {
      number = index->second;
    } else {
      std::map<std::string, std::int64_t> all = indices;
      all.insert(letters.begin(), letters.end());
      if (const Result<std::int64_t> value = EvaluateInteger(piece.placeholder, all)) number = *value;
    }
    if (number) {
      const fmt::format_int digits(*number);
      add({digits.data(), digits.size()});
    } else {
      add("{" + piece.placeholder + "}");
    }
  }
  add(rest_);
  return fmt::to_string(out);
}

std::string FillIndices(std::string_view pattern, const std::map<std::string, std::int64_t>& indices,
                        const std::map<std::string, std::int64_t>& letters) {
  return IndexPattern(pattern).Fill(indices, letters);
}

std::vector<std::string> IndicesOf(std::string_view pattern) {
  std::vector<std::string> letters;
  ForEachGroup(pattern, [&](std::string_view group, std::size_t, std::size_t) {
    if (Members(group).size() != 1) return;
    const Result<Formula> formula = ParseFormula(group);
    if (!formula) return letters.emplace_back(group), void();
    for (std::string& name : NamesOf(*formula)) letters.push_back(std::move(name));
  });
  return letters;
}

Result<RowTarget> ParseTarget(std::string_view column, std::int64_t sources) {
  RowTarget target;
  const std::size_t colon = column.find(" : ");
  target.name = Trim(column.substr(0, colon));
  if (target.name.empty()) return Bad("a target has no name; \"-\" says that there is none");
  if (target.name == "-") {
    if (colon != std::string_view::npos) return Bad("\"-\" takes no operation");
    return target;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t targets, GroupCount(target.name));
  const bool joined = targets == 1 && sources > 1;
  const std::string ops = colon == std::string_view::npos ? "id" : Trim(column.substr(colon + 3));
  const Result<OpInfo> first = FindOp(SplitOutside(ops, ',').front());
  const bool split = sources == 1 && first && first->splits == targets;
  if (targets != sources && targets != 1 && !split) {
    return Bad(fmt::format("\"{}\" names {} targets for {} sources", Printable(target.name), targets, sources));
  }
  if (first && first->splits != 0 && !split) return Bad(fmt::format("\"{}\" makes {} targets of one source", ops, first->splits));
  if (ops.starts_with('{') && ops.ends_with('}')) {
    const std::vector<std::string> each = SplitOutside(std::string_view(ops).substr(1, ops.size() - 2), '|');
    if (static_cast<std::int64_t>(each.size()) != targets) {
      return Bad(fmt::format("\"{}\" has {} alternatives for {} targets", Printable(ops), each.size(), targets));
    }
    for (const std::string& one : each) {
      CROSSDOCK_ASSIGN_OR_RETURN(std::vector<std::string> parsed, ParseOps(one, sources, joined));
      target.ops.push_back(std::move(parsed));
    }
    return target;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> parsed, ParseOps(ops, sources, joined));
  target.ops.assign(static_cast<std::size_t>(targets), parsed);
  return target;
}

Result<std::vector<Group::IndexRange>> ParseIndex(std::string_view text) {
  std::vector<Group::IndexRange> ranges;
  for (const std::string& part : SplitOutside(text, ',')) {
    const std::size_t in = part.find(" in ");
    const std::size_t dots = part.find("..");
    if (in == std::string::npos || dots == std::string::npos || dots < in) {
      return Bad(fmt::format("the index \"{}\" is not of the form \"l in 0..layers\"", Printable(part)));
    }
    const std::size_t condition = part.find(" if ", dots);
    const std::size_t end = condition == std::string::npos ? part.size() : condition;
    Group::IndexRange range{Trim(part.substr(0, in)), Trim(part.substr(in + 4, dots - in - 4)), Trim(part.substr(dots + 2, end - dots - 2)), {}};
    if (condition != std::string::npos) range.kind = Trim(part.substr(condition + 4));
    if (range.letter.empty()) return Bad("an index has no letter");
    ranges.push_back(std::move(range));
  }
  return ranges;
}

}  // namespace crossdock::family
