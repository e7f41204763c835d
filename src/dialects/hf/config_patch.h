// SPDX-License-Identifier: Apache-2.0
/// \file  Single fields of a config.json, changed in place: everything else stays as it is, in its order.
/// Errors: those of family/bind.h. Threads: functions are pure.
#pragma once

#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "family/bind.h"
#include "family/family_file.h"

namespace crossdock::dialects::hf {

/// Sets "a.b.c", making dictionaries on the way.
void SetPath(Value* config, std::string_view dotted, Value value);

/// Makes EvaluateLetters(family, config) give `letters`: sets the paths that are there, and the first path of a letter
/// where only its fallback would give another value. Lists that have one item a layer get the new length.
[[nodiscard]] Status PatchLetters(const family::FamilyFile& family, const family::Letters& letters, Value* config);

/// The path under which `config` says a letter, or the first one of the family file; empty when there is none.
[[nodiscard]] std::string PathOfLetter(const family::FamilyFile& family, const std::string& letter, const Value& config);

}  // namespace crossdock::dialects::hf
