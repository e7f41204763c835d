// SPDX-License-Identifier: Apache-2.0
/// \file  One TOML document as a family file, before its `include` is merged and its names are checked.
/// The only place that knows toml++. Errors: kUsage with file, line and column.
#pragma once

#include <string>
#include <string_view>

#include "family/family_file.h"

namespace crossdock::family {

/// Another family file that this one starts from. As part of a larger model: what stands before its Megatron names, and instead
/// of the start of its hub names.
struct Include {
  std::string file;                              ///< name of another family file
  std::string mcore;
  std::map<std::string, std::string> hub;        ///< "model." -> "model.language_model."

  [[nodiscard]] bool IsPart() const { return !mcore.empty() || !hub.empty(); }
};
struct FamilyDocument {
  FamilyFile file;
  std::vector<Include> includes;                 ///< in the order of the file; later ones win over earlier ones
};
[[nodiscard]] Result<FamilyDocument> ParseFamilyToml(std::string_view text, const std::string& path);

/// kUsage at a line of a family file.
[[nodiscard]] Error FamilyError(const std::string& path, int line, std::string what);

}  // namespace crossdock::family
