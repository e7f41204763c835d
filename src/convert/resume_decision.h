// SPDX-License-Identifier: Apache-2.0
/// \file  The decision of crossdock/resume_plan.h over any storage.
/// Errors: as there. Threads: functions are independent.
#pragma once

#include "crossdock/resume_plan.h"
#include "io/storage.h"

namespace crossdock::convert {

[[nodiscard]] Result<ResumeDecision> DecideResume(io::Storage& storage, const ResumeOptions& options);
[[nodiscard]] Result<ResumeDecision> DetectResumeIn(io::Storage& storage, const DetectOptions& options);

}  // namespace crossdock::convert
