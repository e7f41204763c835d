// SPDX-License-Identifier: Apache-2.0
#include "convert/agree.h"

#include <fmt/format.h>

#include <map>

#include "tensor/value.h"

namespace crossdock::convert {
namespace {

constexpr char kWell = '+';
constexpr char kFailed = '-';
constexpr int kLastCode = static_cast<int>(ErrorCode::kCancelled);

std::string Pack(const Error& error) {
  Value out = Value::MakeDict();
  out.Set("code", Value(static_cast<std::int64_t>(error.code)));
  out.Set("message", Value(error.message));
  out.Set("path", Value(error.path));
  out.Set("tensor", Value(error.tensor));
  out.Set("expected", Value(error.expected));
  out.Set("found", Value(error.found));
  out.Set("hint", Value(error.hint));
  ValueList context;
  for (const std::string& line : error.context) context.emplace_back(line);
  out.Set("context", Value::MakeList(std::move(context)));
  return ToJson(out, 0);
}

Error Unpack(const std::string& text) {
  const Result<Value> value = ParseJson(text);
  if (!value) return MakeError(ErrorCode::kIo, "another rank failed, and what it said of it is not readable");
  const auto word = [&](const char* key) { return value->GetString(key).value_or(""); };
  const std::int64_t code = value->GetInt("code").value_or(-1);
  Error error = MakeError(code >= 0 && code <= kLastCode ? static_cast<ErrorCode>(code) : ErrorCode::kIo, word("message"));
  error.path = word("path");
  error.tensor = word("tensor");
  error.expected = word("expected");
  error.found = word("found");
  error.hint = word("hint");
  const Value* context = value->Find("context");
  if (context != nullptr && context->as_sequence() != nullptr) {
    for (const Value& line : *context->as_sequence()) error.context.push_back(line.as_string() != nullptr ? *line.as_string() : "");
  }
  return error;
}

}  // namespace

Result<std::vector<std::string>> Agree(Comm& comm, const std::string& step, const Result<std::string>& mine) {
  Result<std::vector<std::string>> all = comm.AllGather(mine ? kWell + step + '\n' + *mine : kFailed + Pack(mine.error()));
  if (!all) {
    // A rank that failed by itself has that to tell.
    if (!mine) return mine.error();
    return std::move(all).error().WithContext(step);
  }
  if (static_cast<int>(all->size()) != comm.size()) {
    return MakeError(ErrorCode::kUsage, "the connection of the ranks gave another number of messages than there are ranks")
        .WithExpected(fmt::format("{}", comm.size())).WithFound(fmt::format("{}", all->size()));
  }
  std::string first;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    std::string& text = (*all)[rank];
    const bool failed = text.empty() || text.front() != kWell;
    if (!text.empty()) text.erase(0, 1);
    if (failed) return Unpack(text).WithContext(comm.size() == 1 ? step : fmt::format("{} on rank {}", step, rank));
  }
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    std::string& text = (*all)[rank];
    const std::string theirs = text.substr(0, text.find('\n'));
    if (rank == 0) first = theirs;
    if (theirs != first) {
      return MakeError(ErrorCode::kUsage, fmt::format("ranks 0 and {} are at different steps", rank)).WithExpected(Printable(first)).WithFound(Printable(theirs))
          .WithHint("a step failed on one of them alone, or they make different calls; once all ranks begin anew they are together again");
    }
  }
  for (std::string& text : *all) text.erase(0, first.size() + 1);
  return all;
}

Status AgreeOn(Comm& comm, const std::string& step, const Status& mine) {
  CROSSDOCK_RETURN_IF_ERROR(Agree(comm, step, mine ? Result<std::string>("") : Result<std::string>(mine.error())));
  return OkStatus();
}

Status AgreeOnSame(Comm& comm, const std::string& step, const std::string& what, const Result<std::string>& mine) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> all, Agree(comm, step, mine));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return MakeError(ErrorCode::kUsage, fmt::format("ranks 0 and {} do not agree on {}", rank, what))
        .WithExpected(Printable(all[0])).WithFound(Printable(all[rank]))
        .WithHint("all ranks must be given the same options").WithContext(step);
  }
  return OkStatus();
}

}  // namespace crossdock::convert
