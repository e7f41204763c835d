// SPDX-License-Identifier: Apache-2.0
/// \file  A target that is laid out and planned: every file, every offset and every task is known, nothing is written.
/// Errors: kUsage (impossible layouts, target inside the source), kUnsupported, kIncomplete, and the planner's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/source.h"
#include "crossdock/options.h"
#include "crossdock/result.h"
#include "dialects/dialect.h"
#include "dialects/mcore/legacy_target.h"
#include "formats/format.h"
#include "plan/plan.h"

namespace crossdock::convert {

struct Target {
  formats::Kind kind = formats::Kind::kHf;
  std::string root;                                    ///< TARGET as given: for Megatron the run root
  std::string unit;                                    ///< the directory that is renamed into place
  dialects::TargetState state;                         ///< its catalog has moved to `placement`
  std::unique_ptr<formats::CheckpointWriter> writer;
  formats::Placement placement;
  std::vector<expr::Expr> exprs;                       ///< one an entry of placement.catalog
  plan::Plan plan;
  int threads = 1;
  bool resharded = false;                              ///< Megatron to Megatron, or Tunix to MaxText, without a family

  /// Everything that will lie on the disk: tensor files, metadata and side files.
  [[nodiscard]] std::vector<FileRef> AllFiles() const;
};

/// The source's state arranged for the target, without a place: what PrepareTarget lays out. With `only`, of the legacy form, what that
/// one rank holds.
[[nodiscard]] Result<dialects::TargetState> ArrangeTarget(const Source& source, formats::Kind kind, const ConvertOptions& options,
                                                          const std::optional<dialects::mcore::LegacyRankPlace>& only = std::nullopt);

/// Arranges the source's state for the target and lets the writer lay it out; the plan is empty.
[[nodiscard]] Result<Target> PlaceTarget(const Source& source, const ConvertOptions& options);

/// The same, and makes the plan.
[[nodiscard]] Result<Target> PrepareTarget(const Source& source, const ConvertOptions& options);

/// Megatron to Megatron needs no family unless something beside the layout is to change, the padding of the vocabulary
/// included: it keeps its size only while the target's tensor-parallel size divides it.
[[nodiscard]] bool CanReshard(const Source& source, formats::Kind to, const ConvertOptions& options);

/// kUsage when TARGET is the source or the template, lies in it, or holds it: then a replacement would delete what is read.
[[nodiscard]] Status CheckApart(const Source& source, const std::string& target_root, const std::string& unit);

/// kUsage when a report (receipt, manifest, comparison) would be written into a source.
[[nodiscard]] Status CheckReportApart(const Source& source, const std::string& report);

/// kUsage when the manifest, which is written before anything else, would lie in the directory that is to be made.
[[nodiscard]] Status CheckManifestApart(const Target& target, const std::string& manifest);

/// The slot of a target tensor, told by its name ("optim/adam_mu/...", "optimizer.state.exp_avg....").
[[nodiscard]] Slot SlotOfTarget(const Entry& entry);

/// --allow WHAT was given.
[[nodiscard]] bool Allows(const ConvertOptions& options, std::string_view what);

[[nodiscard]] int ThreadCount(int wanted);

}  // namespace crossdock::convert
