// SPDX-License-Identifier: Apache-2.0
/// \file  Runs a planned conversion to its end: space check, staging, execution, metadata, the proof, the commit.
/// Order, and why: everything that can be known is checked before the staging directory is made; markers are written
/// after the rename; success is told only after the result was opened again and counted.
/// A run that fails removes its staging directory; one that is interrupted (kCancelled) leaves it for --resume.
/// Errors: kNoSpace with needed and free bytes; those of staging, executor and writers.
#pragma once

#include "convert/source.h"
#include "convert/summary.h"
#include "convert/target.h"
#include "crossdock/options.h"
#include "crossdock/result.h"
#include "io/staging.h"
#include "verify/verify.h"

namespace crossdock::convert {

struct JobResult {
  Outcome outcome;
  verify::Comparison comparison;   ///< with --verify
  bool equal = true;               ///< false: a difference was found, the target is untouched
};

/// `target` is not const: its writer writes its metadata.
[[nodiscard]] Result<JobResult> RunJob(const Source& source, Target* target, io::Storage& storage, const ConvertOptions& options,
                                       const Hooks& hooks);

/// What RunJob would refuse at once: a target that is in the way, a folder that cannot be written. Makes nothing.
[[nodiscard]] Status CheckWouldBegin(io::Storage& storage, const Target& target, const ConvertOptions& options);

/// kNoSpace when the target does not fit where it is staged.
[[nodiscard]] Status CheckSpace(io::Storage& storage, const Target& target, const io::Staging& staging);

/// Everything that is no tensor and no metadata of the format, but markers, into `dir` of `storage`; copies come out of `from`. How many files.
[[nodiscard]] Result<std::int64_t> WriteSideFiles(io::Storage& from, const Target& target, io::Storage& storage, const std::string& dir);

/// What a reader finds must be what the plan said: names, dtypes and shapes, one for one. How many tensors.
[[nodiscard]] Result<std::int64_t> CountAgain(const Catalog& placed, const Catalog& read, const std::string& dir);

/// Free bytes where `path` will lie: of its deepest folder that exists.
[[nodiscard]] Result<std::int64_t> FreeBytesAt(io::Storage& storage, const std::string& path);

/// kUsage when something other than a file lies at a report's path: a rename would replace a device such as /dev/null.
[[nodiscard]] Status CheckReportPath(io::Storage& storage, const std::string& path);

/// Writes a report (receipt, manifest, comparison) whole or not at all, replacing an older one.
[[nodiscard]] Status WriteReportFile(io::Storage& storage, const std::string& path, const std::string& text);

/// A reader of what lies in `dir` now, whatever the directory is called.
[[nodiscard]] Result<Source> OpenResult(io::Storage& storage, const std::string& dir, formats::Kind kind, const Target& target);

}  // namespace crossdock::convert
