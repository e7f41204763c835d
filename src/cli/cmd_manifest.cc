// SPDX-License-Identifier: Apache-2.0
/// `crossdock manifest`: nothing is converted, so TARGET is the file it is written to.
#include "cli/commands.h"

namespace crossdock::cli {

Result<Report> RunManifest(const Request& request, const Machine& machine, const Hooks& hooks) {
  CROSSDOCK_ASSIGN_OR_RETURN(ConvertOptions options, BuildConvertOptions(request, machine));
  if (!options.emit_manifest && !options.target.empty()) options.emit_manifest = options.target;
  options.target.clear();
  options.manifest_only = true;
  return Manifest(options, hooks);
}

}  // namespace crossdock::cli
