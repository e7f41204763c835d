// SPDX-License-Identifier: Apache-2.0
/// \file  ZipDirectory: the entries of a torch zip and where the bytes of each lie.
/// On disk (FORMAT.md, 1; PKWARE APPNOTE 6.3.10, 4.3): entries, central directory, zip64 end record and locator, end
/// record. Sizes are taken from the central directory (local headers of torch have zeros); only name and extra lengths
/// come from the local header. CRCs are not checked: torch may write other values there.
/// Invariant: names are unique; every entry's data lies before the central directory.
/// Errors: kCorrupt (no end record, ranges outside, a name twice), kUnsupported (compressed or encrypted entries).
/// Threads: immutable once read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "formats/torch_zip/range_reader.h"

namespace crossdock::formats::torch_zip {

class ZipDirectory {
 public:
  struct Entry {
    std::uint16_t method = 0;
    std::uint16_t flags = 0;
    std::int64_t size = 0;            ///< of the stored bytes
    std::int64_t header_offset = 0;   ///< of the local header, in the range
  };

  [[nodiscard]] static Result<ZipDirectory> Read(const RangeReader& range);

  /// What stands before the first '/' of the first entry: "archive", "common", ...
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] bool Has(std::string_view name) const;   ///< `name` without the prefix
  [[nodiscard]] const std::map<std::string, Entry>& entries() const { return entries_; }
  /// Where the bytes of an entry lie in the range. kCorrupt when there is no such entry.
  [[nodiscard]] Result<ByteRange> Locate(const RangeReader& range, std::string_view name) const;
  /// Its bytes. kUnsupported above `limit`.
  [[nodiscard]] Result<std::string> Load(const RangeReader& range, std::string_view name, std::int64_t limit) const;

 private:
  [[nodiscard]] Status ReadRecords(const RangeReader& range, std::string_view records, std::int64_t count);

  std::string prefix_;
  std::map<std::string, Entry> entries_;   // by name without the prefix
  std::int64_t directory_offset_ = 0;
};

/// True when the range starts like a zip.
[[nodiscard]] bool LooksLikeZip(const RangeReader& range);

}  // namespace crossdock::formats::torch_zip
