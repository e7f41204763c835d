// SPDX-License-Identifier: Apache-2.0
/// \file  What a plan says of FP8, carried out by the kernels of the CPU or by a CUDA device: both give the same bytes.
/// Errors: those of the device; the CPU has none. Threads: may be used from several at once.
#pragma once

#include <optional>

#include "plan/plan.h"
#include "quantize/cuda/device.h"

namespace crossdock::execute {

/// Contracts: quantize/block.h. The group of a whole tensor is one block, however much of it a task holds.
class Fp8Kernels {
 public:
  Fp8Kernels() = default;  ///< the CPU
  explicit Fp8Kernels(quantize::CudaDevice device) : device_(std::move(device)) {}

  [[nodiscard]] Result<quantize::NonFinite> QuantizeBlocks(const plan::Quantize& step, const std::byte* w, std::byte* q, float* s) const;
  [[nodiscard]] Result<float> AmaxOf(const plan::Quantize& step, const std::byte* w, quantize::NonFinite* found) const;
  [[nodiscard]] Status QuantizeWithScale(const plan::Quantize& step, const std::byte* w, float scale, std::byte* q) const;
  [[nodiscard]] static float ScaleOf(const plan::Quantize& step, float amax);

 private:
  std::optional<quantize::CudaDevice> device_;
};

}  // namespace crossdock::execute
