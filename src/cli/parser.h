// SPDX-License-Identifier: Apache-2.0
/// \file  From settled words to a Request: the command, its positionals and the values of its options.
/// An option that was not given is looked up in the environment as CROSSDOCK_<OPTION>, by rule and not by list.
/// The only file that includes CLI11 is parser.cc. Errors: kUsage; kUnsupported for options of a later version.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/words.h"
#include "crossdock/result.h"

namespace crossdock::cli {

class Request {
 public:
  const CommandSpec* command = nullptr;
  std::vector<std::string> positionals;
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  bool by_program = false;   ///< called, not typed: the process goes on, and wants every form of the report

  /// All values of a repeatable option.
  [[nodiscard]] std::vector<std::string> All(std::string_view name) const;
  /// The value of an option, or nothing. kUsage when it was given twice with different values.
  [[nodiscard]] Result<std::optional<std::string>> One(std::string_view name) const;
  [[nodiscard]] bool Flag(std::string_view name) const;
};

using Environment = std::function<const char*(const char*)>;

[[nodiscard]] Result<Request> ParseWords(const Words& words, const Environment& environment);
/// The help of one command, or of the whole program when `command` is null.
[[nodiscard]] std::string HelpText(const CommandSpec* command);
/// "CROSSDOCK_MAX_SHARD_SIZE" for "max-shard-size".
[[nodiscard]] std::string EnvironmentName(std::string_view option);
/// A line for each variable that is called CROSSDOCK_... and sets nothing, with the nearest that does.
[[nodiscard]] std::vector<std::string> UnknownVariables(const std::vector<std::string>& names);

}  // namespace crossdock::cli
