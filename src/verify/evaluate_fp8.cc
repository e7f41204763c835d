// SPDX-License-Identifier: Apache-2.0
/// FP8 once more, element by element, from docs/formats/fp8.md: nothing of src/quantize is used.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cast.h"
#include "verify/evaluate.h"

namespace crossdock::verify {
namespace {

constexpr float kLargest = 448.0F;
constexpr std::int64_t kTile = std::int64_t{1} << 20U;  ///< elements looked at together for a block that is larger

float LoadSingle(const std::byte* p, DType type) { return static_cast<float>(kernels::LoadAsDouble(p, type)); }

/// The largest magnitude; NaN once there is one.
float LargestOf(const std::vector<std::byte>& elements, DType type, float so_far) {
  const std::int64_t size = ElementSize(type);
  for (std::size_t at = 0; at < elements.size(); at += static_cast<std::size_t>(size)) {
    const float v = std::fabs(LoadSingle(elements.data() + at, type));
    if (std::isnan(v) || std::isnan(so_far)) return std::numeric_limits<float>::quiet_NaN();
    so_far = std::max(so_far, v);
  }
  return so_far;
}

float ScaleOf(float amax, const expr::Fp8Format& fp8) {
  if (std::isnan(amax)) return std::numeric_limits<float>::quiet_NaN();
  const float scale = std::max(amax, 1e-12F) / kLargest;
  if (fp8.scales == expr::ScaleFormat::kFloat || std::isinf(scale)) return scale;
  int exponent = 0;
  const float fraction = std::frexp(scale, &exponent);  // in [0.5, 1): 0.5 is a power of two itself
  if (fraction == 0.5F) --exponent;
  return std::ldexp(1.0F, std::clamp(exponent, -126, 127));
}

std::byte CodeOf(float value, float scale, DType type, const expr::Fp8Format& fp8) {
  float quotient = value / scale;
  if (fp8.arithmetic == expr::Arithmetic::kRelax && type != DType::kF32) {
    std::byte narrow[4];
    kernels::StoreFromDouble(quotient, narrow, type);
    quotient = LoadSingle(narrow, type);
  }
  if (std::isnan(quotient)) return std::byte{0x7F};
  std::byte code;
  kernels::StoreFromDouble(std::clamp(quotient, -kLargest, kLargest), &code, DType::kF8E4M3);
  return code;
}

}  // namespace

Result<float> Evaluator::ScaleOfBlock(const dialects::HubTensor& input, const expr::Fp8Format& fp8, std::int64_t row, std::int64_t col) {
  if (scaled_ != input.expr) {
    scaled_ = input.expr;
    block_scales_.clear();
  }
  const auto known = block_scales_.find({row, col});
  if (known != block_scales_.end()) return known->second;
  Box block;
  block.offsets = {row * fp8.block.rows, col * fp8.block.cols};
  block.sizes = {std::min(fp8.block.rows, input.shape[0] - block.offsets[0]), std::min(fp8.block.cols, input.shape[1] - block.offsets[1])};
  float amax = 0;
  std::vector<std::byte> elements;
  for (Box part : RowMajorTiles(block.sizes, kTile)) {
    for (std::size_t axis = 0; axis < 2; ++axis) part.offsets[axis] += block.offsets[axis];
    CROSSDOCK_RETURN_IF_ERROR(Evaluate(input, part, elements));
    amax = LargestOf(elements, input.dtype, amax);
  }
  const float scale = ScaleOf(amax, fp8);
  block_scales_.emplace(std::pair(row, col), scale);
  return scale;
}

Status Evaluator::Quantized(const dialects::HubTensor& tensor, const Box& box, std::vector<std::byte>& out) {
  const expr::Fp8Format& fp8 = tensor.expr->fp8();
  const expr::Expr& in = tensor.expr->inputs[0];
  const dialects::HubTensor input{tensor.name, tensor.slot, in->dtype, in->shape, in};
  if (tensor.expr->op == expr::Op::kQuantizeScales) {
    std::byte* to = out.data();
    const bool whole = fp8.whole;
    for (std::int64_t row = whole ? 0 : box.offsets[0]; row < (whole ? 1 : box.offsets[0] + box.sizes[0]); ++row) {
      for (std::int64_t col = whole ? 0 : box.offsets[1]; col < (whole ? 1 : box.offsets[1] + box.sizes[1]); ++col) {
        CROSSDOCK_ASSIGN_OR_RETURN(const float scale, ScaleOfBlock(input, fp8, row, col));
        kernels::StoreFromDouble(scale, to, DType::kF32);
        to += sizeof(float);
      }
    }
    return OkStatus();
  }
  std::vector<std::byte> elements;
  CROSSDOCK_RETURN_IF_ERROR(Evaluate(input, box, elements));
  const std::int64_t size = ElementSize(in->dtype);
  for (std::int64_t r = 0; r < box.sizes[0]; ++r) {
    for (std::int64_t c = 0; c < box.sizes[1]; ++c) {
      const std::int64_t at = r * box.sizes[1] + c;
      CROSSDOCK_ASSIGN_OR_RETURN(const float scale, ScaleOfBlock(input, fp8, (box.offsets[0] + r) / fp8.block.rows, (box.offsets[1] + c) / fp8.block.cols));
      out[static_cast<std::size_t>(at)] = CodeOf(LoadSingle(elements.data() + at * size, in->dtype), scale, in->dtype, fp8);
    }
  }
  return OkStatus();
}

}  // namespace crossdock::verify
