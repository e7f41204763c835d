// SPDX-License-Identifier: Apache-2.0
#include "kernels/transpose.h"

#include <vector>

#include <gtest/gtest.h>

namespace crossdock::kernels {
namespace {

struct Case {
  std::int64_t rows, cols;
};

class TransposeSizes : public testing::TestWithParam<Case> {};

/// Sizes around the register tile (4, 8) and the cache block (64), where edges are handled apart.
TEST_P(TransposeSizes, PutsEveryElementInItsPlaceForEachElementSize) {
  const auto [rows, cols] = GetParam();
  for (const std::int64_t element : {1, 2, 4, 8}) {
    const std::int64_t from_stride = rows + 3;
    const std::int64_t to_stride = cols + 1;
    std::vector<std::byte> from(static_cast<std::size_t>(from_stride * cols * element));
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>((i * 2654435761U) >> 13U);
    std::vector<std::byte> got(static_cast<std::size_t>(to_stride * rows * element), std::byte{0x5A});
    std::vector<std::byte> want = got;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        for (std::int64_t b = 0; b < element; ++b) {
          want[static_cast<std::size_t>((i * to_stride + j) * element + b)] =
              from[static_cast<std::size_t>((j * from_stride + i) * element + b)];
        }
      }
    }
    Transpose2D(from.data(), from_stride, got.data(), to_stride, rows, cols, element);
    EXPECT_EQ(got, want) << element << " bytes an element";
  }
}

INSTANTIATE_TEST_SUITE_P(Edges, TransposeSizes,
                         testing::Values(Case{1, 1}, Case{1, 9}, Case{9, 1}, Case{4, 4}, Case{8, 8}, Case{7, 13},
                                         Case{64, 64}, Case{65, 63}, Case{130, 71}),
                         [](const auto& row) {
                           return std::to_string(row.param.rows) + "x" + std::to_string(row.param.cols);
                         });

}  // namespace
}  // namespace crossdock::kernels
