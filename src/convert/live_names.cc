// SPDX-License-Identifier: Apache-2.0
#include "convert/live_names.h"

#include <algorithm>
#include <charconv>

#include "base/digits.h"
#include "dialects/mcore/bucket_keys.h"

namespace crossdock::convert {
namespace {

constexpr std::string_view kOptimizer = "optimizer.";

/// "12:40" as {12, 40}.
std::optional<std::pair<std::int64_t, std::int64_t>> ParseRange(std::string_view text) {
  std::pair<std::int64_t, std::int64_t> out;
  const char* const end = text.data() + text.size();
  const auto [colon, first] = std::from_chars(text.data(), end, out.first);
  if (first != std::errc() || colon == end || *colon != ':') return std::nullopt;
  const auto [last, second] = std::from_chars(colon + 1, end, out.second);
  if (second != std::errc() || last != end || out.first < 0 || out.second <= out.first) return std::nullopt;
  return out;
}

}  // namespace

std::optional<std::string> LiveName(std::string_view entry_name) {
  constexpr std::string_view kModel = "model";
  const std::size_t hash = entry_name.find('#');
  if (hash == std::string_view::npos) return std::nullopt;
  const std::string_view path = entry_name.substr(hash + 1);
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos || !path.starts_with(kModel)) return std::nullopt;
  const std::string_view number = path.substr(kModel.size(), slash - kModel.size());
  if (!number.empty() && !OnlyDigits(number)) return std::nullopt;
  const std::string name(path.substr(slash + 1));
  return number.empty() ? name : std::string(path.substr(0, slash)) + "." + name;
}

bool IsStateName(std::string_view name) { return name.starts_with(kOptimizer); }

Result<StateName> ParseStateName(std::string_view name) {
  const auto refuse = [&] {
    return MakeError(ErrorCode::kUsage, "this is no name of a tensor of the optimizer").WithTensor(std::string(name))
        .WithExpected("`optimizer.param.<parameter>`, `optimizer.exp_avg.<parameter>` or `optimizer.exp_avg_sq.<parameter>`, of a flat part with `[begin:end]` behind it");
  };
  if (!IsStateName(name)) return refuse();
  const std::string_view rest = name.substr(kOptimizer.size());
  const std::size_t dot = rest.find('.');
  StateName out;
  out.state = rest.substr(0, dot);
  if (dot == std::string_view::npos || std::ranges::find(dialects::mcore::kBucketStates, out.state) == dialects::mcore::kBucketStates.end()) return refuse();
  out.parameter = rest.substr(dot + 1);
  if (out.parameter.ends_with(']')) {
    const std::size_t bracket = out.parameter.rfind('[');
    if (bracket == std::string_view::npos) return refuse();
    out.range = ParseRange(out.parameter.substr(bracket + 1, out.parameter.size() - bracket - 2));
    if (!out.range) return refuse();
    out.parameter = out.parameter.substr(0, bracket);
  }
  if (out.parameter.empty()) return refuse();
  return out;
}

}  // namespace crossdock::convert
