// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy_strided.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdock::kernels {
namespace {

using Bytes = std::vector<std::byte>;

Bytes RandomBytes(std::size_t n, std::mt19937_64& rng) {
  Bytes out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(rng() & 0xFFU);
  return out;
}

struct Job {
  std::vector<StrideDim> dims;
  std::int64_t from_offset = 0;
  std::int64_t to_offset = 0;
  std::int64_t elements = 1;  ///< of either buffer
};

/// Random loops that are a bijection between two dense arrays: each side orders the axes in its own way, some axes
/// of the source run backwards, and the loops come in the target's order.
Job RandomJob(std::mt19937_64& rng) {
  const std::size_t rank = rng() % 5;
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::uint64_t most = rng() % 4 == 0 ? 90 : 9;
    counts.push_back(static_cast<std::int64_t>(rng() % most + 1));
  }
  std::vector<std::size_t> from_order(rank);
  std::iota(from_order.begin(), from_order.end(), 0U);
  std::shuffle(from_order.begin(), from_order.end(), rng);
  Job job;
  job.dims.resize(rank);
  std::int64_t step = 1;
  for (std::size_t i = rank; i > 0; --i) {
    job.dims[i - 1] = {counts[i - 1], 0, step};
    step *= counts[i - 1];
  }
  step = 1;
  for (const std::size_t axis : from_order) {
    const bool reversed = rng() % 5 == 0;
    job.dims[axis].from_stride = reversed ? -step : step;
    if (reversed) job.from_offset += step * (counts[axis] - 1);
    step *= counts[axis];
  }
  job.elements = step;
  return job;
}

TEST(CopyStrided, EqualsTheReferenceOnRandomLoops) {
  std::mt19937_64 rng(20240607);
  for (int round = 0; round < 600; ++round) {
    Job job = RandomJob(rng);
    const std::int64_t element = std::int64_t{1} << (rng() % 4);
    const auto margin = static_cast<std::int64_t>(rng() % 3);
    job.from_offset += margin;
    job.to_offset += margin;
    const auto size = static_cast<std::size_t>((job.elements + 2 * margin) * element);
    const Bytes from = RandomBytes(size, rng);
    Bytes got(size, std::byte{0xAA});
    Bytes want(size, std::byte{0xAA});
    CopyStrided(from.data(), job.from_offset, got.data(), job.to_offset, job.dims, element);
    CopyStridedReference(from.data(), job.from_offset, want.data(), job.to_offset, job.dims, element);
    ASSERT_EQ(got, want) << "round " << round;
  }
}

TEST(CopyStrided, WritesOnlyWhereTheLoopsPoint) {
  std::mt19937_64 rng(7);
  const Bytes from = RandomBytes(400, rng);
  Bytes got(400, std::byte{0});
  const std::vector<StrideDim> dims = {{5, 20, 18}, {7, 2, 2}};  // gaps on both sides
  CopyStrided(from.data(), 1, got.data(), 3, dims, 2);
  Bytes want(400, std::byte{0});
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = 0; j < 7; ++j) {
      for (std::size_t b = 0; b < 2; ++b) want[(3 + 18 * i + 2 * j) * 2 + b] = from[(1 + 20 * i + 2 * j) * 2 + b];
    }
  }
  EXPECT_EQ(got, want);
}

TEST(CopyStrided, CopiesOneElementWithoutLoopsAndNothingWithAnEmptyOne) {
  const Bytes from = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  Bytes to(4, std::byte{0});
  CopyStrided(from.data(), 1, to.data(), 0, {}, 2);
  EXPECT_THAT(to, testing::ElementsAre(std::byte{3}, std::byte{4}, std::byte{0}, std::byte{0}));
  const std::vector<StrideDim> none = {{3, 1, 1}, {0, 1, 1}};
  CopyStrided(from.data(), 0, to.data(), 0, none, 1);
  EXPECT_THAT(to, testing::ElementsAre(std::byte{3}, std::byte{4}, std::byte{0}, std::byte{0}));
}

TEST(FillStrided, ZeroesTheLoopsAndNothingElse) {
  Bytes got(64, std::byte{0xFF});
  const std::vector<StrideDim> dims = {{3, 0, 8}, {4, 0, 1}};
  FillStrided(got.data(), 2, dims, 2);
  for (std::size_t i = 0; i < 32; ++i) {
    const bool inside = i >= 2 && (i - 2) / 8 < 3 && (i - 2) % 8 < 4;
    EXPECT_EQ(got[2 * i], inside ? std::byte{0} : std::byte{0xFF}) << i;
    EXPECT_EQ(got[2 * i + 1], inside ? std::byte{0} : std::byte{0xFF}) << i;
  }
}

}  // namespace
}  // namespace crossdock::kernels
