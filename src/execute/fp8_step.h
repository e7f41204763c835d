// SPDX-License-Identifier: Apache-2.0
/// \file  What a plan says of FP8, carried out by the kernels of the CPU or by a CUDA device: both give the same bytes.
/// Errors: those of the device; the CPU has none. Threads: may be used from several at once.
#pragma once

#include <optional>
#include <span>

#include "plan/plan.h"
#include "quantize/cuda/device.h"

namespace crossdock::execute {

/// Contracts: quantize/block.h. The group of a whole tensor is one block, however much of it a task holds.
class Fp8Kernels {
 public:
  Fp8Kernels() = default;  ///< the CPU
  explicit Fp8Kernels(quantize::CudaDevice device) : device_(device) {}

  [[nodiscard]] Result<quantize::NonFinite> QuantizeBlocks(const plan::Quantize& step, const std::byte* w, std::byte* q, float* s) const;
  [[nodiscard]] Result<float> AmaxOf(const plan::Quantize& step, const std::byte* w, quantize::NonFinite* found) const;
  [[nodiscard]] Status QuantizeWithScale(const plan::Quantize& step, const std::byte* w, float scale, std::byte* q) const;
  /// A range of blocks among all that are told each other.
  struct Blocks {
    std::int64_t first = 0, count = 0;
  };
  /// Those that a part (plan::QuantizePart) has elements of; others may lie between them.
  [[nodiscard]] static Blocks BlocksOf(const plan::Quantize& step);
  /// The largest value that a part has of each of BlocksOf, 0 of none. On the CPU, as is QuantizePart.
  static quantize::NonFinite AmaxOfPart(const plan::Quantize& step, const std::byte* w, std::span<float> amaxes);
  /// `amaxes`: the largest values over all parts, of all blocks.
  static void QuantizePart(const plan::Quantize& step, const std::byte* w, std::span<const float> amaxes, std::byte* q);
  [[nodiscard]] static float ScaleOf(const plan::Quantize& step, float amax);

 private:
  std::optional<quantize::CudaDevice> device_;
};

}  // namespace crossdock::execute
