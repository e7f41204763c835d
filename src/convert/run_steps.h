// SPDX-License-Identifier: Apache-2.0
/// \file  The steps of a training run: which are complete, and what its tracker says. Reads names and small files, no tensors.
/// Sources: as formats/recognise.h. Threads: functions are independent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/recognise.h"
#include "formats/registry.h"

namespace crossdock::convert {

struct RunStep {
  formats::StepDir dir;
  std::string path;
  formats::Kind kind = formats::Kind::kHf;
};

struct UnfinishedStep {
  std::string path, reason;
};

struct RunSteps {
  std::string place;                         ///< where the steps lie: MaxText keeps them in `checkpoints`
  bool tracker = false;
  std::vector<RunStep> complete;             ///< by step, `release` first; by what lies in them alone
  std::vector<UnfinishedStep> unfinished;
};

/// `run_dir` is a directory that exists.
[[nodiscard]] RunSteps StepsOfRun(io::Storage& storage, const std::string& run_dir);

/// Of a run that may be writing: the complete steps that the trainer has announced. Where there is a tracker no step above it is taken;
/// megatron-legacy and megatron-zarr have nothing else that tells a finished step, so that without one none is.
/// kCorrupt when the tracker holds no step.
[[nodiscard]] Result<std::vector<RunStep>> AnnouncedSteps(io::Storage& storage, const RunSteps& run);

}  // namespace crossdock::convert
