// SPDX-License-Identifier: Apache-2.0
/// \file  Two open sources compared, and the comparison as a Report: weights, counters, configuration, tokenizer files.
/// Equal weights are not enough: another eps or rope base is another model. Configuration differences are listed by weight of consequence.
#pragma once

#include <string>
#include <vector>

#include "convert/source.h"
#include "crossdock/convert.h"
#include "verify/verify.h"

namespace crossdock::convert {

struct CompareOptions {
  verify::Exact exact = verify::Exact::kBit;
  std::int64_t memory = std::int64_t{512} << 20U;
  bool masters = true;   ///< false: what lay between the two sides held none
};

[[nodiscard]] Result<verify::Comparison> CompareSources(const Source& a, const Source& b, const CompareOptions& options,
                                                        const Hooks& hooks);
/// Differences of two configurations, whatever words they are in, the most consequential first.
[[nodiscard]] Result<std::vector<verify::ConfigDifference>> CompareConfigs(const dialects::HubState& a, const dialects::HubState& b);
/// Tokenizer files that both sides have but differ in bytes, or that only one side has.
[[nodiscard]] Result<std::vector<std::string>> CompareTokenizers(const Source& a, const Source& b);

/// Text, JSON and "[DIFF]" remarks. `notices` are told in the text only.
[[nodiscard]] Report ComparisonReport(const verify::Comparison& comparison, const std::vector<std::string>& notices);

}  // namespace crossdock::convert
