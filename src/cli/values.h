// SPDX-License-Identifier: Apache-2.0
/// \file  The words of a value as a typed value: whole numbers, sizes, dtypes, lists, NAME=VALUE pairs.
/// Errors: kUsage names the option, what it takes and what was found. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossdock/result.h"
#include "crossdock/step.h"

namespace crossdock::cli {

/// A decimal number within [least, most].
[[nodiscard]] Result<std::int64_t> ParseInt(std::string_view option, std::string_view text, std::int64_t least,
                                            std::int64_t most = INT64_MAX);
/// "20" or "release".
[[nodiscard]] Result<StepChoice> ParseStep(std::string_view option, std::string_view text);
/// "512MiB", "5GB", "1.5GiB", "512M" (binary, as ulimit and containers count) or a bare number of bytes.
[[nodiscard]] Result<std::int64_t> ParseSize(std::string_view option, std::string_view text);
/// "bf16", "fp16", "fp32" for any spelling in use: bfloat16, torch.bfloat16, half, float32, ...
[[nodiscard]] Result<std::string> ParseDType(std::string_view option, std::string_view text);
/// "10,11,11", each within [0, 10^6].
[[nodiscard]] Result<std::vector<std::int64_t>> ParseList(std::string_view option, std::string_view text);
/// "lr=1e-4".
[[nodiscard]] Result<std::pair<std::string, std::string>> ParsePair(std::string_view option, std::string_view text);
/// "none" (0), "zstd" (1) or "zstd:LEVEL".
[[nodiscard]] Result<int> ParseCompression(std::string_view option, std::string_view text);
/// One of the space-separated words of `choices`.
[[nodiscard]] Result<std::string> ParseChoice(std::string_view option, std::string_view text, std::string_view choices);

}  // namespace crossdock::cli
