// SPDX-License-Identifier: Apache-2.0
/// \file  Rounding by search, for the tests: the list of all finite values of a format, and the nearest of them, ties
/// to the even code. It shares no arithmetic with the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace crossdock::kernels {

class NearestBySearch {
 public:
  /// `decode` gives the value of a non-negative code; codes 0..largest are finite and ascending. `over` is the code
  /// of what lies one step above the largest finite value (infinity or NaN).
  NearestBySearch(const std::function<double(std::uint32_t)>& decode, std::uint32_t largest, std::uint32_t over)
      : over_(over) {
    for (std::uint32_t code = 0; code <= largest; ++code) values_.push_back(decode(code));
    // Where the next value would be if the format went on: rounding decides as if it were there.
    values_.push_back(2 * values_[largest] - values_[largest - 1]);
  }

  /// REQUIRES: magnitude >= 0, not NaN.
  [[nodiscard]] std::uint32_t operator()(double magnitude) const {
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.end()) return over_;
    auto code = static_cast<std::uint32_t>(above - values_.begin());
    if (code > 0 && *above != magnitude) {
      const double up = *above - magnitude;
      const double down = magnitude - values_[code - 1];
      if (down < up || (down == up && (code & 1U) == 1)) --code;
    }
    return code + 1 == values_.size() ? over_ : code;
  }

 private:
  std::vector<double> values_;
  std::uint32_t over_;
};

}  // namespace crossdock::kernels
