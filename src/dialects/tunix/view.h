// SPDX-License-Identifier: Apache-2.0
/// \file  A Tunix step seen as the tree that MaxText saves: everything after it (the maxtext dialect) knows one form only.
/// A catalog of a Tunix step: entries named by their paths, the item first (`model_params.base.decoder...value`), objects "tree",
/// "scalars" (counters, random keys and floating numbers without axes, by value) and "custom_metadata".
/// Reference: google-tunix 0.1.7, sft/checkpoint_manager.py; MaxText 0.2.5, trainers/post_train. levels.h has the paths.
/// Invariants: entries of the seen catalog are sorted and keep the chunks of the source's; every array of the step is seen, recorded in
/// `levels.dropped`, told in `left_out`, or the reason of `optimizer_refusal`.
/// Errors: kIncomplete (no parameters), kUnsupported (a model of Tunix's own, quantized parameters, parameters beside the adapter). Threads: functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dialects/dialect.h"
#include "dialects/tunix/levels.h"

namespace crossdock::dialects::tunix {

struct View {
  Catalog catalog;                          ///< MaxText's names; "tree" has np.ndarray for every array
  std::vector<std::int32_t> entry_of;       ///< of the source, for each entry of `catalog`
  Levels levels;
  maxtext::OptimizerKind optimizer = maxtext::OptimizerKind::kNone;
  bool has_lora = false;                    ///< adapters of qwix: `kernel_lora_a`, `kernel_lora_b`
  bool lora_alone = false;                  ///< and no other parameters
  std::string optimizer_refusal;            ///< why there is optimizer state that cannot be carried
  std::vector<LeftOut> left_out;
  std::vector<std::string> notices;

  /// An expression over entries of `catalog` as one over entries of the source.
  [[nodiscard]] Result<expr::Expr> OverSource(const expr::Expr& seen) const;
};
[[nodiscard]] Result<View> SeeAsMaxText(const Catalog& source);

/// A MaxText step, which has no levels, as a view of itself: for what is written of either. A routed bias that stands in two places stands in
/// that of the model's own variables alone. `levels` are those that it would be given.
[[nodiscard]] View SeeItself(const Catalog& maxtext, Levels levels);

/// A name of qwix's adapters, which stand beside the kernel they belong to.
[[nodiscard]] bool IsLora(std::string_view name);

}  // namespace crossdock::dialects::tunix
