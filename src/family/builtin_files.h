// SPDX-License-Identifier: Apache-2.0
/// \file  The texts of families/*.toml, embedded by the build (cmake/EmbedFamilies.cmake), sorted by name.
/// Threads: constant data.
#pragma once

#include <span>
#include <string_view>

namespace crossdock::family {

struct BuiltinFile {
  std::string_view name;   ///< "qwen3.toml"
  std::string_view text;
};
[[nodiscard]] std::span<const BuiltinFile> BuiltinFiles();

}  // namespace crossdock::family
