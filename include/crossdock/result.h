// SPDX-License-Identifier: Apache-2.0
/// \file  Result<T>: a value or an Error; Status: nothing or an Error. Ignoring either does not compile.
/// Names follow std::expected where it has them. There are exactly two macros:
///   CROSSDOCK_ASSIGN_OR_RETURN(lhs, expr)    CROSSDOCK_RETURN_IF_ERROR(expr)
#pragma once

#include <cstdlib>
#include <utility>
#include <variant>

#include "crossdock/error.h"

namespace crossdock {

template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}    // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  /// REQUIRES: has_value(); aborts otherwise.
  [[nodiscard]] T& value() & { return Checked(); }
  [[nodiscard]] const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  [[nodiscard]] T&& value() && { return std::move(Checked()); }
  [[nodiscard]] T& operator*() & { return Checked(); }
  [[nodiscard]] const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  [[nodiscard]] T&& operator*() && { return std::move(Checked()); }
  [[nodiscard]] T* operator->() { return &Checked(); }
  [[nodiscard]] const T* operator->() const { return &const_cast<Result*>(this)->Checked(); }

  /// REQUIRES: !has_value(); aborts otherwise.
  [[nodiscard]] const Error& error() const& {
    if (has_value()) std::abort();
    return *std::get_if<1>(&state_);
  }
  [[nodiscard]] Error&& error() && {
    if (has_value()) std::abort();
    return std::move(*std::get_if<1>(&state_));
  }

  /// The same result, with "while `what`" added to an error.
  [[nodiscard]] Result&& WithContext(std::string what) && {
    if (Error* e = std::get_if<1>(&state_)) e->context.push_back(std::move(what));
    return std::move(*this);
  }

 private:
  T& Checked() {
    if (T* v = std::get_if<0>(&state_)) return *v;
    std::abort();  // a bug of ours: the caller did not look
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const Error& error() const& {
    if (has_value()) std::abort();
    return *error_;
  }
  [[nodiscard]] Error&& error() && {
    if (has_value()) std::abort();
    return std::move(*error_);
  }
  [[nodiscard]] Result&& WithContext(std::string what) && {
    if (error_) error_->context.push_back(std::move(what));
    return std::move(*this);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;
[[nodiscard]] inline Status OkStatus() { return {}; }

}  // namespace crossdock

#define CROSSDOCK_CONCAT_INNER_(a, b) a##b
#define CROSSDOCK_CONCAT_(a, b) CROSSDOCK_CONCAT_INNER_(a, b)

/// Evaluates `expr` (a Result); returns its error from the enclosing function, or assigns its value.
#define CROSSDOCK_ASSIGN_OR_RETURN(lhs, expr) \
  CROSSDOCK_ASSIGN_OR_RETURN_IMPL_(CROSSDOCK_CONCAT_(crossdock_result_, __COUNTER__), lhs, expr)
#define CROSSDOCK_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                     \
  if (!tmp) return std::move(tmp).error();               \
  lhs = std::move(tmp).value()

/// Evaluates `expr` (a Status or Result); returns its error from the enclosing function.
#define CROSSDOCK_RETURN_IF_ERROR(expr)                                  \
  do {                                                                   \
    auto crossdock_status_ = (expr);                                     \
    if (!crossdock_status_) return std::move(crossdock_status_).error(); \
  } while (false)
