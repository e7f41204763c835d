// SPDX-License-Identifier: Apache-2.0
/// `crossdock resume-plan`.
#include "crossdock/resume_plan.h"

#include "cli/commands.h"
#include "cli/values.h"

namespace crossdock::cli {

Result<Report> RunResumePlan(const Request& request, const Machine& machine, const Hooks&) {
  if (request.positionals.size() != 1) return MissingWord(request, "one directory, RUN_DIR");
  ResumeOptions options;
  options.run_dir = request.positionals.front();
  CROSSDOCK_RETURN_IF_ERROR(CheckLocal(options.run_dir));
  while (options.run_dir.size() > 1 && options.run_dir.ends_with('/')) options.run_dir.pop_back();
  CROSSDOCK_ASSIGN_OR_RETURN(options.full_state_path, request.One("full-state-path"));
  // What launchers of the Ling 3 converter set.
  const char* variable = machine.environment("LOAD_FULL_STATE_PATH");
  if (!options.full_state_path && variable != nullptr && *variable != '\0') options.full_state_path = variable;
  if (options.full_state_path) CROSSDOCK_RETURN_IF_ERROR(CheckLocal(*options.full_state_path));
  CROSSDOCK_ASSIGN_OR_RETURN(options.hf_path, request.One("hf-path"));
  if (options.hf_path) {
    CROSSDOCK_ASSIGN_OR_RETURN(options.hf_path, ResolvePath(*options.hf_path, machine));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> samples, request.One("consumed-train-samples-override"));
  if (samples) {
    CROSSDOCK_ASSIGN_OR_RETURN(options.consumed_train_samples_override, ParseInt("consumed-train-samples-override", *samples, 0));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(options.step, WantedStep(request));
  options.no_optim = request.Flag("no-optim");
  options.no_rng = request.Flag("no-rng");
  return ResumePlan(options);
}

}  // namespace crossdock::cli
