// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/numbers.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace crossdock::formats::pickle {
namespace {

constexpr std::size_t kMaxDigits = 4300;

unsigned Byte(char c) { return static_cast<unsigned char>(c); }

Error BadText(std::string what, std::string_view text) {
  return MakeError(ErrorCode::kCorrupt, "a pickle has a malformed " + std::move(what)).WithFound(Printable(text, 60));
}

void AppendUtf8(std::string& out, std::uint32_t c) {
  const auto put = [&out](std::uint32_t v) { out.push_back(static_cast<char>(v)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0U | (c >> 6U));
    put(0x80U | (c & 0x3FU));
  } else if (c < 0x10000) {
    put(0xE0U | (c >> 12U));
    put(0x80U | ((c >> 6U) & 0x3FU));
    put(0x80U | (c & 0x3FU));
  } else {
    put(0xF0U | (c >> 18U));
    put(0x80U | ((c >> 12U) & 0x3FU));
    put(0x80U | ((c >> 6U) & 0x3FU));
    put(0x80U | (c & 0x3FU));
  }
}

/// Exactly `count` hex digits of `text` from `at`.
Result<std::uint32_t> Hex(std::string_view text, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  if (text.size() - at < count) return BadText("escape", text);
  const char* first = text.data() + at;
  const auto [end, error] = std::from_chars(first, first + count, value, 16);
  if (error != std::errc() || end != first + count) return BadText("escape", text);
  return value;
}

}  // namespace

bool IsUtf8(std::string_view s) {
  for (std::size_t i = 0; i < s.size();) {
    const unsigned c = Byte(s[i]);
    if (c < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC2 || c > 0xF4 || s.size() - i < length) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((Byte(s[i + k]) & 0xC0U) != 0x80U) return false;
    }
    const unsigned second = Byte(s[i + 1]);
    if ((c == 0xE0 && second < 0xA0) || (c == 0xF0 && second < 0x90) || (c == 0xF4 && second > 0x8F)) return false;
    i += length;
  }
  return true;
}

Result<std::string> DecimalToBytes(std::string_view text) {
  std::string_view digits = text;
  if (!digits.empty() && digits.back() == 'L') digits.remove_suffix(1);  // Python 2's spelling
  const bool negative = !digits.empty() && digits.front() == '-';
  if (negative) digits.remove_prefix(1);
  if (digits.empty() || digits.size() > kMaxDigits) return BadText("integer", text);
  std::vector<std::uint32_t> limbs;
  for (char c : digits) {
    if (c < '0' || c > '9') return BadText("integer", text);
    std::uint64_t carry = static_cast<std::uint64_t>(c - '0');
    for (std::uint32_t& limb : limbs) {
      carry += std::uint64_t{limb} * 10;
      limb = static_cast<std::uint32_t>(carry);
      carry >>= 32U;
    }
    if (carry != 0) limbs.push_back(static_cast<std::uint32_t>(carry));
  }
  std::string out;
  for (std::uint32_t limb : limbs) {
    for (unsigned shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>((limb >> shift) & 0xFFU));
  }
  out.push_back('\0');  // room for the sign
  if (negative) {
    unsigned carry = 1;
    for (char& c : out) {
      carry += Byte(c) ^ 0xFFU;
      c = static_cast<char>(carry & 0xFFU);
      carry >>= 8U;
    }
  }
  const char fill = negative && !limbs.empty() ? '\xff' : '\0';
  while (!out.empty() && out.back() == fill &&
         (out.size() == 1 ? fill == '\0' : ((Byte(out[out.size() - 2]) & 0x80U) != 0) == (fill != '\0'))) {
    out.pop_back();
  }
  return out;
}

bool BytesToInt64(std::string_view bytes, std::int64_t& value) {
  const bool negative = !bytes.empty() && (Byte(bytes.back()) & 0x80U) != 0;
  const char fill = negative ? '\xff' : '\0';
  while (bytes.size() > 8 && bytes.back() == fill) bytes.remove_suffix(1);
  if (bytes.size() > 8) return false;
  if (bytes.size() == 8 && ((Byte(bytes.back()) & 0x80U) != 0) != negative) return false;
  std::uint64_t bits = negative ? ~std::uint64_t{0} : 0;
  for (std::size_t i = bytes.size(); i-- > 0;) bits = (bits << 8U) | Byte(bytes[i]);
  value = static_cast<std::int64_t>(bits);
  return true;
}

std::string Int64ToBytes(std::int64_t value) {
  std::string out;
  auto rest = value;
  while (rest != 0 && rest != -1) {
    out.push_back(static_cast<char>(rest & 0xFF));
    rest >>= 8;
  }
  const bool top = !out.empty() && (Byte(out.back()) & 0x80U) != 0;
  if (value < 0 && !top) out.push_back('\xff');
  if (value > 0 && top) out.push_back('\0');
  return out;
}

Result<double> ParseFloat(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  // from_chars reports subnormals and huge values as out of range where Python's float() rounds them.
  if (error == std::errc::result_out_of_range && end == text.data() + text.size()) {
    return std::strtod(std::string(text).c_str(), nullptr);
  }
  return BadText("float", text);
}

Result<std::string> ParseQuoted(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  if (text.size() < 2 || (text.front() != '\'' && text.front() != '"') || text.front() != text.back()) {
    return BadText("string", text);
  }
  const std::string_view body = text.substr(1, text.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      out.push_back(body[i]);
      continue;
    }
    if (++i == body.size()) return BadText("string", text);
    constexpr std::string_view kFrom = "abfnrtv\\'\"";
    constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t at = kFrom.find(body[i]); at != std::string_view::npos) {
      out.push_back(kTo[at]);
    } else if (body[i] == 'x') {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::uint32_t value, Hex(body, i + 1, 2));
      out.push_back(static_cast<char>(value));
      i += 2;
    } else if (body[i] >= '0' && body[i] <= '7') {
      unsigned value = 0;
      std::size_t used = 0;
      for (; used < 3 && i + used < body.size() && body[i + used] >= '0' && body[i + used] <= '7'; ++used) {
        value = value * 8 + static_cast<unsigned>(body[i + used] - '0');
      }
      out.push_back(static_cast<char>(value & 0xFFU));
      i += used - 1;
    } else {
      return BadText("string", text);
    }
  }
  return out;
}

Result<std::string> ParseRawUnicode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == 'u' || text[i + 1] == 'U');
    if (!escape) {
      AppendUtf8(out, Byte(text[i]));
      continue;
    }
    const std::size_t digits = text[i + 1] == 'u' ? 4 : 8;
    CROSSDOCK_ASSIGN_OR_RETURN(const std::uint32_t value, Hex(text, i + 2, digits));
    if (value > 0x10FFFF) return BadText("escape", text);
    AppendUtf8(out, value);
    i += 1 + digits;
  }
  return out;
}

Result<std::string> Latin1ToBytes(std::string_view utf8) {
  std::string out;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const unsigned c = Byte(utf8[i]);
    if (c < 0x80) {
      out.push_back(utf8[i]);
    } else if ((c == 0xC2 || c == 0xC3) && i + 1 < utf8.size()) {
      out.push_back(static_cast<char>(((c & 0x03U) << 6U) | (Byte(utf8[++i]) & 0x3FU)));
    } else {
      return BadText("byte string", utf8);
    }
  }
  return out;
}

std::string BytesToLatin1(std::string_view bytes) {
  std::string out;
  for (char c : bytes) AppendUtf8(out, Byte(c));
  return out;
}

}  // namespace crossdock::formats::pickle
