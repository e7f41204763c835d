// SPDX-License-Identifier: Apache-2.0
/// `crossdock inspect`.
#include "cli/commands.h"
#include "cli/heap.h"

namespace crossdock::cli {

Result<Report> RunInspect(const Request& request, const Machine& machine, const Hooks& hooks) {
  InspectOptions options;
  CROSSDOCK_ASSIGN_OR_RETURN(const Ends ends, ResolveEnds(request, machine));
  if (ends.source.empty()) return MissingWord(request, "PATH");
  if (!ends.target.empty()) {
    return MakeError(ErrorCode::kUsage, "`crossdock inspect` looks at one path").WithFound("`" + Printable(ends.target) + "`");
  }
  options.path = ends.source;
  CROSSDOCK_ASSIGN_OR_RETURN(options.from, request.One("from"));
  CROSSDOCK_ASSIGN_OR_RETURN(options.family, request.One("family"));
  CROSSDOCK_ASSIGN_OR_RETURN(options.rules, request.One("rules"));
  CROSSDOCK_ASSIGN_OR_RETURN(options.step, WantedStep(request));
  options.hf_template = ends.hf_template;
  options.tensors = request.Flag("tensors");
  CROSSDOCK_ASSIGN_OR_RETURN(options.allow, AllowedThings(request));
  options.json = request.by_program || request.Flag("json");
  options.text = request.by_program || !options.json;
  options.last = !request.by_program;
  // The heap is this command's alone. The table of a DCP is read in few large pieces, which are best given back at once.
  const auto dcp = [&](const char* file) { return machine.exists(options.path + "/" + file); };
  if (options.last && !dcp(".metadata") && !dcp("latest_checkpointed_iteration.txt")) UseLargePages();
  return Inspect(options, hooks);
}

}  // namespace crossdock::cli
