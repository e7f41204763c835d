// SPDX-License-Identifier: Apache-2.0
/// \file  FP8 directories that transformers opens without an error and with other weights than they hold, and who reads them instead.
/// Facts: transformers 5.24 run on a CPU (missing keys), vLLM's loaders as their source has them, not run. Threads: pure.
#pragma once

#include <optional>
#include <string>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

struct NotByTransformers {
  std::string notice;      ///< what happens there, and who reads it
  std::string load_line;   ///< in the place of from_pretrained
};

/// Nothing where transformers loads what `fp8` makes of this family's models.
[[nodiscard]] std::optional<NotByTransformers> WhyNotTransformers(const family::FamilyFile& family, const Fp8Options& fp8);

}  // namespace crossdock::dialects::hf
