// SPDX-License-Identifier: Apache-2.0
#include "quantize/cuda/device.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "quantize/block.h"
#include "result_matchers.h"

namespace crossdock::quantize {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaDevice, SaysThatThePluginIsMissing) {
  EXPECT_THAT(CudaDevice::Open("/nowhere/libcrossdock_fp8_cuda.so"),
              IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("needs a plugin that cannot be loaded"), HasSubstr("/nowhere"), HasSubstr("nvcc"))));
}

TEST(CudaDevice, RefusesALibraryThatIsNoPlugin) {
  EXPECT_THAT(CudaDevice::Open("libm.so.6"), IsError(ErrorCode::kUnsupported, HasSubstr("not built for this version")));
}

/// Where plugin and device are, the bytes are those of the CPU; where they are not, the error says what is missing.
TEST(CudaDevice, GivesTheBytesOfTheCpuOrSaysWhatIsMissing) {
  const Result<CudaDevice> device = CudaDevice::Open(CROSSDOCK_FP8_PLUGIN);
  if (!device) {
    EXPECT_THAT(device, IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("FP8 on a CUDA device"), HasSubstr("on the CPU"))));
    return;
  }
  std::mt19937 rng(5);
  for (int round = 0; round < 60; ++round) {
    const DType dtype = round % 3 == 0 ? DType::kBF16 : round % 3 == 1 ? DType::kF16 : DType::kF32;
    const auto rows = static_cast<std::int64_t>(1 + rng() % 300U), cols = static_cast<std::int64_t>(1 + rng() % 300U), count = rows * cols;
    const bool whole = round % 4 == 0;
    const Fp8Rule rule{whole ? rows : static_cast<std::int64_t>(1 + rng() % 130U), whole ? cols : static_cast<std::int64_t>(1 + rng() % 130U),
                       round % 5 == 0 ? ScaleFormat::kUe8m0 : ScaleFormat::kFloat, whole ? Arithmetic::kRelax : Arithmetic::kReference};
    std::vector<std::byte> w(static_cast<std::size_t>(count * ElementSize(dtype)));
    for (std::byte& b : w) b = static_cast<std::byte>(rng() & (round % 2 == 0 ? 0xFFU : 0x3FU));  // with and without NaN and infinity
    std::vector<std::byte> q(static_cast<std::size_t>(count)), expected(q.size());
    std::vector<float> s(q.size()), scales(q.size());
    const NonFinite counted = QuantizeBlocks(w.data(), dtype, rows, cols, rule, expected.data(), scales.data());
    ASSERT_OK_AND_ASSIGN(const NonFinite found, device->QuantizeBlocks(w.data(), dtype, rows, cols, rule, q.data(), s.data()));
    EXPECT_EQ(found.count, counted.count);
    EXPECT_EQ(found.first, counted.first);
    EXPECT_EQ(q, expected);
    EXPECT_EQ(std::memcmp(s.data(), scales.data(), s.size() * sizeof(float)), 0);
    if (!whole) continue;
    ASSERT_OK_AND_ASSIGN(const float amax, device->AmaxOf(w.data(), dtype, count, nullptr));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(ScaleOf(amax, rule)), std::bit_cast<std::uint32_t>(scales[0]));
    ASSERT_THAT(device->QuantizeWithScale(w.data(), dtype, count, ScaleOf(amax, rule), rule, q.data()), IsOk());
    EXPECT_EQ(q, expected);
  }
}

}  // namespace
}  // namespace crossdock::quantize
