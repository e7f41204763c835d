// SPDX-License-Identifier: Apache-2.0
/// \file  A model as a family file sees it: the sizes behind its letters, the words that hold, and which layers are of which kind.
/// Read from a configuration in one dialect's words. Errors: kIncomplete names the letter, the paths tried and the file's hint;
/// kCorrupt for values that are no sizes. Threads: functions are pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "family/family_file.h"
#include "family/model_config.h"

namespace crossdock::family {

/// No model has as many layers or experts; keeps a hostile configuration from filling memory.
inline constexpr std::int64_t kMaxIndex = 16384;

using Letters = std::map<std::string, std::int64_t>;
/// For each word of [layer_kinds]: whether layer 0, 1, ... is of this kind.
using LayerKinds = std::map<std::string, std::vector<bool>>;

struct Model {
  Letters letters;
  std::vector<std::string> conditions;  ///< the words of [conditions] that hold
  LayerKinds kinds;

  [[nodiscard]] bool Holds(std::string_view word) const;   ///< a word of [conditions]
  /// True when all layers have the same tensors: each kind is that of all layers or of none.
  [[nodiscard]] bool Homogeneous() const;
};

/// Values of all letters from a configuration.
[[nodiscard]] Result<Letters> EvaluateLetters(const FamilyFile& family, const ModelConfig& whole);
/// The words of [conditions] that hold.
[[nodiscard]] Result<std::vector<std::string>> EvaluateConditions(const FamilyFile& family, const ModelConfig& whole);
[[nodiscard]] Result<Model> EvaluateModel(const FamilyFile& family, const ModelConfig& config);
/// The kinds alone, for `layers` layers.
[[nodiscard]] Result<LayerKinds> EvaluateKinds(const FamilyFile& family, const ModelConfig& whole, std::int64_t layers);

}  // namespace crossdock::family
