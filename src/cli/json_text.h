// SPDX-License-Identifier: Apache-2.0
/// \file  JSON of the command line itself: a string literal, and an Error as the object that --json prints.
/// Fields may be added, never changed. Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "crossdock/error.h"

namespace crossdock::cli {

/// `text` as a JSON string with its quotes; bytes that are no UTF-8 are replaced.
[[nodiscard]] std::string JsonText(std::string_view text);
/// {"error": {"code": ..., "exit_status": ..., "message": ..., "path": ..., "tensor": ..., ...}}
[[nodiscard]] std::string ErrorJson(const Error& error);

}  // namespace crossdock::cli
