// SPDX-License-Identifier: Apache-2.0
/// \file  What a launcher has to load: the run's own checkpoint, a full training state, weights alone, or nothing.
/// The run's own latest complete checkpoint wins; else the full state is loaded, and only then a number of consumed samples that
/// the launcher wants to go on from counts; else the weights; else the run starts with nothing. Reads directories and tables, no tensors,
/// and writes nothing.
/// Errors: kUsage (a path that is no run, a number that nothing uses), kIncomplete (nothing where a path was given, a tracker that names a
/// missing or unfinished step), kUnsupported (what the trainer has no switch for). Threads: independent calls may run at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "crossdock/convert.h"
#include "crossdock/result.h"
#include "crossdock/step.h"

namespace crossdock {

struct ResumeOptions {
  std::string run_dir;                                           ///< need not exist yet; of MaxText the run or its `checkpoints`
  std::optional<std::string> full_state_path;                    ///< a checkpoint with optimizer state, of any format
  std::optional<std::int64_t> consumed_train_samples_override;   ///< counts where the full state is loaded
  std::optional<std::string> hf_path;                            ///< weights
  std::optional<StepChoice> step;                                ///< of the run itself
  bool no_optim = false;
  bool no_rng = false;
};

enum class ResumeAction : std::uint8_t { kResume, kLoadFullState, kLoadWeights, kStart };
[[nodiscard]] std::string_view ResumeActionName(ResumeAction action);   ///< "resume", "load_full_state", "load_weights", "start"

struct ResumeDecision {
  ResumeAction action = ResumeAction::kStart;
  std::string reason;                                   ///< one sentence
  std::string format;                                   ///< what lies at `path`, "maxtext"; empty for kStart
  std::string path;                                     ///< the one checkpoint to be loaded
  std::optional<std::int64_t> step;                     ///< of it, where its name or tracker tells
  bool release = false;
  bool load_optim = false;
  bool load_rng = false;
  bool finetune = false;                                ///< DetectResume: it is the pretrained checkpoint
  std::optional<std::int64_t> consumed_train_samples;   ///< what the trainer is to count from instead of what is stored
  std::vector<std::string> arguments;                   ///< words for the trainer's command line; empty where it cannot load the path as it is
  std::vector<std::string> unfinished;                  ///< steps of the run that were passed over
  std::vector<std::string> notices;
};

[[nodiscard]] Result<ResumeDecision> PlanResume(const ResumeOptions& options);

/// What a trainer that reads checkpoints by itself begins with: a checkpoint of `load` by its tracker (or its steps), else weights that lie
/// in `load`, else the same of `pretrained`, whose optimizer and random state are never loaded and whose iteration does not count.
struct DetectOptions {
  std::string load;                      ///< empty: not given
  std::string pretrained;                ///< empty: not given
  std::optional<StepChoice> step;        ///< of `load`
  bool no_optim = false;
  bool no_rng = false;
};
/// kStart only when neither path is given: kIncomplete where one is given and nothing is found, for a start from random weights in its
/// place is found out after days.
[[nodiscard]] Result<ResumeDecision> DetectResume(const DetectOptions& options);
/// The decision as one JSON object (docs/reference/resume-plan.md), in both forms of the report.
[[nodiscard]] Result<Report> ResumePlan(const ResumeOptions& options);

}  // namespace crossdock
