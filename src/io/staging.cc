// SPDX-License-Identifier: Apache-2.0
// The protocol and its reasons: staging.h.
#include "io/staging.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "io/commit_record.h"

namespace crossdock::io {
namespace {

/// Something is at the name, be it a link that leads nowhere. A name that cannot be looked at is an error.
Result<bool> IsTaken(Storage& storage, const std::string& path) {
  const auto info = storage.Stat(path);
  if (info) return true;
  if (info.error().code != ErrorCode::kIncomplete) return info.error();
  return storage.ReadLink(path).has_value();
}

/// A directory of no entries: what `mkdir` made for the target beforehand. A link to one is somebody's arrangement.
Result<bool> IsEmptyDir(Storage& storage, const std::string& path) {
  const auto info = storage.Stat(path);
  if (!info || info->kind != FileKind::kDirectory || info->is_symlink) return false;
  CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(path));
  return entries.empty();
}

/// The directory with this inode is at `path`.
Result<bool> IsTree(Storage& storage, const std::string& path, std::uint64_t inode) {
  const auto info = storage.Stat(path);
  if (info) return info->kind == FileKind::kDirectory && !info->is_symlink && info->inode == inode;
  if (info.error().code != ErrorCode::kIncomplete) return info.error();
  return false;
}

/// Syncs every directory of a tree, the deepest first: a directory is durable only with the names in it.
Status SyncTree(Storage& storage, const std::string& root) {
  std::vector<std::string> dirs = {root};
  for (std::size_t i = 0; i < dirs.size(); ++i) {
    const std::string dir = dirs[i];
    CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(dir));
    for (const DirEntry& entry : entries) {
      if (entry.kind == FileKind::kDirectory && !entry.is_symlink) dirs.push_back(JoinPath(dir, entry.name));
    }
  }
  for (auto it = dirs.rbegin(); it != dirs.rend(); ++it) CROSSDOCK_RETURN_IF_ERROR(storage.SyncDir(*it));
  return OkStatus();
}

struct Places {
  std::string target, parent, staging, lock, record, old;
};

Result<Places> PlacesFor(const std::string& target) {
  Places places;
  places.parent = ParentPath(target);
  const std::string name = BaseName(target);
  if (name.empty() || name == "/" || name == "." || name == "..") {
    return MakeError(ErrorCode::kUsage, "the target needs a name of its own")
        .WithPath(target)
        .WithHint("name a new directory, such as `" + JoinPath(target.empty() ? "." : target, "converted") + "`");
  }
  places.target = JoinPath(places.parent, name);
  const auto beside = [&](const char* what) { return JoinPath(places.parent, "." + name + ".crossdock-" + what); };
  places.staging = beside("partial");
  places.lock = beside("lock");
  places.record = beside("commit");
  places.old = beside("old");
  return places;
}

Error ExistsAlready(const Places& places) {
  return MakeError(ErrorCode::kUsage, "the target exists already")
      .WithPath(places.target)
      .WithHint("choose another target, or replace this one with --force");
}

/// Something lies at the target that may not be replaced.
Result<bool> IsInTheWay(Storage& storage, const Places& places, const StagingOptions& options) {
  if (options.replace) return false;
  CROSSDOCK_ASSIGN_OR_RETURN(const bool taken, IsTaken(storage, places.target));
  if (!taken) return false;
  CROSSDOCK_ASSIGN_OR_RETURN(const bool empty, IsEmptyDir(storage, places.target));
  return !empty;
}

class DirStaging final : public Staging {
 public:
  DirStaging(Storage& storage, Places places) : storage_(storage), places_(std::move(places)) {}

  Status Start(const StagingOptions& options);
  /// Undoes what Start made when it fails; errors here would hide the first one.
  void CleanUpAfterFailedStart();

  const std::string& dir() const override { return places_.staging; }
  std::string journal_path() const override { return JournalPath(places_.staging); }
  Earlier earlier() const override { return earlier_; }
  Status KeepOnly(const std::vector<std::string>& files) override;
  Status Commit(const std::vector<Marker>& markers) override;
  Status Discard() override;

