// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/zip_directory.h"

#include <algorithm>
#include <optional>

#include "base/checked_math.h"
#include "base/endian.h"

namespace crossdock::formats::torch_zip {
namespace {

constexpr std::int64_t kEndSize = 22;
constexpr std::int64_t kEnd64Size = 56;
constexpr std::int64_t kLocatorSize = 20;
constexpr std::int64_t kRecordSize = 46;
constexpr std::int64_t kLocalSize = 30;
constexpr std::uint32_t kMax32 = 0xFFFFFFFF;
/// A checkpoint of a million tensors in one file has a directory of about 80 MB.
constexpr std::int64_t kLargestDirectory = 512 << 20;

struct End {
  std::int64_t count = 0;
  std::int64_t size = 0;
  std::int64_t offset = 0;
  std::int64_t record_at = 0;  ///< of the first end record, which follows the directory at once
};

template <typename T>
T At(std::string_view bytes, std::int64_t offset) {
  return LoadLittle<T>(bytes.data() + offset);
}

bool IsEnd(std::string_view at) { return at.substr(0, 4) == "PK\5\6"; }

/// Position of the end record in the range. A comment may follow it, so it is searched backwards.
Result<std::int64_t> FindEnd(const RangeReader& range) {
  const std::int64_t longest = kEndSize + 0xFFFF;
  for (std::int64_t window : {kEndSize, std::min(longest, range.size())}) {
    if (window > range.size()) break;
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string tail, range.Read(range.size() - window, window));
    for (std::int64_t at = window - kEndSize; at >= 0; --at) {
      const std::string_view here = std::string_view(tail).substr(static_cast<std::size_t>(at));
      if (IsEnd(here) && At<std::uint16_t>(here, 20) == window - at - kEndSize) return range.size() - window + at;
    }
  }
  return range.Corrupt("a torch file has no end record; it is cut, or no zip", range.size());
}

Result<std::int64_t> Checked64(const RangeReader& range, std::uint64_t value, std::int64_t offset) {
  const auto v = CheckedFromU64(value);
  if (!v) return range.Corrupt("a size in a zip is out of range", offset);
  return *v;
}

/// The zip64 end record, when a locator stands before the end record.
Result<std::optional<End>> ReadEnd64(const RangeReader& range, std::int64_t end_at) {
  if (end_at < kLocatorSize) return std::optional<End>();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string locator, range.Read(end_at - kLocatorSize, kLocatorSize));
  if (locator.substr(0, 4) != "PK\6\7") return std::optional<End>();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t at, Checked64(range, At<std::uint64_t>(locator, 8), end_at));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string record, range.Read(at, kEnd64Size));
  if (record.substr(0, 4) != "PK\6\6") return range.Corrupt("a zip64 locator leads nowhere", at);
  End end;
  end.record_at = at;
  CROSSDOCK_ASSIGN_OR_RETURN(end.count, Checked64(range, At<std::uint64_t>(record, 32), at));
  CROSSDOCK_ASSIGN_OR_RETURN(end.size, Checked64(range, At<std::uint64_t>(record, 40), at));
  CROSSDOCK_ASSIGN_OR_RETURN(end.offset, Checked64(range, At<std::uint64_t>(record, 48), at));
  return std::optional<End>(end);
}

Result<End> ReadEnd(const RangeReader& range) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t at, FindEnd(range));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto end64, ReadEnd64(range, at));
  End end;
  if (end64) {
    end = *end64;
  } else {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string record, range.Read(at, kEndSize));
    if (At<std::uint16_t>(record, 4) != 0 || At<std::uint16_t>(record, 6) != 0) {
      return range.Corrupt("a zip is one of several disks, which no torch file is", at);
    }
    end = {At<std::uint16_t>(record, 10), At<std::uint32_t>(record, 12), At<std::uint32_t>(record, 16), at};
  }
  const auto stop = CheckedAdd(end.offset, end.size);
  if (!stop || *stop > at) return range.Corrupt("a zip directory lies outside its file", at);
  // Two readers that find the directory from either end must find the same one.
  if (*stop != end.record_at) return range.Corrupt("bytes lie between the directory of a zip and its end record", *stop);
  if (end.size > kLargestDirectory) {
    return MakeError(ErrorCode::kUnsupported, "a zip directory is larger than any checkpoint needs").WithPath(range.file().path());
  }
  return end;
}

/// Replaces the 0xFFFFFFFF markers by the 64-bit values of the extra field 1, in their fixed order.
Status ApplyZip64(const RangeReader& range, std::string_view extra, std::uint64_t& size, std::uint64_t& packed,
                  std::uint64_t& offset) {
  const bool wanted[] = {size == kMax32, packed == kMax32, offset == kMax32};
  if (!wanted[0] && !wanted[1] && !wanted[2]) return OkStatus();
  std::uint64_t* const targets[] = {&size, &packed, &offset};
  while (extra.size() >= 4) {
    const auto id = At<std::uint16_t>(extra, 0);
    const auto length = At<std::uint16_t>(extra, 2);
    if (extra.size() < 4U + length) break;
    std::string_view field = extra.substr(4, length);
    extra.remove_prefix(4U + length);
    if (id != 1) continue;
    for (std::size_t i = 0; i < 3; ++i) {
      if (!wanted[i]) continue;
      if (field.size() < 8) return range.Corrupt("a zip64 field is too short", 0);
      *targets[i] = At<std::uint64_t>(field, 0);
      field.remove_prefix(8);
    }
    return OkStatus();
  }
  return OkStatus();  // 0xFFFFFFFF itself, which later checks refuse where it is no true size
}

}  // namespace

