// SPDX-License-Identifier: Apache-2.0
#include "execute/box_runs.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace crossdock::execute {
namespace {

/// The elements of a box, one by one, as byte offsets.
std::vector<std::int64_t> ByElement(const Shape& shape, const Box& box, std::int64_t element) {
  std::vector<std::int64_t> out;
  const Dims strides = RowMajorStrides(shape);
  const std::int64_t count = box.count();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      offset += (box.offsets[axis] + rest % box.sizes[axis]) * strides[axis];
      rest /= box.sizes[axis];
    }
    out.push_back(offset * element);
  }
  return out;
}

TEST(BoxRuns, GoesThroughTheElementsInOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Shape shape;
    Box box;
    const auto rank = static_cast<std::size_t>(random() % 5);
    for (std::size_t i = 0; i < rank; ++i) {
      const auto size = static_cast<std::int64_t>(random() % 5 + 1);
      const auto offset = static_cast<std::int64_t>(random()) % size;
      shape.push_back(size);
      box.offsets.push_back(offset);
      box.sizes.push_back(static_cast<std::int64_t>(random()) % (size - offset) + 1);
    }
    std::vector<std::int64_t> elements;
    std::int64_t expected_left = BoxRuns(shape, box, 4).left();
    const std::int64_t reach = BoxRuns(shape, box, 4).reach();
    for (BoxRuns runs(shape, box, 4); !runs.done(); runs.Next()) {
      EXPECT_EQ(runs.left(), expected_left--);
      for (std::int64_t at = 0; at < runs.length(); at += 4) elements.push_back(runs.offset() + at);
    }
    EXPECT_EQ(elements, ByElement(shape, box, 4)) << ToString(shape) << " " << ToString(box);
    EXPECT_EQ(reach, elements.back() + 4 - elements.front());
  }
}

TEST(BoxRuns, MergesWhatIsContiguous) {
  EXPECT_EQ(BoxRuns({4, 6, 5}, {{1, 0, 0}, {2, 6, 5}}, 2).left(), 1);
  EXPECT_EQ(BoxRuns({4, 6, 5}, {{1, 0, 0}, {2, 6, 5}}, 2).length(), 120);
  EXPECT_EQ(BoxRuns({4, 6, 5}, {{1, 2, 0}, {1, 3, 5}}, 2).left(), 1);
  EXPECT_EQ(BoxRuns({4, 6, 5}, {{1, 2, 0}, {2, 3, 5}}, 2).left(), 2);
}

TEST(BoxRuns, AScalarIsOneRunAndAnEmptyBoxNone) {
  EXPECT_EQ(BoxRuns({}, {}, 8).left(), 1);
  EXPECT_EQ(BoxRuns({}, {}, 8).length(), 8);
  EXPECT_TRUE(BoxRuns({3, 4}, {{0, 1}, {3, 0}}, 8).done());
}

}  // namespace
}  // namespace crossdock::execute
