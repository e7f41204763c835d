// SPDX-License-Identifier: Apache-2.0
/// \file  A note of this tool in the common state of a Megatron checkpoint: which hub tensors were of 16 bits before the rules
/// computed with them (norms stored minus one). They are written in F32, where the sum is exact for every weight of at least 2^-16,
/// and read back into their own type. Megatron ignores the note and leaves it out of its next save, so that it never grows old.
/// Threads: functions are pure.
#pragma once

#include <map>
#include <string>

#include "tensor/catalog.h"
#include "tensor/dtype.h"

namespace crossdock::dialects::mcore {

/// The dtypes that hub tensors had, by hub name.
using KeptDTypes = std::map<std::string, DType>;

/// Empty where there is no note; what of it makes no sense is passed over.
[[nodiscard]] KeptDTypes ReadKeptDTypes(const Catalog& catalog);
/// Into the common state of a target; nothing where there is nothing to keep.
void KeepDTypes(const KeptDTypes& kept, Value* common);
/// From the common state of a source into that of a target whose tensors are the source's own.
void CarryKeptDTypes(const Value& from, Value* to);

}  // namespace crossdock::dialects::mcore
