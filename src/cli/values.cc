// SPDX-License-Identifier: Apache-2.0
#include "cli/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "cli/option_table.h"
#include "crossdock/nearest.h"

namespace crossdock::cli {
namespace {

Error BadValue(std::string_view option, std::string_view takes, std::string_view text) {
  return MakeError(ErrorCode::kUsage, fmt::format("`--{}` takes {}", option, takes))
      .WithFound(fmt::format("`{}`", Printable(text)));
}

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kUnits = {
    Unit{"", 1}, Unit{"b", 1},
    Unit{"kb", 1000}, Unit{"mb", 1000'000}, Unit{"gb", 1000'000'000}, Unit{"tb", 1000'000'000'000},
    Unit{"kib", std::int64_t{1} << 10U}, Unit{"mib", std::int64_t{1} << 20U},
    Unit{"gib", std::int64_t{1} << 30U}, Unit{"tib", std::int64_t{1} << 40U},
    Unit{"k", std::int64_t{1} << 10U}, Unit{"m", std::int64_t{1} << 20U},
    Unit{"g", std::int64_t{1} << 30U}, Unit{"t", std::int64_t{1} << 40U},
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

Result<std::int64_t> ParseInt(std::string_view option, std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return value;
  const std::string takes = most == INT64_MAX ? fmt::format("a whole number of at least {}", least)
                                              : fmt::format("a whole number from {} to {}", least, most);
  return BadValue(option, takes, text);
}

Result<StepChoice> ParseStep(std::string_view option, std::string_view text) {
  if (text == "release") return StepChoice{0, true};
  const Result<std::int64_t> number = ParseInt(option, text, 0);
  if (!number) return BadValue(option, "a step's number, or `release`", text);
  return StepChoice{*number, false};
}

Result<std::int64_t> ParseSize(std::string_view option, std::string_view text) {
  const Error error = BadValue(option, "a size such as 512MiB, 5GB or a number of bytes", text);
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + digits, number);
  if (digits == 0 || parsed.ec != std::errc() || parsed.ptr != text.data() + digits) return error;
  std::string_view unit_text = text.substr(digits);
  while (unit_text.starts_with(' ')) unit_text.remove_prefix(1);
  const auto* unit = std::ranges::find(kUnits, Lower(unit_text), &Unit::name);
  if (unit == kUnits.end()) return error;
  const double bytes = std::floor(number * static_cast<double>(unit->bytes));
  if (!(bytes >= 1) || bytes > 9e18) return error;
  return static_cast<std::int64_t>(bytes);
}

Result<std::string> ParseDType(std::string_view option, std::string_view text) {
  std::string lower = Lower(text);
  if (lower.starts_with("torch.")) lower.erase(0, 6);
  if (ListHas("bf16 bfloat16", lower)) return std::string("bf16");
  if (ListHas("fp16 float16 half f16", lower)) return std::string("fp16");
  if (ListHas("fp32 float32 float f32", lower)) return std::string("fp32");
  return BadValue(option, "bf16, fp16 or fp32", text);
}

Result<std::vector<std::int64_t>> ParseList(std::string_view option, std::string_view text) {
  std::vector<std::int64_t> values;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    Result<std::int64_t> value = ParseInt(option, rest.substr(0, comma), 0, 1000'000);
    if (!value) return BadValue(option, "whole numbers separated by commas, such as 10,11,11", text);
    values.push_back(*value);
    if (comma == rest.size()) return values;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::pair<std::string, std::string>> ParsePair(std::string_view option, std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return BadValue(option, "ARG=VALUE, such as lr=1e-4", text);
  return std::pair<std::string, std::string>(text.substr(0, equals), text.substr(equals + 1));
}

Result<std::string> ParseChoice(std::string_view option, std::string_view text, std::string_view choices) {
  if (ListHas(choices, text)) return std::string(text);
  std::vector<std::string_view> known;
  for (std::string_view rest = choices; !rest.empty(); rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1)) {
    known.push_back(rest.substr(0, rest.find(' ')));
  }
  std::string takes(choices);
  for (std::size_t i = takes.find(' '); i != std::string::npos; i = takes.find(' ', i + 2)) takes.replace(i, 1, ", ");
  return BadValue(option, "one of: " + takes, text).WithHint(DidYouMean(text, known));
}

Result<int> ParseCompression(std::string_view option, std::string_view text) {
  constexpr std::string_view kZstd = "zstd";
  constexpr int kHighestLevel = 22;
  if (text == "none") return 0;
  if (text == kZstd) return 1;
  int level = 0;
  if (text.starts_with("zstd:")) {
    const auto [end, error] = std::from_chars(text.data() + kZstd.size() + 1, text.data() + text.size(), level);
    if (error == std::errc() && end == text.data() + text.size() && level >= 1 && level <= kHighestLevel) return level;
  }
  return BadValue(option, "none, zstd or zstd:LEVEL with a level of 1 to 22", text);
}

}  // namespace crossdock::cli
