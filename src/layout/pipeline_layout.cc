// SPDX-License-Identifier: Apache-2.0
#include "layout/pipeline_layout.h"

#include <algorithm>
#include <optional>

#include "base/digits.h"
#include "fmt/format.h"

namespace crossdock::layout {
namespace {

/// No model comes near; a few characters could otherwise ask for all memory.
constexpr std::size_t kMaxLength = std::size_t{1} << 20U;

Error Refuse(std::string_view text, std::string found) {
  return MakeError(ErrorCode::kUsage, fmt::format("the pipeline layout `{}` cannot be read", Printable(std::string(text))))
      .WithExpected("cells divided by `|`, of the letters E, t, m and L, with `t*3` and `(tt|)*2` for repetition")
      .WithFound(std::move(found));
}

/// "*12" at `at`: how often, and the end of the digits.
struct Repetition {
  std::size_t times = 0;
  std::size_t end = 0;
};
std::optional<Repetition> RepetitionAt(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size() || text[at] != '*' || !IsDigit(text[at + 1])) return std::nullopt;
  Repetition found{0, at + 1};
  for (; found.end < text.size() && IsDigit(text[found.end]); ++found.end) {
    found.times = std::min(kMaxLength + 1, found.times * 10 + static_cast<std::size_t>(text[found.end] - '0'));
  }
  return found;
}

bool Append(std::string_view part, std::size_t times, std::string* out) {
  if (part.empty()) return true;
  if (times > (kMaxLength - std::min(kMaxLength, out->size())) / part.size()) return false;
  for (std::size_t i = 0; i < times; ++i) *out += part;
  return true;
}

/// One rewrite of the whole text; false when it grows beyond any model.
bool UnrollBrackets(std::string_view text, std::string* out) {
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '(') {
      const std::size_t close = text.find(')', at);
      if (close != std::string_view::npos && close > at + 1) {
        if (const std::optional<Repetition> repetition = RepetitionAt(text, close + 1)) {
          if (!Append(text.substr(at + 1, close - at - 1), repetition->times, out)) return false;
          at = repetition->end;
          continue;
        }
      }
    }
    if (!Append(text.substr(at++, 1), 1, out)) return false;
  }
  return true;
}

bool UnrollCharacters(std::string_view text, std::string* out) {
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<Repetition> repetition = text[at] == '\n' ? std::nullopt : RepetitionAt(text, at + 1);
    if (!Append(text.substr(at, 1), repetition ? repetition->times : 1, out)) return false;
    at = repetition ? repetition->end : at + 1;
  }
  return true;
}

}  // namespace

Result<std::vector<std::string>> ParsePipelineLayout(std::string_view text) {
  std::string plain(text);
  std::erase(plain, ',');
  std::string groups;
  std::string unrolled;
  if (!UnrollBrackets(plain, &groups) || !UnrollCharacters(groups, &unrolled)) {
    return Refuse(text, fmt::format("more than {} letters after the repetitions", kMaxLength));
  }
  std::vector<std::string> cells(1);
  for (const char c : unrolled) {
    if (c == '|') {
      cells.emplace_back();
    } else if (c == 'E' || c == 't' || c == 'm' || c == 'L') {
      cells.back() += c;
    } else {
      return Refuse(text, fmt::format("`{}` in cell {}", Printable(std::string(1, c)), cells.size() - 1));
    }
  }
  return cells;
}

Result<MtpCell> FindMtp(std::span<const std::string> cells, int stages) {
  MtpCell found;
  const auto refuse = [](std::string message, std::size_t cell) {
    return MakeError(ErrorCode::kUsage, "the pipeline layout places layers of multi-token prediction (m) where Megatron has none")
        .WithExpected(std::move(message))
        .WithFound(fmt::format("m in cell {}", cell));
  };
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto count = std::count(cells[i].begin(), cells[i].end(), 'm');
    if (found.layers > 0 && cells[i].find('t') != std::string::npos) return refuse("all decoder layers (t) before them", i);
    if (count == 0) continue;
    if (found.layers > 0) return refuse("all of them in one cell", i);
    if (cells[i].rfind('t') != std::string::npos && cells[i].rfind('t') > cells[i].find('m')) return refuse("all decoder layers (t) before them", i);
    if (i / static_cast<std::size_t>(stages) + 1 != cells.size() / static_cast<std::size_t>(stages)) return refuse("the last virtual stage of a stage", i);
    found = {count, static_cast<int>(i % static_cast<std::size_t>(stages))};
  }
  return found;
}

std::string PipelineLayoutString(std::span<const std::int64_t> layers) {
  std::string text = "E";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) text += "|";
    if (layers[i] == 1) text += "t";
    if (layers[i] > 1) text += fmt::format("t*{}", layers[i]);
  }
  return text + "L";
}

}  // namespace crossdock::layout
