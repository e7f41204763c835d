// SPDX-License-Identifier: Apache-2.0
/// \file  Weights that are stored in FP8 and are to be written in FP8 by the same rule: codes and scales go over as they are, for
/// quantizing once more what was dequantized changes both.
/// A weight may be a part of what is stored (an expert of many, gate or up of both): cuts along the blocks cut codes and scales alike.
/// Threads: pure.
#pragma once

#include <optional>

#include "expr/expr.h"

namespace crossdock::dialects::hf {

struct StoredFp8 {
  expr::Expr values;   ///< F8_E4M3, of the weight's shape
  expr::Expr scales;   ///< F32, ceil(n / block) on both axes
  bool exponents = false;  ///< stored as such (F8_E8M0): powers of two
};

/// The codes and scales of `weight`, an expression of two axes, when it is stored as F8_E4M3 in blocks of `block`, perhaps cut or cast
/// since; else nothing. A block that is larger than the weight counts as large as it.
[[nodiscard]] std::optional<StoredFp8> AsStored(const expr::Expr& weight, const expr::BlockFormat& block);

}  // namespace crossdock::dialects::hf
