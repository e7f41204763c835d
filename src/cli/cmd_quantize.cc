// SPDX-License-Identifier: Apache-2.0
/// `crossdock quantize`: convert --to hf --fp8, by blocks (or as an FP8 source has it) where nothing else is asked for.
#include "cli/commands.h"

namespace crossdock::cli {

Result<Report> RunQuantize(const Request& request, const Machine& machine, const Hooks& hooks) {
  CROSSDOCK_ASSIGN_OR_RETURN(ConvertOptions options, BuildConvertOptions(request, machine));
  if (options.target.empty()) return MissingWord(request, "TARGET");
  options.to = "hf";
  if (!options.fp8.strategy) options.fp8.strategy = "";
  return Convert(options, hooks);
}

}  // namespace crossdock::cli
