// SPDX-License-Identifier: Apache-2.0
/// \file  ZipWriter: the zips torch.load reads, byte by byte: entries STORED, data at multiples of 64.
/// On disk: FORMAT.md, 2. The content of an entry may be left out (AddHole): only its size and CRC-32 are needed, so the
/// bytes around a tensor are known without its data. A CRC that comes later still is patched in at the places that PlacesOf tells. zip64 fields appear only where 32 bits do not suffice, or where an
/// entry's size does not fit.
/// Invariant: the bytes depend on names, sizes and CRCs only, and every position only on names and sizes.
/// Threads: one writer, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crossdock::formats::torch_zip {

class ZipWriter {
 public:
  explicit ZipWriter(std::string prefix) : prefix_(std::move(prefix)) {}

  void Add(std::string_view name, std::string_view content);
  /// An entry whose content is written by somebody else after the bytes so far; see TakeHead.
  void AddHole(std::string_view name, std::int64_t size, std::uint32_t crc);
  /// The bytes up to here, which end where the hole begins; what follows is returned by Finish.
  [[nodiscard]] std::string TakeHead();
  /// Directory and end records: the rest of the file.
  [[nodiscard]] std::string Finish();
  /// The bytes written so far, holes included: where the next head begins.
  [[nodiscard]] std::int64_t position() const { return taken_ + static_cast<std::int64_t>(out_.size()); }

  /// Where the CRC-32 of an entry stands, 4 little-endian bytes twice.
  struct CrcPlaces {
    std::int64_t header = 0;      ///< in its local header
    std::int64_t directory = 0;   ///< in the central directory
  };
  /// Of the entry that was added as number `index`. REQUIRES: Finish was called.
  [[nodiscard]] CrcPlaces PlacesOf(std::size_t index) const;

 private:
  struct Record {
    std::string name;
    std::uint32_t crc = 0;
    std::int64_t size = 0;
    std::int64_t header_offset = 0;
    std::int64_t directory_offset = -1;
  };
  void Header(std::string_view name, std::int64_t size, std::uint32_t crc);
  void Directory();

  std::string prefix_;
  std::string out_;
  std::int64_t taken_ = 0;          // bytes before out_, holes included
  std::vector<Record> records_;
};

}  // namespace crossdock::formats::torch_zip