Result<ZipDirectory> ZipDirectory::Read(const RangeReader& range) {
  CROSSDOCK_ASSIGN_OR_RETURN(const End end, ReadEnd(range));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string records, range.Read(end.offset, end.size));
  ZipDirectory out;
  out.directory_offset_ = end.offset;
  CROSSDOCK_RETURN_IF_ERROR(out.ReadRecords(range, records, end.count));
  return out;
}

Status ZipDirectory::ReadRecords(const RangeReader& range, std::string_view records, std::int64_t count) {
  const std::int64_t start = directory_offset_;
  std::int64_t at = 0;
  const auto left = [&] { return static_cast<std::int64_t>(records.size()) - at; };
  for (std::int64_t i = 0; i < count; ++i) {
    if (left() < kRecordSize) return range.Corrupt("a zip directory ends early", start + at);
    const std::string_view record = records.substr(static_cast<std::size_t>(at));
    if (record.substr(0, 4) != "PK\1\2") return range.Corrupt("a zip directory is malformed", start + at);
    const std::int64_t name_size = At<std::uint16_t>(record, 28);
    const std::int64_t extra_size = At<std::uint16_t>(record, 30);
    const std::int64_t total = kRecordSize + name_size + extra_size + At<std::uint16_t>(record, 32);
    if (left() < total) return range.Corrupt("a zip directory ends early", start + at);
    const std::string name(record.substr(static_cast<std::size_t>(kRecordSize), static_cast<std::size_t>(name_size)));
    const std::string_view extra =
        record.substr(static_cast<std::size_t>(kRecordSize + name_size), static_cast<std::size_t>(extra_size));
    std::uint64_t packed = At<std::uint32_t>(record, 20);
    std::uint64_t size = At<std::uint32_t>(record, 24);
    std::uint64_t offset = At<std::uint32_t>(record, 42);
    CROSSDOCK_RETURN_IF_ERROR(ApplyZip64(range, extra, size, packed, offset));
    Entry entry{.method = At<std::uint16_t>(record, 10), .flags = At<std::uint16_t>(record, 8)};
    CROSSDOCK_ASSIGN_OR_RETURN(entry.size, Checked64(range, packed, start + at));
    CROSSDOCK_ASSIGN_OR_RETURN(entry.header_offset, Checked64(range, offset, start + at));
    if (entry.method == 0 && packed != size) return range.Corrupt("a stored zip entry has two sizes", start + at);
    const std::size_t slash = name.find('/');
    if (i == 0) prefix_ = slash == std::string::npos ? std::string() : name.substr(0, slash);
    const bool inside = slash != std::string::npos && name.compare(0, slash, prefix_) == 0;
    if (!inside) return range.Corrupt("a zip entry lies outside the folder of a torch file: `" + Printable(name) + "`", start + at);
    if (!entries_.emplace(name.substr(slash + 1), entry).second) {
      return range.Corrupt("a zip names an entry twice: `" + Printable(name) + "`", start + at);
    }
    at += total;
  }
  return OkStatus();
}

bool ZipDirectory::Has(std::string_view name) const { return entries_.contains(std::string(name)); }

Result<ByteRange> ZipDirectory::Locate(const RangeReader& range, std::string_view name) const {
  const auto found = entries_.find(std::string(name));
  if (found == entries_.end()) {
    return MakeError(ErrorCode::kCorrupt, "a torch file lacks its entry `" + Printable(name) + "`").WithPath(range.file().path());
  }
  const Entry& entry = found->second;
  if (entry.method != 0 || (entry.flags & 1U) != 0) {
    return MakeError(ErrorCode::kUnsupported, "a torch file has a compressed or encrypted entry `" + Printable(name) + "`")
        .WithPath(range.file().path())
        .WithHint("load it with torch and save it again");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string header, range.Read(entry.header_offset, kLocalSize));
  if (header.substr(0, 4) != "PK\3\4") return range.Corrupt("a zip entry has no header", entry.header_offset);
  const std::int64_t name_size = At<std::uint16_t>(header, 26);
  const std::int64_t start = entry.header_offset + kLocalSize + name_size + At<std::uint16_t>(header, 28);
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string local, range.Read(entry.header_offset + kLocalSize, name_size));
  if (local != prefix_ + "/" + std::string(name)) {
    return range.Corrupt("a zip entry is called otherwise than the directory says", entry.header_offset)
        .WithExpected(Printable(prefix_ + "/" + std::string(name)))
        .WithFound(Printable(local));
  }
  const auto end = CheckedAdd(start, entry.size);
  if (!end || *end > directory_offset_) return range.Corrupt("a zip entry reaches past the data", entry.header_offset);
  return ByteRange{start, entry.size};
}

Result<std::string> ZipDirectory::Load(const RangeReader& range, std::string_view name, std::int64_t limit) const {
  CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange bytes, Locate(range, name));
  if (bytes.length > limit) {
    return MakeError(ErrorCode::kUnsupported, "the entry `" + Printable(name) + "` of a torch file is too large")
        .WithPath(range.file().path())
        .WithExpected("at most " + std::to_string(limit) + " bytes")
        .WithFound(std::to_string(bytes.length));
  }
  return range.Read(bytes.offset, bytes.length);
}

bool LooksLikeZip(const RangeReader& range) {
  const auto start = range.Read(0, std::min<std::int64_t>(4, range.size()));
  return start && (*start == "PK\3\4" || IsEnd(*start));
}

}  // namespace crossdock::formats::torch_zip
