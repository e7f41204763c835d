// SPDX-License-Identifier: Apache-2.0
/// \file  The texts and numbers of the text opcodes (protocol 0) and of LONG1/LONG4, and UTF-8.
/// On disk (FORMAT.md, 1): decimal integers of any size, repr() floats and strings, little-endian two's complement.
/// Errors: kCorrupt. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "crossdock/result.h"

namespace crossdock::formats::pickle {

/// True for UTF-8; lone surrogates are allowed, as Python's pickle writes them ("surrogatepass").
[[nodiscard]] bool IsUtf8(std::string_view text);

/// Decimal text to the fewest little-endian two's-complement bytes. At most 4300 digits, CPython's own limit.
[[nodiscard]] Result<std::string> DecimalToBytes(std::string_view decimal);
/// True when the bytes fit int64, which is then in `value`. No bytes are 0.
[[nodiscard]] bool BytesToInt64(std::string_view little_endian, std::int64_t& value);
/// The fewest two's-complement bytes of LONG1; empty for 0.
[[nodiscard]] std::string Int64ToBytes(std::int64_t value);

[[nodiscard]] Result<double> ParseFloat(std::string_view text);
/// A quoted Python 2 string literal with its escapes, as bytes.
[[nodiscard]] Result<std::string> ParseQuoted(std::string_view text);
/// raw-unicode-escape (\uXXXX, \UXXXXXXXX, latin-1) to UTF-8.
[[nodiscard]] Result<std::string> ParseRawUnicode(std::string_view text);

/// Text whose characters are U+0000..U+00FF to bytes, and back. kCorrupt for other characters.
[[nodiscard]] Result<std::string> Latin1ToBytes(std::string_view utf8);
[[nodiscard]] std::string BytesToLatin1(std::string_view bytes);

}  // namespace crossdock::formats::pickle
