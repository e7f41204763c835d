// SPDX-License-Identifier: Apache-2.0
#include "io/commit_record.h"

#include <charconv>

#include <fmt/format.h>

#include "base/hash.h"

namespace crossdock::io {
namespace {

constexpr std::string_view kMagic = "crossdock-commit 1 ";
constexpr std::size_t kHashLine = 33;  // 32 hex digits and a line end

/// Takes a decimal number and the one character after it off the front of `text`.
std::optional<std::uint64_t> TakeNumber(std::string_view& text, char after) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != after) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return number;
}

std::optional<std::string> TakeBytes(std::string_view& text, std::uint64_t count) {
  if (count > text.size()) return std::nullopt;
  std::string bytes(text.substr(0, count));
  text.remove_prefix(count);
  return bytes;
}

}  // namespace

std::string PrintCommitRecord(const CommitRecord& record) {
  std::string text = fmt::format("{}{} {}\n", kMagic, record.inode, record.markers.size());
  for (const Marker& marker : record.markers) {
    text += fmt::format("{} {}\n{}{}\n", marker.path.size(), marker.content.size(), marker.path, marker.content);
  }
  return text + Fingerprint(text) + "\n";
}

std::optional<CommitRecord> ParseCommitRecord(std::string_view text) {
  if (text.size() < kHashLine) return std::nullopt;
  const std::string_view hash = text.substr(text.size() - kHashLine);
  text.remove_suffix(kHashLine);
  if (hash != Fingerprint(text) + "\n" || !text.starts_with(kMagic)) return std::nullopt;
  text.remove_prefix(kMagic.size());
  CommitRecord record;
  const auto inode = TakeNumber(text, ' ');
  const auto count = TakeNumber(text, '\n');
  if (!inode || !count) return std::nullopt;
  record.inode = *inode;
  for (std::uint64_t i = 0; i < *count; ++i) {
    const auto path_bytes = TakeNumber(text, ' ');
    const auto content_bytes = TakeNumber(text, '\n');
    if (!path_bytes || !content_bytes) return std::nullopt;
    auto path = TakeBytes(text, *path_bytes);
    auto content = TakeBytes(text, *content_bytes);
    if (!path || !content || !text.starts_with('\n')) return std::nullopt;
    text.remove_prefix(1);
    record.markers.push_back({std::move(*path), std::move(*content)});
  }
  if (!text.empty()) return std::nullopt;
  return record;
}

}  // namespace crossdock::io
