// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "cli/commands.h"

int main(int argc, char** argv) {
  crossdock::cli::Machine machine;
  machine.environment = [](const char* name) -> const char* { return std::getenv(name); };
  machine.exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    machine.variables.emplace_back(text.substr(0, text.find('=')));
  }
  return crossdock::cli::RunProgram(std::vector<std::string>(argv + 1, argv + argc), machine);
}
