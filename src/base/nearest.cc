// SPDX-License-Identifier: Apache-2.0
#include "crossdock/nearest.h"

#include <algorithm>
#include <vector>

namespace crossdock {
namespace {

char Letter(char c) {
  if (c == '_') return '-';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::size_t Forgiven(std::string_view word) { return word.size() <= 4 ? 1 : word.size() < 12 ? 2 : 3; }

}  // namespace

std::size_t TypingErrors(std::string_view a, std::string_view b) {
  // Rows of the table of prefixes: two back, one back, this one (optimal string alignment).
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = Letter(a[i - 1]) == Letter(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0U : 1U)});
      const bool exchanged = i > 1 && j > 1 && Letter(a[i - 1]) == Letter(b[j - 2]) && Letter(a[i - 2]) == Letter(b[j - 1]);
      if (exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view Nearest(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t fewest = Forgiven(word) + 1;
  if (word.size() > 100) return best;  // no word of ours is that long, and the table of prefixes would be large
  for (const std::string_view candidate : known) {
    const std::size_t errors = TypingErrors(word, candidate);
    if (errors >= fewest || errors >= std::min(word.size(), candidate.size())) continue;
    best = candidate;
    fewest = errors;
  }
  return best;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view nearest = Nearest(word, known);
  return nearest.empty() ? std::string() : "did you mean `" + std::string(nearest) + "`?";
}

}  // namespace crossdock
