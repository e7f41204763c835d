// SPDX-License-Identifier: Apache-2.0
/// \file  Dims: up to kMaxRank integers without a heap allocation; the type of shapes, offsets and strides.
/// A catalog may hold a million boxes, so they must be small and flat.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"
#include "crossdock/result.h"

namespace crossdock {

/// No checkpoint of a language model comes near; a reader refuses more with kUnsupported.
inline constexpr std::size_t kMaxRank = 8;

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) {
    for (std::int64_t v : values) push_back(v);
  }
  /// `count` copies of `value`.
  static Dims Filled(std::size_t count, std::int64_t value) {
    Dims d;
    for (std::size_t i = 0; i < count; ++i) d.push_back(value);
    return d;
  }
  /// kUnsupported when there are more than kMaxRank values.
  static Result<Dims> FromSpan(std::span<const std::int64_t> values) {
    if (values.size() > kMaxRank) {
      return MakeError(ErrorCode::kUnsupported, "a tensor has too many axes")
          .WithExpected("at most " + std::to_string(kMaxRank))
          .WithFound(std::to_string(values.size()));
    }
    Dims d;
    for (std::int64_t v : values) d.push_back(v);
    return d;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::int64_t& operator[](std::size_t i) { return values_[i]; }
  [[nodiscard]] std::int64_t operator[](std::size_t i) const { return values_[i]; }
  [[nodiscard]] std::int64_t* begin() { return values_.data(); }
  [[nodiscard]] std::int64_t* end() { return values_.data() + size_; }
  [[nodiscard]] const std::int64_t* begin() const { return values_.data(); }
  [[nodiscard]] const std::int64_t* end() const { return values_.data() + size_; }
  [[nodiscard]] std::int64_t back() const { return values_[size_ - 1]; }

  /// REQUIRES: size() < kMaxRank.
  void push_back(std::int64_t v) {
    CROSSDOCK_CHECK(size_ < kMaxRank);
    values_[size_++] = v;
  }
  void insert(std::size_t at, std::int64_t v) {
    push_back(0);
    for (std::size_t i = size_ - 1U; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = v;
  }
  void erase(std::size_t at) {
    for (std::size_t i = at; i + 1 < size_; ++i) values_[i] = values_[i + 1];
    values_[--size_] = 0;
  }

  friend bool operator==(const Dims& a, const Dims& b) {
    return a.size_ == b.size_ && a.values_ == b.values_;
  }
  friend auto operator<=>(const Dims& a, const Dims& b) {
    if (auto c = a.size_ <=> b.size_; c != 0) return c;
    return a.values_ <=> b.values_;
  }

 private:
  std::array<std::int64_t, kMaxRank> values_{};  // unused ones are 0
  std::uint8_t size_ = 0;
};

using Shape = Dims;

/// Product of the axes. kCorrupt when an axis is negative or the product overflows. [] has one element.
[[nodiscard]] Result<std::int64_t> ElementCount(const Shape& shape);
/// As ElementCount. REQUIRES: the shape was checked before (aborts on overflow).
[[nodiscard]] std::int64_t CheckedCount(const Shape& shape);
/// Row-major strides in elements; an axis of size 0 counts as 1 (torch's convention).
[[nodiscard]] Dims RowMajorStrides(const Shape& shape);
/// "[2, 3]", "[]".
[[nodiscard]] std::string ToString(const Dims& dims);

}  // namespace crossdock
