// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/file_table.h"

#include <algorithm>

#include "io/storage.h"

namespace crossdock::formats::ocdbt {
namespace {

constexpr std::uint64_t kLongestPath = 65535;
constexpr std::uint64_t kMostFiles = std::uint64_t{1} << 20U;

}  // namespace

Result<std::vector<DataFile>> ReadFileTable(Cursor& cursor, std::string_view transitive) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t count, cursor.Uv(kMostFiles, "the number of data files"));
  std::vector<DataFile> files;
  if (count == 0) return files;
  CROSSDOCK_ASSIGN_OR_RETURN(const auto prefixes, cursor.Column(count - 1, kLongestPath, "the length of a path"));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto suffixes, cursor.Column(count, kLongestPath, "the length of a path"));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto bases, cursor.Column(count, kLongestPath, "the length of a path"));
  std::string path;
  files.reserve(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t prefix = i == 0 ? 0 : prefixes[i - 1];
    if (prefix > path.size() || prefix + suffixes[i] > kLongestPath) return Malformed("a path that continues more than there is");
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view suffix, cursor.Bytes(suffixes[i]));
    path.resize(static_cast<std::size_t>(prefix));
    path += suffix;
    if (bases[i] > path.size()) return Malformed("a path shorter than its base");
    const auto base = static_cast<std::size_t>(bases[i]);
    if (transitive.size() + path.size() > kLongestPath) return Malformed("a path of more than 65535 bytes");
    files.push_back({std::string(transitive) + path.substr(0, base), path.substr(base)});
    if (i > 0 && files[i - 1] >= files[i]) return Malformed("data files that are not in order");
    if (!path.empty()) CROSSDOCK_RETURN_IF_ERROR(io::CheckRelativePath(files.back().path()));
  }
  return files;
}

void PutFileTable(std::string& out, const std::vector<DataFile>& files) {
  PutUv(out, files.size());
  if (files.empty()) return;
  std::vector<std::string> suffixes;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::size_t prefix = 0;
    if (i > 0) {
      prefix = CommonPrefix(files[i - 1].path(), files[i].path());
      // It may reach beyond the base only where both have the same.
      if (files[i - 1].base != files[i].base) prefix = std::min({prefix, files[i - 1].base.size(), files[i].base.size()});
      PutUv(out, prefix);
    }
    suffixes.push_back(files[i].path().substr(prefix));
  }
  for (const std::string& suffix : suffixes) PutUv(out, suffix.size());
  for (const DataFile& file : files) PutUv(out, file.base.size());
  for (const std::string& suffix : suffixes) out += suffix;
}

}  // namespace crossdock::formats::ocdbt
