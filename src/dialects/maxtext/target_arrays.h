// SPDX-License-Identifier: Apache-2.0
/// \file  The arrays of a MaxText checkpoint to be written: names, dtypes, expressions over the source; the tree's rows and the values
/// that no source tensor has (counters, Muon's coefficients).
/// Which parameter belongs to Muon and which to Adam is the source's truth; where the consumer's own rule differs a notice says so.
/// Invariants: entries are sorted by name, each one chunk; every array of the tree is an entry or a scalar.
/// Errors: kIncomplete for hub tensors or state that the target needs, kUnsupported for state that has no place.
#pragma once

#include <string>
#include <vector>

#include "dialects/dialect.h"
#include "dialects/maxtext/consumer.h"
#include "dialects/maxtext/state_tree.h"
#include "dialects/maxtext/tree_binding.h"

namespace crossdock::dialects::maxtext {

struct TargetArrays {
  std::vector<Entry> entries;
  std::vector<expr::Expr> exprs;
  Value tree = Value::MakeList();         ///< rows {"path", "value_type"}, sorted
  Value scalars = Value::MakeDict();      ///< name -> {"dtype", "shape", "values"}
  DType params_dtype = DType::kF32;       ///< of most parameter bytes
  OptimizerKind optimizer = OptimizerKind::kNone;
  std::vector<LeftOut> left_out;
  std::vector<std::string> notices;
};
struct TargetRequest {
  const HubState* hub = nullptr;
  const TreeBinding* binding = nullptr;
  const TargetOptions* options = nullptr;
  Consumer consumer;
  std::int64_t step = 0;
};
[[nodiscard]] Result<TargetArrays> MakeTargetArrays(const TargetRequest& request);

}  // namespace crossdock::dialects::maxtext
