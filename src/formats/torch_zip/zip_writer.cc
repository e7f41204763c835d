// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/zip_writer.h"

#include <array>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/endian.h"
#include "base/hash.h"

namespace crossdock::formats::torch_zip {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kLargest32 = 0xFFFFFFFF;  // itself the marker: a size must be smaller to stand in 32 bits
constexpr std::size_t kMax16 = 0xFFFF;

template <typename T>
void Put(std::string& out, T value) {
  std::array<char, sizeof(T)> raw{};
  StoreLittle(raw.data(), value);
  out.append(raw.data(), raw.size());
}
void Put16(std::string& out, std::size_t v) { Put(out, static_cast<std::uint16_t>(v)); }
void Put32(std::string& out, std::int64_t v) { Put(out, static_cast<std::uint32_t>(v < kLargest32 ? v : kLargest32)); }
void Put64(std::string& out, std::int64_t v) { Put(out, static_cast<std::uint64_t>(v)); }

}  // namespace

void ZipWriter::Add(std::string_view name, std::string_view content) {
  Header(name, static_cast<std::int64_t>(content.size()), Crc32(0, std::as_bytes(std::span(content))));
  out_ += content;
}

void ZipWriter::AddHole(std::string_view name, std::int64_t size, std::uint32_t crc) { Header(name, size, crc); }

std::string ZipWriter::TakeHead() {
  CROSSDOCK_CHECK(!records_.empty());
  taken_ = position() + records_.back().size;
  return std::exchange(out_, {});
}

void ZipWriter::Header(std::string_view name, std::int64_t size, std::uint32_t crc) {
  const Record& record = records_.emplace_back(Record{prefix_ + "/" + std::string(name), crc, size, position(), -1});
  CROSSDOCK_CHECK(record.name.size() < 0x8000);
  std::string extra;
  if (size >= kLargest32) {
    Put16(extra, 1);
    Put16(extra, 16);
    Put64(extra, size);
    Put64(extra, size);
  }
  // Field "FB" of padding, so that the data starts at a multiple of 64, as torch's own do.
  const std::int64_t fixed = 30 + static_cast<std::int64_t>(record.name.size() + extra.size()) + 4;
  const std::int64_t padding = (kAlignment - (position() + fixed) % kAlignment) % kAlignment;
  extra += "FB";
  Put16(extra, static_cast<std::size_t>(padding));
  extra.append(static_cast<std::size_t>(padding), 'Z');

  out_ += "PK\3\4";
  for (int i = 0; i < 5; ++i) Put16(out_, 0);  // version, flags, method, time, date
  Put(out_, crc);
  Put32(out_, size);
  Put32(out_, size);
  Put16(out_, record.name.size());
  Put16(out_, extra.size());
  out_ += record.name;
  out_ += extra;
}

void ZipWriter::Directory() {
  for (Record& record : records_) {
    record.directory_offset = position();
    std::string extra;
    if (record.size >= kLargest32) {
      Put64(extra, record.size);
      Put64(extra, record.size);
    }
    if (record.header_offset >= kLargest32) Put64(extra, record.header_offset);
    out_ += "PK\1\2";
    for (int i = 0; i < 6; ++i) Put16(out_, 0);  // made by, version, flags, method, time, date
    Put(out_, record.crc);
    Put32(out_, record.size);
    Put32(out_, record.size);
    Put16(out_, record.name.size());
    Put16(out_, extra.empty() ? 0 : extra.size() + 4);
    for (int i = 0; i < 3; ++i) Put16(out_, 0);  // comment, disk, internal attributes
    Put32(out_, 0);                              // external attributes
    Put32(out_, record.header_offset);
    out_ += record.name;
    if (!extra.empty()) {
      Put16(out_, 1);
      Put16(out_, extra.size());
      out_ += extra;
    }
  }
}

ZipWriter::CrcPlaces ZipWriter::PlacesOf(std::size_t index) const {
  const Record& record = records_.at(index);
  CROSSDOCK_CHECK(record.directory_offset >= 0);
  return {record.header_offset + 14, record.directory_offset + 16};
}

std::string ZipWriter::Finish() {
  const std::int64_t start = position();
  Directory();
  const std::int64_t end = position();
  const auto count = records_.size();
  if (start >= kLargest32 || end - start >= kLargest32 || count >= kMax16) {
    out_ += "PK\6\6";
    Put64(out_, 44);                         // bytes that follow
    for (int i = 0; i < 2; ++i) Put16(out_, 45);  // made by, version needed: zip64
    for (int i = 0; i < 2; ++i) Put32(out_, 0);   // disks
    for (int i = 0; i < 2; ++i) Put64(out_, static_cast<std::int64_t>(count));
    Put64(out_, end - start);
    Put64(out_, start);
    out_ += "PK\6\7";
    Put32(out_, 0);
    Put64(out_, end);
    Put32(out_, 1);
  }
  out_ += "PK\5\6";
  for (int i = 0; i < 2; ++i) Put16(out_, 0);
  for (int i = 0; i < 2; ++i) Put16(out_, count < kMax16 ? count : kMax16);
  Put32(out_, end - start);
  Put32(out_, start);
  Put16(out_, 0);
  return std::exchange(out_, {});
}

}  // namespace crossdock::formats::torch_zip
