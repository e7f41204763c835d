// SPDX-License-Identifier: Apache-2.0
/// \file  Which layers are of which kind (dense or with experts), said in the fields of a config.json that the family reads.
/// Errors: kUnsupported where its fields cannot say these layers. Threads: functions are pure.
#pragma once

#include "crossdock/result.h"
#include "family/model.h"
#include "tensor/value.h"

namespace crossdock::dialects::hf {

/// Makes EvaluateKinds(family, config) give `model.kinds`. Fields that already say so stay as they are.
[[nodiscard]] Status PatchKinds(const family::FamilyFile& family, const family::Model& model, Value* config);

}  // namespace crossdock::dialects::hf
