// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/columns.h"

#include <algorithm>
#include <limits>

#include "base/endian.h"

namespace crossdock::formats::ocdbt {

Error Malformed(std::string what) { return MakeError(ErrorCode::kCorrupt, "an OCDBT record is malformed: " + std::move(what)); }

std::size_t CommonPrefix(std::string_view a, std::string_view b) { return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin()); }

Result<std::string_view> Cursor::Bytes(std::uint64_t count) {
  if (count > left_.size()) return Malformed("it ends too early");
  const std::string_view out = left_.substr(0, static_cast<std::size_t>(count));
  left_.remove_prefix(out.size());
  return out;
}

Result<std::uint8_t> Cursor::U8() {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view byte, Bytes(1));
  return static_cast<std::uint8_t>(byte[0]);
}

Result<std::uint64_t> Cursor::U64() {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view bytes, Bytes(8));
  return LoadLittle<std::uint64_t>(bytes.data());
}

Result<std::uint64_t> Cursor::Uv() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::uint8_t byte, U8());
    const std::uint64_t part = byte & 0x7FU;
    if (shift == 63 && part > 1) return Malformed("a number of more than 64 bits");
    value |= part << shift;
    if ((byte & 0x80U) == 0) return value;
  }
  return Malformed("a number of more than 64 bits");
}

Result<std::uint64_t> Cursor::Uv(std::uint64_t most, std::string_view what) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t value, Uv());
  if (value <= most) return value;
  return Malformed(std::string(what) + " is too large").WithExpected("at most " + std::to_string(most)).WithFound(std::to_string(value));
}

Result<std::vector<std::uint64_t>> Cursor::Column(std::uint64_t count, std::uint64_t most, std::string_view what) {
  if (count > left_.size()) return Malformed("it ends too early");  // each number takes a byte at least
  std::vector<std::uint64_t> out;
  out.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t value, Uv(most, what));
    out.push_back(value);
  }
  return out;
}

Status Cursor::End() const {
  if (left_.empty()) return OkStatus();
  return Malformed(std::to_string(left_.size()) + " bytes follow its end");
}

void PutUv(std::string& out, std::uint64_t value) {
  for (; value >= 0x80U; value >>= 7U) out += static_cast<char>((value & 0x7FU) | 0x80U);
  out += static_cast<char>(value);
}

void PutU64(std::string& out, std::uint64_t value) {
  char bytes[8];
  StoreLittle(bytes, value);
  out.append(bytes, sizeof bytes);
}

}  // namespace crossdock::formats::ocdbt
