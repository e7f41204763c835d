// SPDX-License-Identifier: Apache-2.0
/// \file  What a collective save is, before a byte moves: the run's tensors seen as the legacy checkpoint that they would make, the
/// Hugging Face directory or the torch_dist iteration that convert makes of that, and this rank's share of the work.
/// A rank holds exactly what its file of a legacy checkpoint would hold. So names, shapes and divisions come from the reference and the
/// layout, through the same way that writes that form; what is read back is what `crossdock convert` would read.
/// The state of the optimizer, which that form only numbers, has entries of its own (export_state.h).
/// Invariant: all ranks with equal options, directories, states and types make plans of one hash.
/// Errors: those of convert; kUsage where no rank holds what is needed.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "convert/export_state.h"
#include "convert/source.h"
#include "convert/target.h"
#include "crossdock/live_save.h"
#include "plan/share_source.h"

namespace crossdock::convert {

struct ExportPlan {
  Source source;                             ///< of kind megatron-legacy; its files are buffers, but for the reference's own
  Target target;                             ///< its plan is empty: see share
  plan::Share share;
  std::map<std::string, LivePart> mine;      ///< tensors of this rank by their names in the run -> chunks of the source
  bool holds_states = false;                 ///< whether any rank holds state of the optimizer
  std::set<LivePart> wanted;                 ///< those of them that the export is made of, by whichever rank
  std::set<LivePart> fed;                    ///< those that this rank's share reads

  [[nodiscard]] const Entry& EntryOf(const LivePart& part) const { return source.reader->catalog().entries[static_cast<std::size_t>(part.entry)]; }
  [[nodiscard]] const Chunk& ChunkOf(const LivePart& part) const { return EntryOf(part).chunks[static_cast<std::size_t>(part.chunk)]; }
};

/// What a rank says of itself before all plan.
struct RankHolds {
  std::string directory;                     ///< of the legacy form that its tensors stand for
  std::vector<std::string> states;           ///< ExportOptions::states
};
[[nodiscard]] RankHolds HeldHere(const ExportOptions& options);
/// As a message to the other ranks, and back.
[[nodiscard]] std::string PackHolds(const RankHolds& holds);
[[nodiscard]] RankHolds UnpackHolds(const std::string& text);

/// Whether a torch_dist iteration is written, and no Hugging Face directory.
[[nodiscard]] bool SavesMegatron(const ExportOptions& options);

/// Which tensors have another type than the reference's, by the source's names.
using ExportTypes = std::map<std::string, DType>;

/// `ranks`: what all of them hold. `storage` outlives the plan.
[[nodiscard]] Result<std::unique_ptr<ExportPlan>> MakeExportPlan(io::Storage& storage, const ExportOptions& options, const std::vector<RankHolds>& ranks,
                                                                 int rank, const ExportTypes& types);

/// The root of the source's catalog: buffers are called `/crossdock-live/<entry>`. Absolute: a trainer may change its directory between two saves.
inline constexpr const char* kLiveRoot = "/crossdock-live";

}  // namespace crossdock::convert
