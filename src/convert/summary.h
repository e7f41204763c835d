// SPDX-License-Identifier: Apache-2.0
/// \file  What a conversion has to tell: as text for people and as JSON. Built from the source, the target and what the
/// executor counted; the same for a dry run, with estimates in place of measurements.
/// Fields of the JSON may be added, never changed. Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/partition.h"
#include "convert/source.h"
#include "convert/target.h"
#include "crossdock/convert.h"
#include "execute/executor.h"

namespace crossdock::convert {

/// What the process needed, from the kernel's accounting.
struct Measures {
  double seconds = 0;
  std::int64_t peak_rss = 0;        ///< VmHWM, file-backed pages included
  std::int64_t peak_anonymous = 0;  ///< the largest RssAnon that was seen
};

struct Outcome {
  execute::ExecuteReport report;
  Measures measures;
  bool verified = false;            ///< --verify compared everything
  std::int64_t reopened = 0;        ///< tensors counted in the result when it was opened again
  std::int64_t copied_files = 0;
  bool complete_before = false;     ///< --resume: the target was whole already, nothing was written
  bool dropped = false;             ///< an earlier run's unfinished work was removed
  std::optional<std::string> replaced;  ///< --force: the format of what lay at the target before
};

struct Totals {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  void Add(std::int64_t more) {
    ++tensors;
    bytes += more;
  }
};
struct SlotTotals {
  Totals read, written;
};

/// What is counted over all tensors and their expressions: these need not live until the summary is written.
struct Tally {
  std::map<Slot, SlotTotals> slots;
  Partition partition;              ///< of the source's hub tensors; empty where it has no hub or no optimizer state
  std::vector<std::string> casts;   ///< "55 tensors cast from BF16 to F32", for every pair of dtypes that occurs
};
[[nodiscard]] Tally TallyOf(const Source& source, const Target& target);

/// Source, target and everything both sides reported, before and after the run. Looks at no tensor of either.
[[nodiscard]] Report MakeSummary(const Source& source, const Target& target, const ConvertOptions& options, const Tally& tally,
                                 const Outcome& outcome);

/// --dry-run: files and bytes with the total first, stages, what is left out, disk and peak memory needed; and, from
/// `would_begin`, why the real run would be refused.
[[nodiscard]] Report MakePlanReport(const Source& source, const Target& target, const ConvertOptions& options,
                                    std::int64_t free_bytes, const Status& would_begin = OkStatus());

/// "1.5 GiB", "17 bytes".
[[nodiscard]] std::string HumanBytes(std::int64_t bytes);
/// Lines under a heading, at most `limit` of them, the rest counted. Empty for no lines.
[[nodiscard]] std::string Section(const std::string& heading, const std::vector<std::string>& lines, std::size_t limit = 40);
[[nodiscard]] std::vector<std::string> LeftOutLines(const std::vector<dialects::LeftOut>& left_out);
[[nodiscard]] Value LeftOutJson(const std::vector<dialects::LeftOut>& left_out);
[[nodiscard]] Value StringList(const std::vector<std::string>& lines);
/// RssAnon of this process now, and VmHWM; 0 where /proc has none.
[[nodiscard]] std::int64_t AnonymousNow();
[[nodiscard]] std::int64_t PeakRss();

}  // namespace crossdock::convert
