// SPDX-License-Identifier: Apache-2.0
/// \file  Staging: the durable commit of a directory. Nothing is at the target until everything is durable.
/// Protocol, and why each step is there:
///  1. The staging directory `<parent>/.<name>.crossdock-partial` is made beside the target (one file system, so
///     that a rename is possible) and locked, so that two runs into one target do not mix.
///  2. Files are written and synced into it; `journal` in it records what is done, for --resume.
///  3. Commit: the journal is removed, every directory of the tree is synced bottom-up, then the tree is renamed to
///     the target: directly when nothing is there, by RENAME_EXCHANGE when a target is replaced (the old tree is
///     then under the staging name and removed), else by two renames under a recovery record
///     `.<name>.crossdock-replace` that the next command finishes. The parent is synced.
///  4. Markers (the tracker file a consumer looks for) are written beside by temporary name, sync, rename, sync.
/// A killed run leaves the old state or the new one, never a mixture.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "crossdock/result.h"
#include "io/storage.h"

namespace crossdock::io {

struct StagingOptions {
  bool replace = false;   ///< an existing target may be replaced (--force)
  bool resume = false;    ///< take over what an interrupted run left
};

/// A marker to be written after the rename: absolute path and content.
struct Marker {
  std::string path;
  std::string content;
};

class Staging {
 public:
  /// Finishes an interrupted replace if a recovery record is there, checks that `target` may be written (kUsage with
  /// hint `--force` when it exists), makes missing parents, makes or takes over and locks the staging directory.
  /// Without `resume` a left-over staging directory is removed first (its lock must be free).
  [[nodiscard]] static Result<std::unique_ptr<Staging>> Begin(Storage& storage, const std::string& target,
                                                              const StagingOptions& options);
  virtual ~Staging() = default;   ///< does not remove: an interrupted run can be resumed
  [[nodiscard]] virtual const std::string& dir() const = 0;          ///< where files are to be written
  [[nodiscard]] virtual std::string journal_path() const = 0;
  [[nodiscard]] virtual bool resuming() const = 0;                   ///< there was something to take over
  [[nodiscard]] virtual Status Commit(const std::vector<Marker>& markers) = 0;
  /// Removes the staging directory (a refusal that needed data, a full disk); parents made by Begin go too.
  [[nodiscard]] virtual Status Discard() = 0;
};

}  // namespace crossdock::io
