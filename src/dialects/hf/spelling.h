// SPDX-License-Identifier: Apache-2.0
/// \file  The spellings of a family ([spellings] of its file): which one a directory has, which one a target gets, and the hub
/// put into it. Reading undoes a spelling's operations, writing applies them.
/// A choice is at most one set of prefixes and one set of rows; none of either is the released form.
/// Errors: kUnsupported for names and shapes that two spellings explain. Threads: functions are pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"
#include "dialects/hf/infer_letters.h"

namespace crossdock::dialects::hf {

using Spellings = std::vector<std::string>;   ///< names of [spellings] that hold together

/// The spelling in which most tensors are there; the released one when none is better. `shape_of` takes spelled names.
/// `where` is for messages.
[[nodiscard]] Result<Spellings> FindSpelling(const family::FamilyFile& family, const family::Model& model, const ShapeLookup& shape_of, const std::string& where);

/// As FindSpelling where only the names are known: rows of several spellings that share them are told apart by `shape_of` of the
/// template's weights where it has an answer.
[[nodiscard]] Result<Spellings> SpellingOfNames(const family::FamilyFile& family, const family::Model& model, const std::vector<std::string>& names,
                                                const ShapeLookup& shape_of, const std::string& where);

/// --experts: "single", "fused", or a spelling by its name. Prefixes of `found` stay.
[[nodiscard]] Result<Spellings> WithExperts(const family::FamilyFile& family, const std::string& experts, Spellings found);

/// All names that a model can have in any spelling.
[[nodiscard]] Result<std::vector<std::string>> NamesOfAllSpellings(const family::FamilyFile& family, const family::Model& model);

struct SpelledTensor {
  HubTensor tensor;          ///< by its spelled name
  std::string hub_name;      ///< of its first part
};
/// The hub's tensors in a spelling, those that other tensors make up included. Joined tensors are as wide as their widest part
/// (F32 where parts differ). kIncomplete for state that only some parts have.
[[nodiscard]] Result<std::vector<SpelledTensor>> Spell(const HubState& hub, const Spellings& spellings);

}  // namespace crossdock::dialects::hf
