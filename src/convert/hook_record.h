// SPDX-License-Identifier: Apache-2.0
/// \file  HookRecord: for which exports a hook was called, kept in `.crossdock-watch` beside them: a line `HOOK<tab>NAME` each, NAME the
/// directory's and HOOK with `\\`, `\n` and `\t` for backslashes, line ends and tabs. A line is written when the hook has ended: one that died meanwhile is called again.
/// Errors: kCorrupt (lines of another form), kIo. Threads: one.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "crossdock/result.h"
#include "io/storage.h"

namespace crossdock::convert {

class HookRecord {
 public:
  /// Of the directory that holds the exports. What is not there yet is empty.
  [[nodiscard]] static Result<HookRecord> Read(io::Storage& storage, const std::string& dir);
  [[nodiscard]] bool Has(const std::string& hook, const std::string& name) const;
  /// Replaces the file by a new one.
  [[nodiscard]] Status Add(io::Storage& storage, const std::string& hook, const std::string& name);

 private:
  explicit HookRecord(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::set<std::pair<std::string, std::string>> lines_;   ///< as they stand in the file
};

}  // namespace crossdock::convert
