// SPDX-License-Identifier: Apache-2.0
/// \file  BoxRuns: walks the contiguous byte runs of a box inside a row-major chunk, in the order of their offsets.
/// Runs are made on the fly and never stored: a plan holds boxes, and one box may have millions of runs.
/// Invariant: trailing axes that the box covers whole are merged, so runs are as long as they can be.
/// Threads: a plain value.
#pragma once

#include <cstdint>

#include "tensor/box.h"

namespace crossdock::execute {

class BoxRuns {
 public:
  BoxRuns() = default;  ///< no runs
  /// REQUIRES: `box` fits in `chunk`; `element` bytes an element.
  BoxRuns(const Shape& chunk, const Box& box, std::int64_t element);
  [[nodiscard]] bool done() const { return left_ == 0; }
  [[nodiscard]] std::int64_t offset() const { return offset_; }  ///< bytes from the start of the chunk
  [[nodiscard]] std::int64_t length() const { return length_; }  ///< bytes, the same for every run
  [[nodiscard]] std::int64_t left() const { return left_; }      ///< runs not yet passed, this one included
  /// Bytes from the start of the first run to the end of the last. REQUIRES: at the first run, or done.
  [[nodiscard]] std::int64_t reach() const;
  void Next();

 private:
  Dims counts_;   ///< of the axes outside a run, outermost first
  Dims strides_;  ///< bytes
  Dims at_;
  std::int64_t offset_ = 0;
  std::int64_t length_ = 0;
  std::int64_t left_ = 0;
};

}  // namespace crossdock::execute
