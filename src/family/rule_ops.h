// SPDX-License-Identifier: Apache-2.0
/// \file  The operations a row may name, each as an expression over the row's hub tensors. The tensor-parallel cut is
/// part of the operation: col and vocab cut axis 0, row axis 1, qkv axis 0, gate_up each half, id nothing.
/// All but `scale`, `plus1` and `minus1` only move elements. Errors: kUsage for shapes that an operation cannot take.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "expr/expr.h"
#include "family/bind.h"

namespace crossdock::family {

struct OpInfo {
  std::string_view name;
  int joins = 0;                       ///< how many tensors it makes one of; 0 = it takes one
  int splits = 0;                      ///< it makes that many of one
  enum class Argument : std::uint8_t { kNone, kOptional, kRequired } argument = Argument::kNone;
};
[[nodiscard]] std::span<const OpInfo> AllOps();
/// The operation that "name" or "name:argument" calls. kUsage for an unknown one or a wrong argument.
[[nodiscard]] Result<OpInfo> FindOp(std::string_view op);

/// The `at`-th of the tensors that a splitting operation makes of one, and the way back from all of them. The parts of `pair` lie
/// in turn along the last axis, those of `split` one after the other; those of gdn_qkvz and gdn_ba follow each other within each key head (letters nk, nv, dk, dv), those of
/// gdn_qkv once, along the first axis.
[[nodiscard]] Result<expr::Expr> SplitPart(std::string_view op, const expr::Expr& whole, std::int64_t at, const Letters& letters);
[[nodiscard]] Result<expr::Expr> JoinParts(std::string_view op, const std::vector<expr::Expr>& parts, const Letters& letters);

struct OpContext {
  const Letters* letters = nullptr;
  std::optional<std::int64_t> padded_vocab;
};

struct OpOutput {
  expr::Expr expr;
  bool padded_rows = false;            ///< the vocab operation was applied
  bool experts = false;                ///< axis 0 counts experts: the hub keeps them in one tensor
};

/// Applies a chain; of a splitting operation, which comes first, `inputs` is the part already. With `split_halves`, gate_up gives two outputs instead of one.
[[nodiscard]] Result<std::vector<OpOutput>> ApplyOps(const std::vector<std::string>& ops, const std::vector<expr::Expr>& inputs,
                                                     const OpContext& context, bool split_halves);

}  // namespace crossdock::family
