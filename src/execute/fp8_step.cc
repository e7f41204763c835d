// SPDX-License-Identifier: Apache-2.0
#include "execute/fp8_step.h"

#include <algorithm>

namespace crossdock::execute {
namespace {

quantize::Fp8Rule RuleOf(const plan::Quantize& step) {
  quantize::Fp8Rule rule;
  rule.block_rows = step.fp8.block.rows;
  rule.block_cols = step.fp8.block.cols;
  rule.scales = step.fp8.scales == expr::ScaleFormat::kUe8m0 ? quantize::ScaleFormat::kUe8m0 : quantize::ScaleFormat::kFloat;
  rule.arithmetic = step.fp8.arithmetic == expr::Arithmetic::kRelax ? quantize::Arithmetic::kRelax : quantize::Arithmetic::kReference;
  return rule;
}

/// Calls body(first element in the scratch, count, block) for each run of a row that lies in one block.
template <typename Body>
void ForEachRun(const plan::Quantize& step, const Body& body) {
  const plan::QuantizePart& part = *step.part;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    const std::int64_t blocks = part.first + (part.row + row) / part.block_rows * part.across;
    for (std::int64_t col = 0; col < step.cols;) {
      const std::int64_t block = (part.col + col) / part.block_cols;
      const std::int64_t end = std::min((block + 1) * part.block_cols - part.col, step.cols);
      body(row * step.cols + col, end - col, blocks + block);
      col = end;
    }
  }
}

}  // namespace

Fp8Kernels::Blocks Fp8Kernels::BlocksOf(const plan::Quantize& step) {
  const plan::QuantizePart& part = *step.part;
  if (step.rows == 0) return {};
  const std::int64_t first = part.row / part.block_rows;
  return {part.first + first * part.across, ((part.row + step.rows - 1) / part.block_rows - first + 1) * part.across};
}

quantize::NonFinite Fp8Kernels::AmaxOfPart(const plan::Quantize& step, const std::byte* w, std::span<float> amaxes) {
  quantize::NonFinite all;
  const std::int64_t element = ElementSize(step.dtype);
  const std::int64_t base = BlocksOf(step).first;
  ForEachRun(step, [&](std::int64_t first, std::int64_t count, std::int64_t block) {
    quantize::NonFinite met;
    float& amax = amaxes[static_cast<std::size_t>(block - base)];
    amax = quantize::Larger(amax, quantize::AmaxOf(w + first * element, step.dtype, count, &met));
    if (met.count == 0) return;
    if (all.count == 0) all.first = first + met.first;
    all.count += met.count;
  });
  return all;
}

void Fp8Kernels::QuantizePart(const plan::Quantize& step, const std::byte* w, std::span<const float> amaxes, std::byte* q) {
  const std::int64_t element = ElementSize(step.dtype);
  ForEachRun(step, [&](std::int64_t first, std::int64_t count, std::int64_t block) {
    quantize::QuantizeWithScale(w + first * element, step.dtype, count, ScaleOf(step, amaxes[static_cast<std::size_t>(block)]), RuleOf(step), q + first);
  });
}

Result<quantize::NonFinite> Fp8Kernels::QuantizeBlocks(const plan::Quantize& step, const std::byte* w, std::byte* q, float* s) const {
  if (device_) return device_->QuantizeBlocks(w, step.dtype, step.rows, step.cols, RuleOf(step), q, s);
  return quantize::QuantizeBlocks(w, step.dtype, step.rows, step.cols, RuleOf(step), q, s);
}

Result<float> Fp8Kernels::AmaxOf(const plan::Quantize& step, const std::byte* w, quantize::NonFinite* found) const {
  if (device_) return device_->AmaxOf(w, step.dtype, step.rows * step.cols, found);
  return quantize::AmaxOf(w, step.dtype, step.rows * step.cols, found);
}

Status Fp8Kernels::QuantizeWithScale(const plan::Quantize& step, const std::byte* w, float scale, std::byte* q) const {
  if (device_) return device_->QuantizeWithScale(w, step.dtype, step.rows * step.cols, scale, RuleOf(step), q);
  quantize::QuantizeWithScale(w, step.dtype, step.rows * step.cols, scale, RuleOf(step), q);
  return OkStatus();
}

float Fp8Kernels::ScaleOf(const plan::Quantize& step, float amax) { return quantize::ScaleOf(amax, RuleOf(step)); }

}  // namespace crossdock::execute
