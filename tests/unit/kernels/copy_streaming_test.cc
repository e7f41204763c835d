// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy_streaming.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace crossdock::kernels {
namespace {

/// Sizes around a line and around the four pages that are copied at once, from and to every place within a line.
TEST(CopyStreaming, CopiesAllAndNothingElse) {
  std::vector<std::byte> from(70000), got(70000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>((i * 2654435761U) >> 13U);
  for (const std::size_t size : {0U, 1U, 63U, 64U, 200U, 16383U, 16384U, 16385U, 16448U, 33000U, 65536U, 69000U}) {
    for (std::size_t source = 0; source < 64; source += 9) {
      for (std::size_t target = 0; target < 64; target += 7) {
        std::vector<std::byte> want(got.size(), std::byte{0x5A});
        got = want;
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), size, want.begin() + static_cast<std::ptrdiff_t>(target));
        CopyStreaming(from.data() + source, got.data() + target, size);
        ASSERT_EQ(got, want) << size << " bytes, " << source << " to " << target;
      }
    }
  }
}

}  // namespace
}  // namespace crossdock::kernels
