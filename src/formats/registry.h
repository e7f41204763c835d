// SPDX-License-Identifier: Apache-2.0
/// \file  The one list of formats: recognises what lies at a path by its content, and opens it.
/// A path may be a run root (latest_checkpointed_iteration.txt, iter_*), one step in it, a Hugging Face directory, a
/// root of reinforcement learning (`actor` and `critic`, each a run), a hub-cache model folder (refs/main is resolved), a directory of full-state safetensors, or one .safetensors file.
/// Errors: kIncomplete (nothing there, unfinished step), kUnsupported (a format that is recognised but cannot be
/// read, named), kUsage (two candidates, or `from` contradicts what was found: both are told).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossdock/step.h"
#include "formats/format.h"

namespace crossdock::formats {

/// The kinds of cli.md: a format with the dialect inside it.
enum class Kind : std::uint8_t { kHf, kFullState, kMegatron, kMegatronLegacy, kMegatronZarr, kDcp, kMaxText, kTunix };
[[nodiscard]] std::string_view KindName(Kind kind);   ///< "hf", "full-state", "megatron", ...
[[nodiscard]] std::optional<Kind> KindFromName(std::string_view name);
[[nodiscard]] constexpr bool IsOrbax(Kind kind) { return kind == Kind::kMaxText || kind == Kind::kTunix; }   ///< a step in a root without a tracker

struct Found {
  Kind kind = Kind::kHf;
  std::string path;                     ///< the directory (or file) of the one checkpoint, links resolved for hub caches
  std::string run_root;                 ///< where the tracker lies; empty when there is none
  std::optional<std::int64_t> step;     ///< from the directory's name; 0 for `release`
  bool release = false;
  std::vector<std::string> notices;     ///< e.g. "no tracker: the highest complete iteration 20 is used"
};

/// Recognises without reading tensors. `step` picks one of a run root. Rules: the
/// tracker's step when there is a tracker; else the highest complete one with a notice; an incomplete step asked
/// for by number is kIncomplete; a wrong level lists the checkpoints found below.
[[nodiscard]] Result<Found> Recognise(io::Storage& storage, const std::string& path,
                                      std::optional<StepChoice> step, std::optional<Kind> from);

[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> Open(io::Storage& storage, const Found& found);

}  // namespace crossdock::formats
