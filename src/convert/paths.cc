// SPDX-License-Identifier: Apache-2.0
#include "convert/paths.h"

#include <filesystem>
#include <system_error>

#include "io/storage.h"

namespace crossdock::convert {

std::string Canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(io::AbsolutePath(path), error);
  std::string text = error ? path : resolved.string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

bool Inside(const std::string& inner, const std::string& outer) {
  return inner == outer || (inner.starts_with(outer) && (outer.ends_with('/') || inner[outer.size()] == '/'));
}

}  // namespace crossdock::convert
