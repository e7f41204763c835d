// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/manifest.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "formats/ocdbt/columns.h"
#include "formats/ocdbt/envelope.h"

namespace crossdock::formats::ocdbt {
namespace {

constexpr std::uint64_t kMostVersions = std::uint64_t{1} << 20U;
constexpr std::uint64_t kTallest = 255;
constexpr char kArityLog2 = 4;

/// The version of a tree of which nothing lies anywhere.
Result<Root> EmptyRoot(Root root, std::uint64_t offset, std::uint64_t length) {
  if (offset != kNowhere || length != kNowhere || root.height != 0) return Malformed("an empty tree that lies somewhere");
  return root;
}

/// The last of the inline versions.
Result<Root> ReadVersions(Cursor& cursor, const std::vector<DataFile>& files) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t count, cursor.Uv(kMostVersions, "the number of generations"));
  if (count == 0) return Malformed("a manifest without a generation");
  CROSSDOCK_ASSIGN_OR_RETURN(const auto generations, cursor.Column(count, kNowhere, "a generation"));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view heights, cursor.Bytes(count));
  std::vector<std::uint64_t> columns[6];
  for (auto& column : columns) {
    CROSSDOCK_ASSIGN_OR_RETURN(column, cursor.Column(count, kNowhere, "a number"));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view times, cursor.Bytes(8 * count));
  for (std::size_t i = 0; i < count; ++i) {
    if (generations[i] == 0 || (i > 0 && generations[i] <= generations[i - 1])) return Malformed("generations that do not ascend");
    if (columns[0][i] >= files.size()) return Malformed("a file that its table does not have");
  }
  const auto last = static_cast<std::size_t>(count - 1);
  Cursor time(times.substr(8 * last));
  Root root;
  root.generation = generations[last];
  root.height = static_cast<std::uint8_t>(heights[last]);
  root.file = files[static_cast<std::size_t>(columns[0][last])];
  root.statistics = {columns[3][last], columns[4][last], columns[5][last]};
  CROSSDOCK_ASSIGN_OR_RETURN(root.commit_time_ns, time.U64());
  const std::uint64_t offset = columns[1][last];
  const std::uint64_t length = columns[2][last];
  if (root.file.path().empty()) return EmptyRoot(root, offset, length);
  if (root.file.relative.empty()) return Malformed("a data file without a name");
  if (offset > kLargestOffset || length > kLargestOffset - offset) return Malformed("a place beyond any file");
  root.offset = static_cast<std::int64_t>(offset);
  root.length = static_cast<std::int64_t>(length);
  return root;
}

/// Read for their form alone.
Status SkipOlder(Cursor& cursor, const std::vector<DataFile>& files) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t count, cursor.Uv(kMostVersions, "the number of older generations"));
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const auto generations, cursor.Column(count, kNowhere, "a generation"));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto numbers, cursor.Column(count, kNowhere, "a file"));
  if (std::ranges::any_of(numbers, [&](std::uint64_t file) { return file >= files.size(); })) return Malformed("a file that its table does not have");
  for (int column = 0; column < 3; ++column) {
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const auto rest, cursor.Column(count, kNowhere, "a number"));
  }
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const auto times, cursor.Bytes(8 * count));
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const auto heights, cursor.Bytes(count));
  return OkStatus();
}

}  // namespace

Result<Manifest> ReadManifest(std::string_view record) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string body, OpenEnvelope(Record::kManifest, record));
  Cursor cursor(body);
  Manifest out;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view uuid, cursor.Bytes(out.uuid.size()));
  std::ranges::copy(uuid, out.uuid.begin());
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint8_t kind, cursor.U8());
  if (kind > 1) {
    return MakeError(ErrorCode::kUnsupported, "an OCDBT manifest is of a kind that is not read")
        .WithExpected("0 (single) or 1 (numbered)").WithFound(std::to_string(kind));
  }
  out.numbered = kind == 1;
  CROSSDOCK_ASSIGN_OR_RETURN(out.largest_inline, cursor.Uv());
  CROSSDOCK_ASSIGN_OR_RETURN(out.largest_node, cursor.Uv());
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const std::uint8_t arity, cursor.U8());
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t compression, cursor.Uv(1, "the compression"));
  if (compression == 1) {
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const std::string_view level, cursor.Bytes(4));
  }
  if (!out.numbered) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<DataFile> files, ReadFileTable(cursor, ""));
    CROSSDOCK_ASSIGN_OR_RETURN(out.newest, ReadVersions(cursor, files));
    CROSSDOCK_RETURN_IF_ERROR(SkipOlder(cursor, files));
  }
  CROSSDOCK_RETURN_IF_ERROR(cursor.End());
  return out;
}

std::string WriteManifest(const Manifest& manifest) {
  CROSSDOCK_CHECK(manifest.newest && !manifest.numbered);
  const Root& root = *manifest.newest;
  CROSSDOCK_CHECK(root.height >= 0 && root.height <= static_cast<int>(kTallest));
  std::string body(manifest.uuid.begin(), manifest.uuid.end());
  body += '\0';
  PutUv(body, manifest.largest_inline);
  PutUv(body, manifest.largest_node);
  body += kArityLog2;
  PutUv(body, 1);       // zstd
  body.append(4, '\0');  // at its default level
  PutFileTable(body, {root.file});
  PutUv(body, 1);
  PutUv(body, root.generation);
  body += static_cast<char>(root.height);
  PutUv(body, 0);
  PutUv(body, root.empty() ? kNowhere : static_cast<std::uint64_t>(root.offset));
  PutUv(body, root.empty() ? kNowhere : static_cast<std::uint64_t>(root.length));
  PutUv(body, root.statistics.keys);
  PutUv(body, root.statistics.tree_bytes);
  PutUv(body, root.statistics.indirect_bytes);
  PutU64(body, root.commit_time_ns);
  PutUv(body, 0);
  return Envelope(Record::kManifest, body);
}

}  // namespace crossdock::formats::ocdbt
