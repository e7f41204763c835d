// SPDX-License-Identifier: Apache-2.0
/// `crossdock demo`.
#include "cli/commands.h"

namespace crossdock::cli {

Result<Report> RunDemo(const Request& request, const Machine&, const Hooks& hooks) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> target, request.One("target"));
  std::vector<std::string> words = request.positionals;
  if (target) words.insert(words.begin(), *target);
  if (words.size() != 1) return MissingWord(request, "one directory, DIR");
  return Demo(words.front(), hooks);
}

}  // namespace crossdock::cli
