// SPDX-License-Identifier: Apache-2.0
/// \file  The tensors of a Megatron checkpoint to be written: names, dtypes, expressions over the source, and one chunk
/// for each part that a (pipeline, tensor) rank of the layout would have written.
/// Invariants: entries are sorted by name; chunks cover each tensor once; a replicated tensor is written by tensor rank 0
/// of its stage; layers of matrices are chunks of their own, so that a rank reads what it needs and no more.
/// Errors: kIncomplete for hub tensors that the target needs, kUnsupported where parts of one tensor belong to Muon and to Adam.
#pragma once

#include <string>
#include <vector>

#include "dialects/dialect.h"
#include "dialects/mcore/kept_dtypes.h"

namespace crossdock::dialects::mcore {

struct TargetTensors {
  std::vector<Entry> entries;
  std::vector<expr::Expr> exprs;
  DType params_dtype = DType::kBF16;      ///< of most parameter bytes
  bool with_optimizer = false;
  bool with_muon = false;                 ///< the optimizer is Muon and Adam chained, neither of them distributed
  KeptDTypes kept_dtypes;                 ///< of hub tensors that are written in F32 since they are computed with
  std::vector<LeftOut> left_out;
  std::vector<std::string> notices;
};
[[nodiscard]] Result<TargetTensors> MakeTargetTensors(const HubState& hub, const family::Binding& binding, const layout::StageMap& stages,
                                                      const TargetOptions& options);

/// Which stage holds a tensor by its name: layers by their number, the embedding first, everything else last.
[[nodiscard]] int StageOfTopLevel(std::string_view name, const layout::StageMap& stages);

}  // namespace crossdock::dialects::mcore
