// SPDX-License-Identifier: Apache-2.0
/// \file  What is wrong with the tensors that a rank handed over, told together: the caller mends all of it at once.
/// Threads: one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::convert {

class TensorComplaints {
 public:
  /// `kind` is a few words, "of another shape"; `detail` stands behind the name.
  void Add(const std::string& kind, const std::string& name, const std::string& detail = "");
  /// kUsage when there are any, with how many of each kind and the first eight of them by name.
  [[nodiscard]] Status Outcome(const std::string& hint) const;

 private:
  std::map<std::string, std::vector<std::string>> kinds_;
  std::string first_;
};

}  // namespace crossdock::convert
