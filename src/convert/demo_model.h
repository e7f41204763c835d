// SPDX-License-Identifier: Apache-2.0
/// \file  A small Qwen3 with Adam state, made from a seed: a checkpoint that exists in memory only, read like any other.
/// Invariant: the same bytes on every machine: integer arithmetic and exact float operations only, no libm.
/// Masters are the bf16 weights plus a remainder below half a place, so that each rounds back to its weight.
/// Ownership: the reader points into the storage, which holds one file.
#pragma once

#include <memory>
#include <string>

#include "convert/source.h"
#include "io/memory_storage.h"

namespace crossdock::convert {

struct DemoModel {
  std::unique_ptr<io::MemoryStorage> storage;
  Source source;                    ///< of kind full-state, hub read
};

[[nodiscard]] Result<DemoModel> MakeDemoModel();

}  // namespace crossdock::convert
