// SPDX-License-Identifier: Apache-2.0
#include "tensor/dims.h"

#include <algorithm>

#include "base/checked_math.h"

namespace crossdock {

Result<std::int64_t> ElementCount(const Shape& shape) {
  // A zero axis makes the product zero however large the others are, so it is looked for first.
  bool zero = false;
  for (std::int64_t n : shape) {
    if (n < 0) {
      return MakeError(ErrorCode::kCorrupt, "a tensor has a negative size")
          .WithFound("shape " + ToString(shape));
    }
    zero = zero || n == 0;
  }
  if (zero) return std::int64_t{0};
  std::int64_t count = 1;
  for (std::int64_t n : shape) {
    const auto product = CheckedMul(count, n);
    if (!product) {
      return MakeError(ErrorCode::kCorrupt, "the number of elements of a tensor overflows")
          .WithFound("shape " + ToString(shape));
    }
    count = *product;
  }
  return count;
}

std::int64_t CheckedCount(const Shape& shape) {
  const auto count = ElementCount(shape);
  CROSSDOCK_CHECK(count.has_value());
  return *count;
}

Dims RowMajorStrides(const Shape& shape) {
  Dims strides = Dims::Filled(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::string ToString(const Dims& dims) {
  std::string out = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) out += ", ";
    out += std::to_string(dims[i]);
  }
  return out + "]";
}

}  // namespace crossdock
