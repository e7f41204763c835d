// SPDX-License-Identifier: Apache-2.0
#include "quantize/simd/path.h"

#include <array>

namespace crossdock::quantize::simd {
namespace {

struct Found {
  std::array<const Path*, 4> paths{};
  std::size_t count = 0;
};

Found Find() {
  Found found;
#if defined(CROSSDOCK_FP8_X86)
  // The compiler's runtime also asks the operating system whether it keeps the wide registers.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    found.paths[found.count++] = &kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) found.paths[found.count++] = &kAvx2;
#endif
#if defined(CROSSDOCK_FP8_NEON)
  found.paths[found.count++] = &kNeon;
#endif
  found.paths[found.count++] = &kScalar;
  return found;
}

}  // namespace

std::span<const Path* const> Runnable() {
  static const Found found = Find();
  return {found.paths.data(), found.count};
}

}  // namespace crossdock::quantize::simd
