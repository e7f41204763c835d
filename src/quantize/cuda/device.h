// SPDX-License-Identifier: Apache-2.0
/// \file  CudaDevice: the functions of block.h on a CUDA device, through a plugin that is loaded when asked for, so that the
/// program itself needs no CUDA. Results are meant to be those of the CPU, byte for byte (docs/performance.md says what was seen).
/// Errors: kUnsupported where plugin or device are missing, and says which; kIo when the device fails in the middle.
/// Threads: all functions may be called from several at once. Buffers are in ordinary memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "crossdock/result.h"
#include "quantize/block.h"
#include "quantize/cuda/plugin_abi.h"

namespace crossdock::quantize {

class CudaDevice {
 public:
  /// The plugin lies beside the program (or the library that this is part of), or where the system looks for libraries.
  [[nodiscard]] static Result<CudaDevice> Open();
  [[nodiscard]] static Result<CudaDevice> Open(const std::string& plugin);

  /// Contracts: block.h.
  [[nodiscard]] Result<NonFinite> QuantizeBlocks(const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols,
                                                 const Fp8Rule& rule, std::byte* q, float* s) const;
  [[nodiscard]] Result<float> AmaxOf(const std::byte* w, DType dtype, std::int64_t count, NonFinite* found) const;
  [[nodiscard]] Status QuantizeWithScale(const std::byte* w, DType dtype, std::int64_t count, float scale, const Fp8Rule& rule,
                                         std::byte* q) const;

 private:
  explicit CudaDevice(CrossdockFp8Run* run) : run_(run) {}
  [[nodiscard]] Status Run(CrossdockFp8Request& request) const;

  CrossdockFp8Run* run_;  ///< of a plugin that stays loaded until the program ends
};

}  // namespace crossdock::quantize
