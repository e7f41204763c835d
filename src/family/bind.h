// SPDX-License-Identifier: Apache-2.0
/// \file  Bind: a family file made concrete for one model's sizes: which hub tensors there are, and which tensors of a
/// dialect, each as an expression over hub tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "crossdock/result.h"
#include "expr/expr.h"
#include "family/model.h"

namespace crossdock::family {

struct HubTensor {
  std::string name;
  Shape shape;
  std::optional<std::int64_t> layer;
  int row_line = 0;                       ///< line of the rule, for `manifest`
};

/// A part of a hub tensor that a dialect keeps as a tensor of its own. In DialectTensor it stands for itself: with the ordinal
/// kFirstPart + its index in Binding::parts.
inline constexpr std::int32_t kFirstPart = std::int32_t{1} << 30U;
struct HubPart {
  std::int32_t hub = -1;                  ///< index into Binding::hub
  std::int64_t at = 0;                    ///< which part
  std::int64_t of = 1;                    ///< how many there are
  std::string op;                         ///< the operation that takes it apart (rule_ops.h)
  Shape shape;
};

/// One tensor of a dialect. `forward` is over ordinals 0..hub.size()-1, dtype F32 everywhere (callers substitute).
struct DialectTensor {
  std::string name;
  Shape shape;
  std::vector<std::int32_t> hub;          ///< indices into Binding::hub, and parts
  expr::Expr forward;
  /// Stacked along axis `stack_axis`: element k of that axis is layer first_layer + k. -1: not stacked.
  int stack_axis = -1;
  int expert_axis = -1;                     ///< experts lie along this axis; -1: none, or one expert by number
  std::optional<std::int64_t> first_layer;  ///< also the layer of a tensor that is not stacked but belongs to one
  bool repeats = false;                   ///< another tensor holds the same values (Group::repeats)
  bool padded_rows = false;               ///< axis 0 is a padded vocabulary: its size is the target's own
  int row_line = 0;
};

/// A hub tensor that repeats another one (CopyRule), by the hub names of both.
struct HubCopy {
  std::string name;
  std::string of;
};

struct Binding {
  std::vector<HubTensor> hub;             ///< in the order of the rule file, layer by layer
  std::vector<DialectTensor> tensors;     ///< likewise
  std::vector<HubPart> parts;
  std::vector<HubCopy> copies;            ///< none of them is among `hub`
  Letters letters;                        ///< that it was made with
};

/// The hub tensor behind an ordinal of a dialect's tensor.
[[nodiscard]] std::int32_t HubOf(const Binding& binding, std::int32_t ordinal);
[[nodiscard]] const std::string& HubNameOf(const Binding& binding, std::int32_t ordinal);
/// What an ordinal stands for, of its hub tensor `hub`: all of it, or a part.
[[nodiscard]] Result<expr::Expr> PartOf(const Binding& binding, std::int32_t ordinal, const expr::Expr& hub);
/// The hub tensor from its parts by their numbers, or null while some are missing. kUnsupported where their dtypes differ.
[[nodiscard]] Result<expr::Expr> FromParts(const Binding& binding, std::int32_t hub, const std::map<std::int64_t, expr::Expr>& parts);

struct BindOptions {
  std::string dialect;                    ///< "mcore", "maxtext"; "hf" binds the hub to itself, or to one of its spellings
  std::vector<std::string> spellings;     ///< hf: names of [spellings] that hold; empty = as released
  bool stacked_layers = true;             ///< mcore: one tensor with a leading layer axis, or a number in the name
  int stack_axis = 0;                     ///< mcore 0, MaxText param_scan_axis
  std::optional<std::int64_t> padded_vocab;  ///< rows after the `vocab` op; required when a row uses it
  bool split_gate_up = false;             ///< mcore singleton_local_shards: `weight_w` and `weight_v`
  std::string consumer;                   ///< mcore: whose names; empty = the family's first
  bool stacked_experts = true;            ///< false, mcore singleton_local_shards: the expert's number before the name
};

/// A hub name in the spellings' prefixes.
[[nodiscard]] std::string SpelledName(const FamilyFile& family, const std::vector<std::string>& spellings, const std::string& hub_name);

/// kUnsupported when every row of the dialect is "-", or when layers of different kinds are to be stacked. Aborts never on input: impossible sizes are kUsage.
[[nodiscard]] Result<Binding> Bind(const FamilyFile& family, const Model& model, const BindOptions& options);

}  // namespace crossdock::family
