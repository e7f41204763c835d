// SPDX-License-Identifier: Apache-2.0
/// \file  What the library and its CUDA plugin say to each other: C functions by name, one structure, no type of ours.
/// The plugin is built by nvcc, maybe elsewhere and at another time, so its version is asked for before anything else.
/// Errors: a function returns 0, or another number and a text. Threads: run may be called from several at once.
#pragma once

#include <cstdint>

extern "C" {

enum CrossdockFp8Operation : std::int32_t {
  kCrossdockFp8Blocks = 0,     ///< w to q and s, and what is not finite
  kCrossdockFp8Peak = 1,       ///< w to the peak, and what is not finite
  kCrossdockFp8WithScale = 2,  ///< w and scale to q
};

enum CrossdockFp8Type : std::int32_t { kCrossdockFp8Bf16 = 0, kCrossdockFp8F16 = 1, kCrossdockFp8F32 = 2 };

struct CrossdockFp8Request {
  std::int32_t operation;
  std::int32_t type;
  const void* w;  ///< in the memory of the host, as q and s
  std::int64_t rows, cols, block_rows, block_cols;  ///< the blocks only for kCrossdockFp8Blocks
  std::int32_t ue8m0;
  std::int32_t relax;
  float scale;
  std::uint32_t peak;  ///< out: the bits of max |w| as F32
  void* q;
  void* s;
  std::int64_t nonfinite_count, nonfinite_first;  ///< out
  char error[256];                                ///< out, when the call fails
};

/// Names and types of the plugin's functions.
#define CROSSDOCK_FP8_VERSION_FUNCTION "crossdock_fp8_version"
#define CROSSDOCK_FP8_PROBE_FUNCTION "crossdock_fp8_probe"
#define CROSSDOCK_FP8_RUN_FUNCTION "crossdock_fp8_run"
using CrossdockFp8Version = std::int32_t();
/// Is there a device? The text says why not.
using CrossdockFp8Probe = std::int32_t(char* error, std::int64_t size);
using CrossdockFp8Run = std::int32_t(CrossdockFp8Request* request);

}  // extern "C"

/// Changed with every change of this file.
inline constexpr std::int32_t kCrossdockFp8PluginVersion = 1;
