// SPDX-License-Identifier: Apache-2.0
/// \file  Lines of a golden file of tests/golden/layout, without comments.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace crossdock::layout {

inline std::vector<std::string> GoldenLines(const std::string& name) {
  std::ifstream file(std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/layout/" + name);
  EXPECT_TRUE(file.is_open()) << name;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) lines.push_back(line);
  }
  return lines;
}

}  // namespace crossdock::layout
