// SPDX-License-Identifier: Apache-2.0
#include "execute/journal.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"

namespace crossdock::execute {
namespace {

constexpr std::string_view kMagic = "crossdock-journal 2 ";
constexpr std::size_t kSealBytes = 10;  // " *" and 8 hex digits

std::string SealLine(std::string line) {
  const std::uint32_t crc = Crc32(0, std::as_bytes(std::span<const char>(line)));
  return line + fmt::format(" *{:08x}\n", crc);
}

/// The next whole line without its seal, taken off `text`; nothing when it is torn or was changed.
std::optional<std::string_view> TakeLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos || end < kSealBytes) return std::nullopt;
  const std::string_view line = text.substr(0, end - kSealBytes);
  const std::uint32_t crc = Crc32(0, std::as_bytes(std::span<const char>(line)));
  if (text.substr(line.size(), kSealBytes) != fmt::format(" *{:08x}", crc)) return std::nullopt;
  text.remove_prefix(end + 1);
  return line;
}

std::string_view TakeWord(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

template <typename T>
bool ParseNumber(std::string_view word, T& out, int base) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out, base);
  return error == std::errc() && end == word.data() + word.size() && !word.empty();
}

bool ParseSum(std::string_view word, SumKinds kinds, PieceSum& sum) {
  const std::size_t crc_digits = kinds.crc32 ? 8 : 0;
  const std::size_t digest_digits = kinds.digest ? 32 : 0;
  if (word.size() != crc_digits + digest_digits) return false;
  if (kinds.crc32 && !ParseNumber(word.substr(0, 8), sum.crc32, 16)) return false;
  if (!kinds.digest) return true;
  word.remove_prefix(crc_digits);
  return ParseNumber(word.substr(0, 16), sum.digest.low, 16) && ParseNumber(word.substr(16), sum.digest.high, 16);
}

std::optional<JournalHeader> ParseHeader(std::string_view line) {
  if (!line.starts_with(kMagic)) return std::nullopt;
  line.remove_prefix(kMagic.size());
  JournalHeader header;
  header.plan_hash = TakeWord(line);
  if (!ParseNumber(TakeWord(line), header.tasks, 10)) return std::nullopt;
  const std::string_view kinds = TakeWord(line);
  header.kinds.crc32 = kinds.find('c') != std::string_view::npos;
  header.kinds.digest = kinds.find('d') != std::string_view::npos;
  header.request = line;
  return header;
}

std::optional<DoneTask> ParseDone(std::string_view line, const JournalHeader& header) {
  DoneTask done;
  if (!ParseNumber(TakeWord(line), done.task, 10)) return std::nullopt;
  if (done.task < 0 || done.task >= header.tasks) return std::nullopt;
  while (!line.empty()) {
    const std::string_view word = TakeWord(line);
    if (word.starts_with('+')) {
      std::int64_t size = 0;
      if (!ParseNumber(word.substr(1), size, 10) || size < 0) return std::nullopt;
      done.encoded.push_back(size);
      continue;
    }
    PieceSum sum;
    if (!done.encoded.empty() || !ParseSum(word, header.kinds, sum)) return std::nullopt;
    done.sums.push_back(sum);
  }
  return done;
}

}  // namespace

std::optional<JournalContent> ParseJournal(std::string_view text) {
  std::string_view rest = text;
  const auto first = TakeLine(rest);
  if (!first) return std::nullopt;
  auto header = ParseHeader(*first);
  if (!header) return std::nullopt;
  JournalContent content;
  content.header = std::move(*header);
  content.valid_bytes = static_cast<std::int64_t>(text.size() - rest.size());
  while (const auto line = TakeLine(rest)) {
    auto done = ParseDone(*line, content.header);
    if (!done) break;
    content.done.push_back(std::move(*done));
    content.valid_bytes = static_cast<std::int64_t>(text.size() - rest.size());
  }
  return content;
}

std::string PrintJournalHeader(const JournalHeader& header) {
  std::string kinds = header.kinds.crc32 ? "c" : "";
  if (header.kinds.digest) kinds += "d";
  if (kinds.empty()) kinds = "-";
  return SealLine(fmt::format("{}{} {} {} {}", kMagic, header.plan_hash, header.tasks, kinds, header.request));
}

std::string PrintDoneTask(const DoneTask& done, SumKinds kinds) {
  std::string line = fmt::format("{}", done.task);
  for (const PieceSum& sum : done.sums) {
    if (!kinds.any()) break;
    line += ' ';
    if (kinds.crc32) line += fmt::format("{:08x}", sum.crc32);
    if (kinds.digest) line += fmt::format("{:016x}{:016x}", sum.digest.low, sum.digest.high);
  }
  for (const std::int64_t size : done.encoded) line += fmt::format(" +{}", size);
  return SealLine(std::move(line));
}

Result<Journal> Journal::Create(io::Storage& storage, const std::string& path, const JournalHeader& header) {
  CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(storage, path));
  const std::string text = PrintJournalHeader(header);
  CROSSDOCK_ASSIGN_OR_RETURN(auto file, storage.Create(path));
  CROSSDOCK_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(text))));
  CROSSDOCK_RETURN_IF_ERROR(file->Sync());
  CROSSDOCK_RETURN_IF_ERROR(storage.SyncDir(io::ParentPath(path)));
  return Journal(std::move(file), static_cast<std::int64_t>(text.size()), header.kinds);
}

Result<Journal> Journal::Continue(io::Storage& storage, const std::string& path, const JournalContent& content) {
  CROSSDOCK_ASSIGN_OR_RETURN(auto file, storage.OpenWrite(path));
  CROSSDOCK_RETURN_IF_ERROR(file->Truncate(content.valid_bytes));
  return Journal(std::move(file), content.valid_bytes, content.header.kinds);
}

Status Journal::Append(const std::vector<DoneTask>& done) {
  if (done.empty()) return OkStatus();
  std::string text;
  for (const DoneTask& task : done) text += PrintDoneTask(task, kinds_);
  CROSSDOCK_RETURN_IF_ERROR(file_->WriteAt(end_, std::as_bytes(std::span(text))));
  CROSSDOCK_RETURN_IF_ERROR(file_->Sync());
  end_ += static_cast<std::int64_t>(text.size());
  return OkStatus();
}

}  // namespace crossdock::execute
