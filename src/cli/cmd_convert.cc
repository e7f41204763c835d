// SPDX-License-Identifier: Apache-2.0
/// `crossdock convert` and `crossdock plan`.
#include "cli/commands.h"

namespace crossdock::cli {

Result<Report> RunConvert(const Request& request, const Machine& machine, const Hooks& hooks) {
  CROSSDOCK_ASSIGN_OR_RETURN(const ConvertOptions options, BuildConvertOptions(request, machine));
  if (options.to.empty()) return MissingWord(request, "`--to FORMAT`");
  if (options.target.empty() && !options.manifest_only) return MissingWord(request, "TARGET");
  return options.manifest_only ? Manifest(options, hooks) : Convert(options, hooks);
}

}  // namespace crossdock::cli
