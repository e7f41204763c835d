// SPDX-License-Identifier: Apache-2.0
/// \file  Explain: a plan in numbers, as the text that `--dry-run` prints.
/// plan_json.h prints the same numbers as JSON; both start from Summarise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "tensor/slot.h"

namespace crossdock::plan {

struct SlotTotals {
  Slot slot = Slot::kParam;
  std::int64_t tensors = 0;  ///< of the target
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
};

struct PlanSummary {
  std::int64_t total_bytes = 0;   ///< of all files that will be there
  std::vector<FileRef> files;     ///< tensors' files, then side files, then the format's own
  std::vector<SlotTotals> slots;  ///< those that occur
  std::int64_t tensors = 0;
  std::int64_t tasks = 0;
  std::int64_t reads = 0;  ///< boxes that are read
  std::int64_t largest_task = 0;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t peak_memory = 0;
  std::string hash;
};

/// `metadata` are the files that the writer adds at the end (CheckpointWriter::MetadataFiles).
[[nodiscard]] PlanSummary Summarise(const Plan& plan, const Catalog& source, const Catalog& target,
                                    std::span<const FileRef> metadata);

/// A table of text, the total first, lines ending in '\n'. At most `max_files` files are named.
[[nodiscard]] std::string ExplainPlan(const PlanSummary& summary, std::size_t max_files = 40);
[[nodiscard]] std::string ExplainPlan(const Plan& plan, const Catalog& source, const Catalog& target,
                                      std::span<const FileRef> metadata);

}  // namespace crossdock::plan
