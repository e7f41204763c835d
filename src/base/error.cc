// SPDX-License-Identifier: Apache-2.0
#include "crossdock/error.h"

#include <fmt/format.h>

namespace crossdock {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage: return "usage";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kIncomplete: return "incomplete";
    case ErrorCode::kUnsafe: return "unsafe";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kNoSpace: return "no_space";
    case ErrorCode::kCancelled: return "cancelled";
  }
  return "io";
}

int ExitStatus(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage: return 2;
    case ErrorCode::kCorrupt:
    case ErrorCode::kIncomplete:
    case ErrorCode::kUnsafe:
    case ErrorCode::kUnsupported: return 3;
    case ErrorCode::kIo:
    case ErrorCode::kNoSpace: return 4;
    case ErrorCode::kCancelled: return 5;
  }
  return 4;
}

Error MakeError(ErrorCode code, std::string message) {
  Error e;
  e.code = code;
  e.message = std::move(message);
  return e;
}

Error&& Error::WithContext(std::string what) && {
  context.push_back(std::move(what));
  return std::move(*this);
}
Error&& Error::WithPath(std::string value) && {
  path = std::move(value);
  return std::move(*this);
}
Error&& Error::WithTensor(std::string value) && {
  tensor = std::move(value);
  return std::move(*this);
}
Error&& Error::WithOffset(std::int64_t value) && {
  offset = value;
  return std::move(*this);
}
Error&& Error::WithExpected(std::string value) && {
  expected = std::move(value);
  return std::move(*this);
}
Error&& Error::WithFound(std::string value) && {
  found = std::move(value);
  return std::move(*this);
}
Error&& Error::WithHint(std::string value) && {
  hint = std::move(value);
  return std::move(*this);
}

std::string_view Error::NextStep() const {
  if (!hint.empty()) return hint;
  const bool placed = !path.empty() || !tensor.empty();   // else it may be the request and no input
  switch (code) {
    case ErrorCode::kCorrupt: return "this is damaged, cut short or not what its name says: fetch it again from where it was made, or take another step";
    case ErrorCode::kUnsafe: return "no trainer writes this: do not open it with a tool that would obey it, and fetch it again from a place that you trust";
    case ErrorCode::kIncomplete: return placed ? "see that the path is right and that all of the checkpoint was copied" : "";
    case ErrorCode::kUnsupported: return placed ? "this version does not carry it: bring it to another form first; `crossdock inspect` tells what is there" : "";
    default: return {};
  }
}

std::string Error::ToString() const {
  std::string out = message;
  if (!path.empty()) out += fmt::format(", in `{}`", Printable(path, 4096));
  if (!tensor.empty()) out += fmt::format(", tensor `{}`", Printable(tensor));
  if (offset) out += fmt::format(", at byte {}", *offset);
  if (!expected.empty()) out += fmt::format("; expected {}", expected);
  if (!found.empty()) out += fmt::format("{} found {}", expected.empty() ? ";" : ",", found);
  for (const std::string& c : context) out += fmt::format(" (while {})", c);
  if (const std::string_view step = NextStep(); !step.empty()) out += fmt::format("\nhint: {}", step);
  return out;
}

std::string Printable(std::string_view text, std::size_t limit) {
  std::string out;
  std::size_t i = 0;
  while (i < text.size()) {
    if (out.size() >= limit) {
      out += fmt::format("... ({} bytes)", text.size());
      break;
    }
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '`' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      // Two to four byte UTF-8 sequences pass when well-formed, and are no control or bidi characters.
      const std::size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
      bool good = n != 0 && c < 0xf5 && i + n <= text.size();
      std::uint32_t cp = n == 4 ? c & 7U : n == 3 ? c & 15U : c & 31U;
      for (std::size_t k = 1; good && k < n; ++k) {
        const auto cc = static_cast<unsigned char>(text[i + k]);
        good = (cc & 0xc0U) == 0x80U;
        cp = (cp << 6U) | (cc & 0x3fU);
      }
      good = good && cp >= 0xa0 && !(cp >= 0x200b && cp <= 0x200f) && !(cp >= 0x2028 && cp <= 0x202e) &&
             !(cp >= 0x2060 && cp <= 0x206f) && !(cp >= 0xd800 && cp <= 0xdfff) && cp != 0xfeff;
      if (good) {
        out += text.substr(i, n);
        i += n;
        continue;
      }
      out += fmt::format("\\x{:02x}", c);
    }
    ++i;
  }
  return out;
}

}  // namespace crossdock
