// SPDX-License-Identifier: Apache-2.0
/// \file  What a collective save is, before a byte moves: the run's tensors seen as the legacy checkpoint that they would make, the
/// Hugging Face directory that convert makes of that, and this rank's share of the work.
/// A rank holds exactly what its file of a legacy checkpoint would hold. So names, shapes and divisions come from the reference and the
/// layout, through the same way that writes that form; what is read back is what `crossdock convert` would read.
/// Invariant: all ranks with equal options, directories and types make plans of one hash.
/// Errors: those of convert; kUsage where no rank holds what is needed.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "convert/source.h"
#include "convert/target.h"
#include "crossdock/live_save.h"
#include "plan/share_source.h"

namespace crossdock::convert {

struct ExportPlan {
  Source source;                             ///< of kind megatron-legacy; its files are buffers, but for the reference's own
  Target target;                             ///< its plan is empty: see share
  plan::Share share;
  std::map<std::string, std::int32_t> mine;  ///< tensors of this rank's directory by their names in the run -> entries of the source
  std::set<std::int32_t> wanted;             ///< those of them that the export is made of, by whichever rank
  std::set<std::int32_t> fed;                ///< those that this rank's share reads
};

/// Which tensors have another type than the reference's, by the source's names.
using ExportTypes = std::map<std::string, DType>;

/// The directory of the legacy form that a rank's tensors stand for.
[[nodiscard]] std::string ExportDirectory(const ExportOptions& options);

/// `directories`: of all ranks. `storage` outlives the plan.
[[nodiscard]] Result<std::unique_ptr<ExportPlan>> MakeExportPlan(io::Storage& storage, const ExportOptions& options, const std::vector<std::string>& directories,
                                                                 int rank, const ExportTypes& types);

/// The root of the source's catalog: buffers are called `/crossdock-live/<entry>`. Absolute: a trainer may change its directory between two saves.
inline constexpr const char* kLiveRoot = "/crossdock-live";

}  // namespace crossdock::convert
