// SPDX-License-Identifier: Apache-2.0
/// \file  Dims: up to kMaxRank integers; the type of shapes, offsets and strides.
/// A catalog may hold a million boxes, so they must be small and flat: four integers lie in the object itself, which is
/// what nearly every tensor has; only more of them lie on the heap.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

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

  Dims(const Dims& other) : size_(other.size_), on_heap_(other.on_heap_) {
    if (on_heap_) {
      heap_ = new Spilled(*other.heap_);
    } else {
      inline_ = other.inline_;
    }
  }
  /// What was moved from is empty.
  Dims(Dims&& other) noexcept { Take(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) *this = Dims(other);
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept {
    if (this == &other) return *this;
    Free();
    Take(other);
    return *this;
  }
  ~Dims() { Free(); }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::int64_t& operator[](std::size_t i) { return data()[i]; }
  [[nodiscard]] std::int64_t operator[](std::size_t i) const { return data()[i]; }
  [[nodiscard]] std::int64_t* begin() { return data(); }
  [[nodiscard]] std::int64_t* end() { return data() + size_; }
  [[nodiscard]] const std::int64_t* begin() const { return data(); }
  [[nodiscard]] const std::int64_t* end() const { return data() + size_; }
  [[nodiscard]] std::int64_t back() const { return data()[size_ - 1]; }

  /// REQUIRES: size() < kMaxRank.
  void push_back(std::int64_t v) {
    CROSSDOCK_CHECK(size_ < kMaxRank);
    if (size_ == kInline && !on_heap_) {
      auto* spilled = new Spilled{};
      std::ranges::copy(inline_, spilled->begin());
      heap_ = spilled;
      on_heap_ = true;
    }
    data()[size_++] = v;
  }
  void insert(std::size_t at, std::int64_t v) {
    push_back(0);
    std::int64_t* values = data();
    for (std::size_t i = size_ - 1U; i > at; --i) values[i] = values[i - 1];
    values[at] = v;
  }
  void erase(std::size_t at) {
    std::int64_t* values = data();
    for (std::size_t i = at; i + 1 < size_; ++i) values[i] = values[i + 1];
    --size_;
  }

  friend bool operator==(const Dims& a, const Dims& b) { return std::ranges::equal(a, b); }
  friend auto operator<=>(const Dims& a, const Dims& b) {
    if (auto c = a.size_ <=> b.size_; c != 0) return c;
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr std::size_t kInline = 4;
  using Spilled = std::array<std::int64_t, kMaxRank>;

  [[nodiscard]] std::int64_t* data() { return on_heap_ ? heap_->data() : inline_.data(); }
  [[nodiscard]] const std::int64_t* data() const { return on_heap_ ? heap_->data() : inline_.data(); }
  void Free() {
    if (on_heap_) delete heap_;
  }
  /// REQUIRES: this owns nothing.
  void Take(Dims& other) {
    size_ = std::exchange(other.size_, std::uint8_t{0});
    on_heap_ = std::exchange(other.on_heap_, false);
    if (on_heap_) {
      heap_ = other.heap_;
      other.inline_ = {};
    } else {
      inline_ = other.inline_;
    }
  }

  // A union and an owning pointer, which nothing else here has: a variant would be a quarter larger.
  union {
    std::array<std::int64_t, kInline> inline_{};
    Spilled* heap_;  ///< when on_heap_
  };
  std::uint8_t size_ = 0;
  bool on_heap_ = false;
};
static_assert(sizeof(Dims) == 40, "what a plan holds a million of");

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
