// SPDX-License-Identifier: Apache-2.0
/// `crossdock families`.
#include "cli/commands.h"

namespace crossdock::cli {

Result<Report> RunFamilies(const Request& request, const Machine&, const Hooks&) {
  if (request.positionals.size() > 1) return MissingWord(request, "at most one NAME");
  return Families(request.positionals.empty() ? "" : request.positionals.front());
}

}  // namespace crossdock::cli