 private:
  Status MakeParents();
  Status TakeLock();
  /// Reads a commit record left by a killed run and does what it says; true when there was one to finish.
  Result<bool> FinishInterrupted();
  Status Finish(const CommitRecord& record);
  Status MoveTree(const CommitRecord& record);
  Status PlaceMarker(const Marker& marker);
  Status MakeStagingDir(bool resume);
  void RemoveLock();
  void RemoveMadeParents();

  Storage& storage_;
  Places places_;
  std::vector<std::string> made_parents_;  ///< the outermost first
  std::unique_ptr<WriteFile> lock_;
  bool made_staging_ = false;
  Earlier earlier_ = Earlier::kNothing;
  bool committing_ = false;
};

Status DirStaging::Start(const StagingOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(MakeParents());
  CROSSDOCK_RETURN_IF_ERROR(TakeLock());
  CROSSDOCK_ASSIGN_OR_RETURN(const bool finished, FinishInterrupted());
  CROSSDOCK_ASSIGN_OR_RETURN(const bool in_the_way, IsInTheWay(storage_, places_, options));
  CROSSDOCK_ASSIGN_OR_RETURN(const bool left_over, IsTaken(storage_, places_.staging));
  if (options.resume && (finished || (in_the_way && !left_over))) {
    earlier_ = finished ? Earlier::kCommitted : Earlier::kWasThere;
    RemoveLock();
    return OkStatus();
  }
  if (in_the_way) return ExistsAlready(places_);
  return MakeStagingDir(options.resume);
}

Status DirStaging::MakeParents() {
  std::vector<std::string> missing;
  for (std::string at = places_.parent; at != "." && at != "/"; at = ParentPath(at)) {
    CROSSDOCK_ASSIGN_OR_RETURN(const bool taken, IsTaken(storage_, at));
    if (taken) break;
    missing.push_back(at);
  }
  std::reverse(missing.begin(), missing.end());
  for (const std::string& dir : missing) {
    auto made = storage_.MakeDir(dir);
    if (!made && !Exists(storage_, dir)) return made;
    if (made) made_parents_.push_back(dir);
    CROSSDOCK_RETURN_IF_ERROR(storage_.SyncDir(ParentPath(dir)));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo info, storage_.Stat(places_.parent));
  if (info.kind != FileKind::kDirectory) {
    return MakeError(ErrorCode::kUsage, "the target's parent is no directory").WithPath(places_.parent);
  }
  return OkStatus();
}

Status DirStaging::TakeLock() {
  auto locked = storage_.Lock(places_.lock);
  if (!locked) {
    // The lock is the first file that is made: what forbids it forbids the target.
    Error error = locked.error();
    if (error.hint.empty()) error.hint = "name a target elsewhere";
    return std::move(error).WithPath(places_.parent);
  }
  if (*locked == nullptr) {
    return MakeError(ErrorCode::kIo, "another process is writing to this target")
        .WithPath(places_.target)
        .WithHint("wait until it is done, or choose another target");
  }
  lock_ = std::move(locked).value();
  return OkStatus();
}

Result<bool> DirStaging::FinishInterrupted() {
  CROSSDOCK_ASSIGN_OR_RETURN(const bool there, IsTaken(storage_, places_.record));
  if (!there) return false;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage_, places_.record));
  const auto record = ParseCommitRecord(text);
  // Without a whole record nothing was moved yet; without the staged tree there is nothing left to move.
  bool can_finish = false;
  if (record) {
    CROSSDOCK_ASSIGN_OR_RETURN(const bool staged, IsTree(storage_, places_.staging, record->inode));
    CROSSDOCK_ASSIGN_OR_RETURN(const bool moved, IsTree(storage_, places_.target, record->inode));
    can_finish = staged || moved;
  }
  if (!can_finish) {
    CROSSDOCK_ASSIGN_OR_RETURN(const bool target_taken, IsTaken(storage_, places_.target));
    CROSSDOCK_ASSIGN_OR_RETURN(const bool old_there, IsTaken(storage_, places_.old));
    if (!target_taken && old_there) {
      CROSSDOCK_RETURN_IF_ERROR(storage_.Rename(places_.old, places_.target));
      CROSSDOCK_RETURN_IF_ERROR(storage_.SyncDir(places_.parent));
    }
    CROSSDOCK_RETURN_IF_ERROR(storage_.RemoveFile(places_.record));
    return false;
  }
  CROSSDOCK_RETURN_IF_ERROR(Finish(*record).WithContext("finishing an interrupted commit"));
  return true;
}

