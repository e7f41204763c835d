// SPDX-License-Identifier: Apache-2.0
#include "io/faulty_storage.h"

namespace crossdock::io {
namespace {

bool ChangesSomething(Call call) {
  switch (call) {
    case Call::kStat:
    case Call::kList:
    case Call::kReadLink:
    case Call::kOpenRead:
    case Call::kOpenWrite:
    case Call::kProbe:
    case Call::kRead:
    case Call::kInfo:
      return false;
    default:
      return true;
  }
}

/// A full disk refuses these and still lets files be removed and renamed.
bool NeedsSpace(Call call) {
  return call == Call::kCreate || call == Call::kMakeDir || call == Call::kWrite || call == Call::kPreallocate ||
         call == Call::kSync;
}

}  // namespace

CallObserver::Verdict FaultyStorage::OnCall(const CallInfo& info) {
  if (fault_.writes_only && !ChangesSomething(info.call)) return {};
  if (fault_.code == ErrorCode::kNoSpace && !NeedsSpace(info.call)) return {};
  const std::int64_t call = ++calls_;
  const bool fails = fault_.at_call != 0 &&
                     (call == fault_.at_call || (fault_.stays && call > fault_.at_call && ChangesSomething(info.call)));
  if (!fails) return {};
  hit_ = true;
  Verdict verdict;
  const char* what = fault_.code == ErrorCode::kNoSpace ? "No space left on device" : "Input/output error";
  verdict.status = MakeError(fault_.code, what).WithPath(info.path);
  if (fault_.half_written) verdict.partial = info.length / 2;
  return verdict;
}

}  // namespace crossdock::io
