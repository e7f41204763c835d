// SPDX-License-Identifier: Apache-2.0
/// \file  Speed of FP8 quantization on one core, for each path that this machine runs: GB (10^9 bytes) of input a second of
/// the thread's CPU time, the best of several rounds.
///     cmake --build build/release --target fp8_kernels && taskset -c 0 build/release/benchmarks/fp8_kernels [MiB [rounds [bf16|f16|f32]]]
/// `memory`: matrices of 4096 x 4096 one after the other, 512 MiB unless told otherwise; `cache`: one of 256 x 1024 again and again.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "quantize/block_paths.h"

namespace {

using crossdock::DType;
using crossdock::quantize::Fp8Rule;
using crossdock::quantize::simd::Path;

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Numbers as weights are spread: any sign and mantissa, exponents below 2^-3.
std::vector<std::byte> Weights(std::size_t bytes, DType dtype) {
  std::vector<std::byte> out(bytes);
  std::uint64_t state = 1;
  const std::size_t size = dtype == DType::kF32 ? 4 : 2;
  for (std::size_t i = 0; i < bytes; i += size) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto v = static_cast<std::uint32_t>(state >> 32U);
    const std::uint32_t low = v & 3U;
    const std::uint32_t bits = dtype == DType::kF32    ? (v & 0x807FFFFFU) | ((121U - low) << 23U)
                               : dtype == DType::kBF16 ? ((v >> 16U) & 0x807FU) | ((121U - low) << 7U)
                                                       : ((v >> 16U) & 0x83FFU) | ((11U - low) << 10U);
    std::memcpy(out.data() + i, &bits, size);
  }
  return out;
}

struct Matrix {
  std::int64_t rows, cols;
};

/// GB/s over all matrices that `w` holds.
double Speed(const Path& path, const std::vector<std::byte>& w, DType dtype, Matrix m, const Fp8Rule& rule, int rounds, int repeats) {
  const std::int64_t size = m.rows * m.cols * (dtype == DType::kF32 ? 4 : 2);
  const std::int64_t matrices = static_cast<std::int64_t>(w.size()) / size;
  std::vector<std::byte> q(static_cast<std::size_t>(m.rows * m.cols));
  std::vector<float> s(static_cast<std::size_t>(m.rows * m.cols));
  double best = 0;
  for (int round = 0; round <= rounds; ++round) {  // the first one only warms up
    const double start = CpuSeconds();
    for (int again = 0; again < repeats; ++again) {
      for (std::int64_t i = 0; i < matrices; ++i) {
        crossdock::quantize::QuantizeBlocksBy(path, w.data() + i * size, dtype, m.rows, m.cols, rule, q.data(), s.data());
      }
    }
    const double bytes = static_cast<double>(size) * static_cast<double>(matrices) * repeats;
    if (round > 0) best = std::max(best, bytes / (CpuSeconds() - start) / 1e9);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const auto mib = static_cast<std::size_t>(argc > 1 ? std::max(64, std::atoi(argv[1])) : 512);
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 5;
  constexpr Matrix kLarge{4096, 4096}, kSmall{256, 1024};
  struct Kind {
    const char* name;
    std::int64_t rows, cols;  ///< of a group; 0 for all
  };
  std::printf("%-8s %-5s %-8s %-6s %8s %8s\n", "path", "input", "group", "scale", "memory", "cache");
  for (const auto& [dtype, type] : {std::pair{DType::kBF16, "bf16"}, std::pair{DType::kF16, "f16"}, std::pair{DType::kF32, "f32"}}) {
    if (argc > 3 && std::strcmp(argv[3], type) != 0) continue;
    const std::vector<std::byte> w = Weights(mib << 20U, dtype);
    const std::vector<std::byte> little(w.begin(), w.begin() + kSmall.rows * kSmall.cols * (dtype == DType::kF32 ? 4 : 2));
    for (const Path* path : crossdock::quantize::simd::Runnable()) {
      for (const Kind kind : {Kind{"block", 128, 128}, Kind{"channel", 1, 0}, Kind{"tensor", 0, 0}}) {
        for (const auto scales : {crossdock::quantize::ScaleFormat::kFloat, crossdock::quantize::ScaleFormat::kUe8m0}) {
          const auto rule = [&](Matrix m) { return Fp8Rule{kind.rows > 0 ? kind.rows : m.rows, kind.cols > 0 ? kind.cols : m.cols, scales}; };
          const double memory = Speed(*path, w, dtype, kLarge, rule(kLarge), rounds, 1);
          const double cache = Speed(*path, little, dtype, kSmall, rule(kSmall), rounds, 100);
          std::printf("%-8s %-5s %-8s %-6s %8.2f %8.2f\n", path->name, type, kind.name,
                      scales == crossdock::quantize::ScaleFormat::kFloat ? "f32" : "ue8m0", memory, cache);
        }
      }
    }
  }
  return 0;
}
