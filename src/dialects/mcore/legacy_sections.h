// SPDX-License-Identifier: Apache-2.0
/// \file  Parameters of a gated delta net that torch_dist keeps section by section (`in_proj.weight.query`, ...) and a rank's module as
/// one tensor, each of whose sections is cut among the tensor-parallel ranks on its own.
/// Source: megatron-core 0.19.2, ssm/gated_delta_net (in_proj_split_sections, sharded_state_dict).
/// Errors: kCorrupt for rows that the sections do not make up. Threads: functions are pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::mcore {

struct Section {
  std::string_view name;     ///< "query"
  std::int64_t rows = 0;     ///< of all ranks together
};

/// The sections of a module's parameter by its torch_dist key, in their order; empty for one that has none. `args`: the run's.
[[nodiscard]] std::vector<Section> SectionsOf(std::string_view key, const Value& args);

/// The rows of one section in what one of `ranks` ranks holds of all of them.
[[nodiscard]] Result<expr::Expr> SectionOfRank(const expr::Expr& local, const std::vector<Section>& sections, std::size_t at, int ranks);

/// Puts the sections of a target back together, parameters and optimizer state alike: one entry under the module's name, the chunks
/// of a rank its parts of all sections. Entries stay sorted by name.
[[nodiscard]] Status FuseSections(TargetState* target);

}  // namespace crossdock::dialects::mcore
