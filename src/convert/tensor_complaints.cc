// SPDX-License-Identifier: Apache-2.0
#include "convert/tensor_complaints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace crossdock::convert {

void TensorComplaints::Add(const std::string& kind, const std::string& name, const std::string& detail) {
  if (first_.empty()) first_ = name;
  kinds_[kind].push_back(fmt::format("`{}`{}", Printable(name), detail));
}

Status TensorComplaints::Outcome(const std::string& hint) const {
  constexpr std::size_t kMostNamed = 8;
  if (kinds_.empty()) return OkStatus();
  std::vector<std::string> counts, lists;
  for (const auto& [kind, named] : kinds_) {
    counts.push_back(fmt::format("{} {}", named.size(), kind));
    const std::size_t shown = std::min(named.size(), kMostNamed);
    std::string list = fmt::format("{}: {}", kind, fmt::join(named.begin(), named.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
    if (named.size() > shown) list += fmt::format(" and {} more", named.size() - shown);
    lists.push_back(std::move(list));
  }
  return MakeError(ErrorCode::kUsage, fmt::format("the tensors handed over are not those of this rank ({})", fmt::join(counts, ", ")))
      .WithTensor(first_)
      .WithFound(fmt::format("{}", fmt::join(lists, "; ")))
      .WithHint(hint);
}

}  // namespace crossdock::convert
