// SPDX-License-Identifier: Apache-2.0
/// \file  The primitive encodings of OCDBT: LEB128 numbers, bytes, and tables stored column by column.
/// On disk (FORMAT.md, 1; TensorStore 0.1.86, kvstore/ocdbt/format): `uv` is an unsigned LEB128 of at most 64 bits, fixed widths are
/// little-endian. Errors: kCorrupt for what ends too early or does not fit. Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::formats::ocdbt {

/// kCorrupt: "an OCDBT record is malformed: ...".
[[nodiscard]] Error Malformed(std::string what);

/// As an offset: nothing lies anywhere.
inline constexpr std::uint64_t kNowhere = std::numeric_limits<std::uint64_t>::max();
inline constexpr auto kLargestOffset = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

/// How many bytes two keys or paths begin with in common.
[[nodiscard]] std::size_t CommonPrefix(std::string_view a, std::string_view b);

/// Reads a record from its front. The bytes outlive it.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : left_(bytes) {}
  [[nodiscard]] std::string_view left() const { return left_; }
  [[nodiscard]] Result<std::string_view> Bytes(std::uint64_t count);
  [[nodiscard]] Result<std::uint8_t> U8();
  [[nodiscard]] Result<std::uint64_t> U64();
  [[nodiscard]] Result<std::uint64_t> Uv();
  /// Uv of at most `most`.
  [[nodiscard]] Result<std::uint64_t> Uv(std::uint64_t most, std::string_view what);
  /// `count` numbers of at most `most`. `what` names the column.
  [[nodiscard]] Result<std::vector<std::uint64_t>> Column(std::uint64_t count, std::uint64_t most, std::string_view what);
  /// Nothing may be left.
  [[nodiscard]] Status End() const;

 private:
  std::string_view left_;
};

void PutUv(std::string& out, std::uint64_t value);
void PutU64(std::string& out, std::uint64_t value);

}  // namespace crossdock::formats::ocdbt
