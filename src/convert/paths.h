// SPDX-License-Identifier: Apache-2.0
/// \file  Paths of the local file system, compared: links resolved, what does not exist yet included.
/// Errors: none: what cannot be resolved stays as it is. Threads: pure but for what the file system says.
#pragma once

#include <string>

namespace crossdock::convert {

/// Absolute, without links, dots and a slash at the end.
[[nodiscard]] std::string Canonical(const std::string& path);
/// Both canonical: `inner` is `outer` or lies below it.
[[nodiscard]] bool Inside(const std::string& inner, const std::string& outer);

}  // namespace crossdock::convert