Status DirStaging::Finish(const CommitRecord& record) {
  CROSSDOCK_RETURN_IF_ERROR(MoveTree(record));
  CROSSDOCK_RETURN_IF_ERROR(storage_.SyncDir(places_.parent));
  for (const Marker& marker : record.markers) CROSSDOCK_RETURN_IF_ERROR(PlaceMarker(marker));
  // The replaced tree has the staging name after an exchange, else the old one.
  CROSSDOCK_RETURN_IF_ERROR(RemoveTree(storage_, places_.staging));
  CROSSDOCK_RETURN_IF_ERROR(RemoveTree(storage_, places_.old));
  CROSSDOCK_RETURN_IF_ERROR(storage_.RemoveFile(places_.record));
  return storage_.SyncDir(places_.parent);
}

Status DirStaging::MoveTree(const CommitRecord& record) {
  CROSSDOCK_ASSIGN_OR_RETURN(const bool moved, IsTree(storage_, places_.target, record.inode));
  if (moved) return OkStatus();
  CROSSDOCK_RETURN_IF_ERROR(RemoveFileIfPresent(storage_, journal_path()));
  CROSSDOCK_RETURN_IF_ERROR(storage_.SyncDir(places_.staging));
  CROSSDOCK_ASSIGN_OR_RETURN(const bool replacing, IsTaken(storage_, places_.target));
  if (replacing) {
    auto exchanged = storage_.Exchange(places_.staging, places_.target);
    if (exchanged || exchanged.error().code != ErrorCode::kUnsupported) return exchanged;
    CROSSDOCK_RETURN_IF_ERROR(RemoveTree(storage_, places_.old));
    CROSSDOCK_RETURN_IF_ERROR(storage_.Rename(places_.target, places_.old));
  }
  return storage_.Rename(places_.staging, places_.target);
}

Status DirStaging::PlaceMarker(const Marker& marker) {
  const std::string dir = ParentPath(marker.path);
  const std::string temporary = JoinPath(dir, "." + BaseName(marker.path) + ".crossdock-new");
  CROSSDOCK_RETURN_IF_ERROR(RemoveFileIfPresent(storage_, temporary));
  CROSSDOCK_RETURN_IF_ERROR(WriteSmallFile(storage_, temporary, marker.content));
  CROSSDOCK_RETURN_IF_ERROR(storage_.Rename(temporary, marker.path));
  return storage_.SyncDir(dir);
}

Status DirStaging::MakeStagingDir(bool resume) {
  CROSSDOCK_ASSIGN_OR_RETURN(const bool left_over, IsTaken(storage_, places_.staging));
  if (left_over) {
    const auto info = storage_.Stat(places_.staging);
    const bool is_ours = info && info->kind == FileKind::kDirectory && !info->is_symlink;
    CROSSDOCK_ASSIGN_OR_RETURN(const bool has_journal, IsTaken(storage_, journal_path()));
    if (resume && is_ours && has_journal) {
      earlier_ = Earlier::kResuming;
      return OkStatus();
    }
    CROSSDOCK_RETURN_IF_ERROR(RemoveTree(storage_, places_.staging));
    earlier_ = Earlier::kDropped;
  }
  CROSSDOCK_RETURN_IF_ERROR(storage_.MakeDir(places_.staging));
  made_staging_ = true;
  return storage_.SyncDir(places_.parent);
}

