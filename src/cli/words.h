// SPDX-License-Identifier: Apache-2.0
/// \file  The pass over the words before the parser: it settles spellings, so that the parser sees one form only.
/// In: what the shell gave. Out: the command, its positionals, and options as `--name=value` with the main name.
/// Hyphen and underscore are the same; aliases become the main name; a value that follows is joined to its option;
/// `--fp8` takes the next word only if that is one of its values; key=value words of MaxText become options.
/// Errors: kUsage for unknown options (with the nearest name), missing values and options of another command;
/// kUnsupported for options of a later version. Threads: pure but for `exists`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/option_table.h"
#include "crossdock/result.h"

namespace crossdock::cli {

struct Words {
  const CommandSpec* command = nullptr;  ///< null: no command was named
  std::vector<std::string> options;      ///< `--name=value`
  std::vector<std::string> positionals;
  std::vector<std::string> notices;      ///< what was ignored
  bool help = false;
  bool version = false;
};

/// `exists` says whether a word is a path: then `a=b` is that file and no key=value word.
[[nodiscard]] Result<Words> SettleWords(const std::vector<std::string>& args,
                                        const std::function<bool(const std::string&)>& exists);

/// "true" or "false" for the ways to say so, else nothing.
[[nodiscard]] std::optional<std::string> ParseBool(std::string_view text);

/// True when the words ask for JSON, known before anything is parsed: errors are to be JSON then too.
[[nodiscard]] bool WantsJson(const std::vector<std::string>& args);

}  // namespace crossdock::cli
