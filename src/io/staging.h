// SPDX-License-Identifier: Apache-2.0
/// \file  Staging: the durable commit of a directory. Nothing is at the target until everything is durable.
/// Protocol, and why each step is there:
///  1. `<parent>/.<name>.crossdock-lock` is locked, so that two runs into one target do not mix. It lies beside
///     the staging directory and not in it: what is renamed to the target must not carry it along.
///  2. The staging directory `<parent>/.<name>.crossdock-partial` is made beside the target (one file system, so
///     that a rename is possible).
///  3. Files are written and synced into it; `.crossdock-journal` in it records what is done, for --resume.
///  4. Commit: every directory of the tree is synced bottom-up, then a commit record `.<name>.crossdock-commit` is
///     written and synced: the inode of the staged tree and the markers. Up to here the run can be resumed or
///     discarded; from here on every step can be repeated, and the next Begin repeats them if this process dies.
///  5. The journal is removed and the tree is renamed to the target: directly when nothing is there, by RENAME_EXCHANGE
///  when a target is
///     replaced (the old tree then has the staging name), else by two renames over `.<name>.crossdock-old`.
///     The parent is synced.
///  6. Markers (the tracker file a consumer looks for) are written by temporary name, sync, rename, sync.
///  7. The replaced tree, the record and the lock file are removed.
/// A killed run leaves the old state or the new one, never a mixture.
/// Errors: kUsage for a target that is in the way, kIo when another process works on it. Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "crossdock/result.h"
#include "io/storage.h"

namespace crossdock::io {

struct StagingOptions {
  bool replace = false;  ///< an existing target may be replaced (--force)
  bool resume = false;   ///< take over what an interrupted run left
};

/// What Begin found of earlier runs.
enum class Earlier : std::uint8_t {
  kNothing,    ///< a new staging directory was made
  kResuming,   ///< an interrupted run's staging directory was taken over
  kDropped,    ///< one was removed: `resume` was not asked for, or it had no journal
  kCommitted,  ///< Begin finished an interrupted commit, as `resume` asked: the target is complete, nothing is left to do
  kWasThere,   ///< `resume` without `replace`, and a target but no staging directory: it may be complete; nothing was changed
};

/// A marker to be written after the rename: absolute path and content.
struct Marker {
  std::string path;
  std::string content;
};

class Staging {
 public:
  /// Finishes an interrupted commit if its record is there, checks that `target` may be written (kUsage with
  /// hint `--force` when it exists and is no empty directory), makes missing parents, locks, makes or takes over the staging directory.
  /// What became of an earlier run's work: see Earlier. On an error nothing that Begin made is left behind.
  [[nodiscard]] static Result<std::unique_ptr<Staging>> Begin(Storage& storage, const std::string& target,
                                                              const StagingOptions& options);
  virtual ~Staging() = default;                              ///< does not remove: an interrupted run can be resumed
  [[nodiscard]] virtual const std::string& dir() const = 0;  ///< where files are to be written
  [[nodiscard]] virtual std::string journal_path() const = 0;
  [[nodiscard]] virtual Earlier earlier() const = 0;
  [[nodiscard]] bool resuming() const { return earlier() == Earlier::kResuming; }
  /// Nothing is to be written: whether the target is what is wanted, the caller looks at itself.
  [[nodiscard]] bool completed() const { return earlier() == Earlier::kCommitted || earlier() == Earlier::kWasThere; }
  /// When resuming: removes every file and directory but the journal and `files` (relative paths), so that what is
  /// written after the data (side files, metadata) can be created anew.
  [[nodiscard]] virtual Status KeepOnly(const std::vector<std::string>& files) = 0;
  [[nodiscard]] virtual Status Commit(const std::vector<Marker>& markers) = 0;
  /// Removes the staging directory (a refusal that needed data, a full disk); parents made by Begin go too.
  /// Does nothing once Commit has written its record.
  [[nodiscard]] virtual Status Discard() = 0;
};

/// What Begin would refuse, told without making anything: kUsage for a target that is in the way, kIo for a folder that
/// cannot be written. (A lock that another run holds meanwhile is not looked for.)
[[nodiscard]] Status CheckTarget(Storage& storage, const std::string& target, const StagingOptions& options);

/// The journal's place in a staging directory.
[[nodiscard]] std::string JournalPath(const std::string& staging_dir);

}  // namespace crossdock::io
