// SPDX-License-Identifier: Apache-2.0
#include "execute/fp8_step.h"

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

}  // namespace

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
