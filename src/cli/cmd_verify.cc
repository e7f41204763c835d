// SPDX-License-Identifier: Apache-2.0
/// `crossdock verify`.
#include "cli/commands.h"
#include "cli/values.h"

namespace crossdock::cli {

Result<Report> RunVerify(const Request& request, const Machine& machine, const Hooks& hooks) {
  VerifyOptions options;
  CROSSDOCK_ASSIGN_OR_RETURN(const Ends ends, ResolveEnds(request, machine));
  if (ends.source.empty() || ends.target.empty()) return MissingWord(request, "two paths, A and B");
  options.a = ends.source;
  CROSSDOCK_ASSIGN_OR_RETURN(options.b, ResolvePath(ends.target, machine));
  options.hf_template = ends.hf_template;
  CROSSDOCK_ASSIGN_OR_RETURN(options.from_a, request.One("from"));
  CROSSDOCK_ASSIGN_OR_RETURN(options.from_b, request.One("from-b"));
  CROSSDOCK_ASSIGN_OR_RETURN(options.family, request.One("family"));
  CROSSDOCK_ASSIGN_OR_RETURN(options.rules, request.One("rules"));
  CROSSDOCK_ASSIGN_OR_RETURN(options.report, request.One("report"));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> exact, request.One("exact"));
  if (exact) {
    CROSSDOCK_ASSIGN_OR_RETURN(options.exact, ParseChoice("exact", *exact, "bit close"));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(options.step, WantedStep(request));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> memory, request.One("memory"));
  if (memory) {
    CROSSDOCK_ASSIGN_OR_RETURN(options.memory, ParseSize("memory", *memory));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(options.allow, AllowedThings(request));
  return Verify(options, hooks);
}

}  // namespace crossdock::cli
