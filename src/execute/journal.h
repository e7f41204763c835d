// SPDX-License-Identifier: Apache-2.0
/// \file  Journal: which tasks of a plan are done and durable, for --resume.
/// On disk, one line each, ended by " *" and the CRC-32 of the line before it as 8 hex digits:
///   crossdock-journal 2 PLAN_HASH TASKS KINDS REQUEST   KINDS: "c" CRC-32s, "d" digests, "-" none; REQUEST: what was
///                                                  asked for, in words with tabs between them
///   TASK SUM SUM ...                               the checksums of the task's output pieces, in plan order: CRC-32 as
///                                                  8 hex digits, then low and high of the digest as 16 each; then, of
///                                                  each encoded output, "+" and its size
/// Invariant: a line is written only after the data of its task is durable. A torn tail is ignored.
/// Errors: kUsage for a journal of another plan. Threads: none; the owner serialises.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "execute/chunk_sums.h"
#include "io/storage.h"

namespace crossdock::execute {

struct JournalHeader {
  std::string plan_hash;
  std::int64_t tasks = 0;
  SumKinds kinds;
  std::string request = {};  ///< one line; tells, never decides
  bool operator==(const JournalHeader&) const = default;
};

struct DoneTask {
  std::int64_t task = 0;
  std::vector<PieceSum> sums;  ///< digests without their lengths, which the plan knows
  std::vector<std::int64_t> encoded = {};  ///< the stored sizes of its encoded outputs, in plan order
};

/// What a journal says. `valid_bytes` is where its first unreadable line begins, or its end.
struct JournalContent {
  JournalHeader header;
  std::vector<DoneTask> done;
  std::int64_t valid_bytes = 0;
};

/// Nothing when not even the header can be read.
[[nodiscard]] std::optional<JournalContent> ParseJournal(std::string_view text);
[[nodiscard]] std::string PrintJournalHeader(const JournalHeader& header);
[[nodiscard]] std::string PrintDoneTask(const DoneTask& done, SumKinds kinds);

class Journal {
 public:
  /// A new journal; one that is there is replaced.
  [[nodiscard]] static Result<Journal> Create(io::Storage& storage, const std::string& path,
                                              const JournalHeader& header);
  /// Goes on behind `valid_bytes` of an existing one.
  [[nodiscard]] static Result<Journal> Continue(io::Storage& storage, const std::string& path,
                                                const JournalContent& content);
  /// Appends and syncs. REQUIRES: the data of the tasks is durable.
  [[nodiscard]] Status Append(const std::vector<DoneTask>& done);

 private:
  Journal(std::unique_ptr<io::WriteFile> file, std::int64_t end, SumKinds kinds)
      : file_(std::move(file)), end_(end), kinds_(kinds) {}
  std::unique_ptr<io::WriteFile> file_;
  std::int64_t end_;
  SumKinds kinds_;
};

}  // namespace crossdock::execute
