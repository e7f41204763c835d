// SPDX-License-Identifier: Apache-2.0
/// \file  What the writers of several formats share: entries, casts, config.json, side files.
/// Threads: functions are pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

/// Entries with their expressions while a target is put together; Finish sorts both.
struct Draft {
  const family::FamilyFile* family = nullptr;  ///< its F32 islands are never cast; outlives the draft
  std::vector<std::pair<Entry, expr::Expr>> tensors;
  std::int64_t cast = 0;                  ///< tensors whose dtype changes
  std::int64_t kept = 0;                  ///< islands that a cast would have touched
  std::string cast_text;                  ///< "F32 to BF16"

  /// Adds a whole tensor; floating parameters take `dtype` unless a keep pattern or the family's
  /// F32 islands name them.
  [[nodiscard]] Status Add(std::string name, const std::string& hub_name, Slot slot, DType source_dtype, const Shape& shape,
                           expr::Expr expr, const TargetOptions& options);
  void Finish(TargetState* target);
};

/// Adds config.json (patched, or rebuilt) and the side files, with what there is to say about them. With `quantization` that
/// is its quantization_config, and nothing else is added to a config.json that says the dtype already.
[[nodiscard]] Status AddConfigAndSideFiles(const HubState& hub, const TargetOptions& options, DType param_dtype,
                                           TargetState* target, const Value* quantization = nullptr);

/// hf/ of a step: the same in a folder beside the weights of another format, so that the way back is complete.
[[nodiscard]] Status AddHfFolder(const HubState& hub, const TargetOptions& options, DType param_dtype, TargetState* target);

/// kUnsupported where the source has optimizer state that cannot be carried: a target that holds such state must not lose it in silence.
[[nodiscard]] Status CheckOptimizerCarried(const HubState& hub);

/// Master weights take the place of the parameters they belong to (--params-from master). kIncomplete where there are none.
[[nodiscard]] Status UseMasters(HubState* hub);

/// The dtype that most bytes of the parameters have.
[[nodiscard]] DType MainDType(const Draft& draft);

}  // namespace crossdock::dialects::hf
