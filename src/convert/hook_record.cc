// SPDX-License-Identifier: Apache-2.0
#include "convert/hook_record.h"

#include <string_view>

namespace crossdock::convert {

namespace {

constexpr std::int64_t kLargestRecord = std::int64_t{64} << 20U;

/// A command may have several lines.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '\n' || c == '\t') {
      out += '\\';
      out += c == '\n' ? 'n' : c == '\t' ? 't' : c;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Result<HookRecord> HookRecord::Read(io::Storage& storage, const std::string& dir) {
  HookRecord record(io::JoinPath(dir, ".crossdock-watch"));
  if (!io::Exists(storage, record.path_)) return record;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, record.path_, kLargestRecord));
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const std::size_t tab = line.rfind('\t');
    if (line.size() == rest.size() || tab == std::string_view::npos) {
      return MakeError(ErrorCode::kCorrupt, "the record of called hooks holds something else").WithPath(record.path_).WithFound("`" + Printable(line) + "`")
          .WithHint("remove the file: the hook is then called again for every export that is there");
    }
    record.lines_.emplace(line.substr(0, tab), line.substr(tab + 1));
    rest.remove_prefix(line.size() + 1);
  }
  return record;
}

bool HookRecord::Has(const std::string& hook, const std::string& name) const { return lines_.contains({Escaped(hook), name}); }

Status HookRecord::Add(io::Storage& storage, const std::string& hook, const std::string& name) {
  lines_.emplace(Escaped(hook), name);
  std::string text;
  for (const auto& [each_hook, each_name] : lines_) text += each_hook + "\t" + each_name + "\n";
  const std::string temporary = path_ + ".tmp";
  CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(storage, temporary));
  CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, temporary, text));
  return storage.Rename(temporary, path_);
}

}  // namespace crossdock::convert
