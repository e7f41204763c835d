// SPDX-License-Identifier: Apache-2.0
/// \file  Problems: collects errors so that a user sees all of them at once, not one a run.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::plan {

class Problems {
 public:
  void Add(Error error) {
    ++count_;
    if (named_.size() < kNamed) named_.push_back(std::move(error));
  }
  /// Nothing, the one error as it is, or one error that lists up to 20 by name and counts the rest. Its code is that
  /// of the first.
  [[nodiscard]] Status ToStatus() const;

 private:
  static constexpr std::size_t kNamed = 20;
  std::vector<Error> named_;
  std::size_t count_ = 0;
};

}  // namespace crossdock::plan
