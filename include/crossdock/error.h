// SPDX-License-Identifier: Apache-2.0
/// \file  What can go wrong, as a value: a code, one short paragraph, where, and the next step.
/// Each code maps to exactly one exit status of the command line (ExitStatus). A difference found by
/// `verify` is a result and not an error.
/// Threads: an Error is a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crossdock {

enum class ErrorCode {
  kUsage,        ///< the request itself makes no sense (options, impossible layout)
  kCorrupt,      ///< bytes that contradict their own format
  kIncomplete,   ///< something that must be there is missing
  kUnsafe,       ///< input that would reach outside its place or run code
  kUnsupported,  ///< valid, but not something this version can carry
  kIo,           ///< the operating system refused
  kNoSpace,      ///< the disk is, or would be, full
  kCancelled,    ///< interrupted by SIGINT, SIGTERM or the caller
};

/// The machine-readable name of a code, e.g. "corrupt"; part of the JSON interface.
[[nodiscard]] std::string_view ErrorCodeName(ErrorCode code);

/// The exit status of the command line for a code: 2 usage, 3 input, 4 I/O, 5 interrupted.
[[nodiscard]] int ExitStatus(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kIo;
  std::string message;                   ///< what failed, without a final full stop
  std::string path;                      ///< the file, empty when none is concerned
  std::string tensor;                    ///< the tensor or key, empty when none is concerned
  std::optional<std::int64_t> offset;    ///< byte offset in `path`
  std::string expected;
  std::string found;
  std::string hint;                      ///< the next step where one is known for this very error, without "hint:"
  std::vector<std::string> context;      ///< what was being done, innermost first

  /// Adds "while ..." as the error travels up. The innermost context comes first.
  Error&& WithContext(std::string what) &&;
  Error&& WithPath(std::string value) &&;
  Error&& WithTensor(std::string value) &&;
  Error&& WithOffset(std::int64_t value) &&;
  Error&& WithExpected(std::string value) &&;
  Error&& WithFound(std::string value) &&;
  Error&& WithHint(std::string value) &&;

  /// The next step: `hint`, and where that is empty what is to be done about any
  /// input that is refused with this code; empty where the request or the machine is meant.
  [[nodiscard]] std::string_view NextStep() const;

  /// The whole paragraph as the user sees it, NextStep() last; tensor names and paths are printed escaped.
  [[nodiscard]] std::string ToString() const;
};

/// Starts an error: `return MakeError(ErrorCode::kCorrupt, "header too small").WithPath(path);`
[[nodiscard]] Error MakeError(ErrorCode code, std::string message);

/// `text` with control characters, quotes and bytes that are no UTF-8 escaped, cut at `limit` bytes:
/// names from a file are never printed raw.
[[nodiscard]] std::string Printable(std::string_view text, std::size_t limit = 200);

}  // namespace crossdock
