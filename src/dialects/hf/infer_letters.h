// SPDX-License-Identifier: Apache-2.0
/// \file  Sizes of a model from the shapes of its tensors, where no configuration of its own came along: a
/// template then gives the architecture, and shapes and counts come from the checkpoint.
/// Errors: kCorrupt for shapes that contradict each other. Threads: functions are pure.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "crossdock/result.h"
#include "family/bind.h"
#include "family/family_file.h"

namespace crossdock::dialects::hf {

/// The shape of a hub tensor in the source, or null.
using ShapeLookup = std::function<const Shape*(std::string_view hub_name)>;

/// Letters solved from the rows' shapes; where they leave a letter open (heads or head size?), the template's value.
[[nodiscard]] Result<family::Letters> InferLetters(const family::FamilyFile& family, const family::Letters& of_template,
                                                   const ShapeLookup& shape_of);

}  // namespace crossdock::dialects::hf
