// SPDX-License-Identifier: Apache-2.0
/// \file  The optimizer's state in a run: which rank holds which part, as entries of the run's catalog, and as tensors of torch_dist.
/// Every state is one flat tensor of its parameter's elements, row-major as the rank holds them, in chunks: one where a rank holds all of
/// it, several where data-parallel ranks divide it (Megatron's distributed optimizer). Ranks that hold the same part are copies.
/// torch_dist divides a state as its parameter (megatron-core 0.19.2), so it is seen by its parameter's own expression.
/// Ranks that divide a state need not be of one directory: the data-parallel ranks of a dense parameter are of several expert ranks, those
/// of an expert may be of several tensor ranks. All that hold the same parameter (Twins) hold one state.
/// Errors: kUsage for names that mean nothing, and where ranks do not fit together; kIncomplete for a part that no rank holds.
/// Threads: functions are pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/live_names.h"
#include "crossdock/options.h"
#include "crossdock/result.h"
#include "dialects/mcore/global_view.h"
#include "dialects/mcore/keys.h"
#include "tensor/catalog.h"

namespace crossdock::convert {

/// A chunk of the run's catalog: what one tensor of a rank is.
struct LivePart {
  std::int32_t entry = -1;
  std::int32_t chunk = 0;
  auto operator<=>(const LivePart&) const = default;
};

struct RunStates {
  std::vector<std::map<std::string, LivePart>> parts;   ///< by rank: its names -> what they are
  std::map<LivePart, std::vector<int>> holders;         ///< ranks
};

/// Which parameters of a run are the same one in several directories: dense ones where stage and tensor rank are equal, experts where stage,
/// expert rank and tensor rank within the expert are.
class Twins {
 public:
  Twins(const Catalog& run, const LayoutOptions& layout);
  /// One name for all that are the same. `entry`: a parameter's name.
  [[nodiscard]] const std::string& First(const std::string& entry) const { return first_.at(entry); }

 private:
  std::map<std::string, std::string> first_;
};

/// Adds the states to the catalog of a run, whose entries are its parameters, and sorts it. `names`, `directories`: by rank.
[[nodiscard]] Result<RunStates> AddStates(const std::vector<std::vector<std::string>>& names, const std::vector<std::string>& directories, const Twins& twins, Catalog* run);

/// Adds to a view of the run's parameters the states under torch_dist's keys. REQUIRES: `view` was made of `run`, states included.
[[nodiscard]] Status SeeStates(const Catalog& run, const Twins& twins, dialects::mcore::OptimizerForm form, dialects::mcore::GlobalView* view);

}  // namespace crossdock::convert
