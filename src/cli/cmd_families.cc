// SPDX-License-Identifier: Apache-2.0
/// `crossdock families`.
#include "cli/commands.h"

namespace crossdock::cli {

Result<Report> RunFamilies(const Request& request, const Machine&, const Hooks&) {
  if (request.positionals.size() > 1) return MissingWord(request, "at most one NAME");
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> rules, request.One("rules"));
  return Families(request.positionals.empty() ? "" : request.positionals.front(), rules);
}

}  // namespace crossdock::cli
