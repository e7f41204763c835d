// SPDX-License-Identifier: Apache-2.0
/// \file  CROSSDOCK_CHECK: aborts on a bug of ours. Never reachable from input: input errors are Results.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CROSSDOCK_CHECK(cond)                                                                     \
  do {                                                                                            \
    if (!(cond)) {                                                                                \
      std::fprintf(stderr, "crossdock: internal error: %s at %s:%d\n", #cond, __FILE__, __LINE__); \
      std::abort();                                                                               \
    }                                                                                             \
  } while (false)
