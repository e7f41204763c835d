// SPDX-License-Identifier: Apache-2.0
/// \file  A word that nobody else has: processes which share a directory tell each other's files, and those of dead runs, by it.
/// Errors: none. Threads: any.
#pragma once

#include <string>

namespace crossdock::convert {

/// 16 hexadecimal digits of the system's random source.
[[nodiscard]] std::string RandomWord();

}  // namespace crossdock::convert
