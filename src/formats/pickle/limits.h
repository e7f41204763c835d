// SPDX-License-Identifier: Apache-2.0
/// \file  Bounds of what one pickle may cost, whatever it says. A training checkpoint's common state stays far below.
#pragma once

#include <cstdint>

namespace crossdock::formats::pickle {

struct Limits {
  std::int64_t max_graph_bytes = 256 << 20;  ///< memory while reading
  std::int64_t max_values = 1 << 20;         ///< nodes of the expanded tree
  std::int64_t max_text_bytes = 256 << 20;   ///< strings and bytes of the expanded tree
  int max_depth = 200;                       ///< of the expanded tree; keeps recursion over Values safe everywhere
};

}  // namespace crossdock::formats::pickle