Status DirStaging::KeepOnly(const std::vector<std::string>& files) {
  std::set<std::string> kept = {BaseName(journal_path())};
  std::set<std::string> kept_dirs = {""};
  for (const std::string& file : files) {
    kept.insert(file);
    for (std::string dir = ParentPath(file); dir != "." && kept_dirs.insert(dir).second;) dir = ParentPath(dir);
  }
  std::vector<std::string> dirs = {""};
  for (std::size_t i = 0; i < dirs.size(); ++i) {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage_.List(JoinPath(places_.staging, dirs[i])));
    for (const DirEntry& entry : entries) {
      const std::string relative = JoinPath(dirs[i], entry.name);
      const bool is_dir = entry.kind == FileKind::kDirectory && !entry.is_symlink;
      if (is_dir && kept_dirs.contains(relative)) {
        dirs.push_back(relative);
      } else if (is_dir || !kept.contains(relative)) {
        CROSSDOCK_RETURN_IF_ERROR(RemoveTree(storage_, JoinPath(places_.staging, relative)));
      }
    }
  }
  return OkStatus();
}

Status DirStaging::Commit(const std::vector<Marker>& markers) {
  CROSSDOCK_RETURN_IF_ERROR(SyncTree(storage_, places_.staging));
  CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo staged, storage_.Stat(places_.staging));
  CommitRecord record;
  record.inode = staged.inode;
  record.markers = markers;
  auto written = WriteSmallFile(storage_, places_.record, PrintCommitRecord(record));
  if (written) written = storage_.SyncDir(places_.parent);
  if (!written) {
    (void)storage_.RemoveFile(places_.record);  // the run may be resumed or discarded as before
    return written;
  }
  committing_ = true;
  CROSSDOCK_RETURN_IF_ERROR(Finish(record));
  RemoveLock();
  return OkStatus();
}

Status DirStaging::Discard() {
  // Past the point of no return the next Begin finishes it; what was complete already is not ours.
  if (committing_ || completed()) return OkStatus();
  CROSSDOCK_RETURN_IF_ERROR(RemoveTree(storage_, places_.staging));
  RemoveLock();
  RemoveMadeParents();
  return OkStatus();
}

void DirStaging::CleanUpAfterFailedStart() {
  if (made_staging_) (void)storage_.RemoveDir(places_.staging);
  RemoveLock();
  RemoveMadeParents();
}

/// The file goes while it is locked: another process that opened it meanwhile sees so (Storage::Lock) and makes its
/// own. A lock file that stays does no harm, so an error is not worth failing for.
void DirStaging::RemoveLock() {
  if (lock_ == nullptr) return;
  (void)storage_.RemoveFile(places_.lock);
  lock_.reset();
}

void DirStaging::RemoveMadeParents() {
  for (auto it = made_parents_.rbegin(); it != made_parents_.rend(); ++it) (void)storage_.RemoveDir(*it);
}

}  // namespace

Result<std::unique_ptr<Staging>> Staging::Begin(Storage& storage, const std::string& target,
                                                const StagingOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(Places places, PlacesFor(target));
  auto staging = std::make_unique<DirStaging>(storage, std::move(places));
  auto started = staging->Start(options);
  if (!started) {
    staging->CleanUpAfterFailedStart();
    return started.error();
  }
  return std::unique_ptr<Staging>(std::move(staging));
}

Status CheckTarget(Storage& storage, const std::string& target, const StagingOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Places places, PlacesFor(target));
  CROSSDOCK_ASSIGN_OR_RETURN(const bool in_the_way, IsInTheWay(storage, places, options));
  CROSSDOCK_ASSIGN_OR_RETURN(const bool left_over, IsTaken(storage, places.staging));
  if (in_the_way && !(options.resume && !left_over)) return ExistsAlready(places);
  std::string folder = places.parent;  // the deepest that is there
  while (folder != "." && folder != "/") {
    CROSSDOCK_ASSIGN_OR_RETURN(const bool taken, IsTaken(storage, folder));
    if (taken) break;
    folder = ParentPath(folder);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const FileInfo info, storage.Stat(folder));
  if (info.kind != FileKind::kDirectory) return MakeError(ErrorCode::kUsage, "the target's parent is no directory").WithPath(folder);
  CROSSDOCK_ASSIGN_OR_RETURN(const Capabilities can, storage.Probe(folder));
  if (can.writable) return OkStatus();
  return MakeError(ErrorCode::kIo, "cannot write into the folder").WithPath(folder).WithHint("name a target elsewhere");
}

std::string JournalPath(const std::string& staging_dir) { return JoinPath(staging_dir, ".crossdock-journal"); }

}  // namespace crossdock::io
