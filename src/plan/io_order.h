// SPDX-License-Identifier: Apache-2.0
/// \file  I/O order: tasks in the order of the source's bytes, and small neighbours joined.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace crossdock::plan {

/// Sorts by (file, offset) of each task's first read, then by what it writes: sources are read front to back.
/// Tasks that read nothing (pure padding) come first.
[[nodiscard]] std::vector<Task> InSourceOrder(std::vector<Task> tasks, const Catalog& source);

/// Joins consecutive tasks while their buffers together stay within `limit` (norms and biases by the thousand would
/// each cost a turn of the queue and a line of the journal). Tasks that quantize stay alone.
[[nodiscard]] std::vector<Task> JoinSmall(std::vector<Task> tasks, std::int64_t limit);

}  // namespace crossdock::plan
