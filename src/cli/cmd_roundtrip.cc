// SPDX-License-Identifier: Apache-2.0
/// `crossdock roundtrip`.
#include "cli/commands.h"

namespace crossdock::cli {

Result<Report> RunRoundtrip(const Request& request, const Machine& machine, const Hooks& hooks) {
  RoundtripOptions options;
  CROSSDOCK_ASSIGN_OR_RETURN(options.convert, BuildConvertOptions(request, machine));
  if (options.convert.to.empty()) return MissingWord(request, "`--via FORMAT`");
  CROSSDOCK_ASSIGN_OR_RETURN(options.out, request.One("out"));
  CROSSDOCK_ASSIGN_OR_RETURN(options.report, request.One("report"));
  if (!options.out && !options.convert.target.empty()) options.out = options.convert.target;
  options.convert.target.clear();
  return Roundtrip(options, hooks);
}

}  // namespace crossdock::cli
