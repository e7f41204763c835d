// SPDX-License-Identifier: Apache-2.0
/// \file  Plan JSON: a plan in numbers as one JSON object, for scripts. Fields may be added, never changed:
/// {total_bytes, files: [{path, bytes}], slots: [{slot, tensors, bytes_read, bytes_written}], tensors, bytes_read,
///  bytes_written, tasks, reads, largest_task_bytes, peak_memory_bytes, plan_hash}
#pragma once

#include <string>

#include "plan/explain.h"
#include "tensor/value.h"

namespace crossdock::plan {

/// As a Value, to be put into a larger report.
[[nodiscard]] Value PlanValue(const PlanSummary& summary);
[[nodiscard]] std::string PlanJson(const PlanSummary& summary);

}  // namespace crossdock::plan
