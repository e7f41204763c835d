// SPDX-License-Identifier: Apache-2.0
#include "kernels/small_float.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace crossdock::kernels {
namespace {

struct Layout {
  int mantissa_bits;
  int bias;
  bool has_infinity;  ///< the top exponent is infinity and NaN
  bool fnuz;          ///< 0x80 is NaN, no negative zero
};

Layout LayoutOf(DType type) {
  switch (type) {
    case DType::kF8E4M3:
      return {3, 7, false, false};
    case DType::kF8E5M2:
      return {2, 15, true, false};
    case DType::kF8E4M3FNUZ:
      return {3, 8, false, true};
    case DType::kF8E5M2FNUZ:
      return {2, 16, false, true};
    default:
      CROSSDOCK_CHECK(false);
  }
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The largest finite magnitude as bits, and the bits of NaN.
std::uint8_t LargestOf(const Layout& l) {
  if (l.fnuz) return 0x7F;
  return l.has_infinity ? 0x7B : 0x7E;
}
std::uint8_t NanOf(const Layout& l) { return l.fnuz ? 0x80 : 0x7F; }

float DecodeE8M0(std::uint8_t bits) { return bits == 0xFF ? kNan : std::ldexp(1.0F, static_cast<int>(bits) - 127); }

std::uint8_t EncodeE8M0(float value) {
  if (!(value > 0) || std::isinf(value)) return value == 0 ? 0 : 0xFF;
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  exponent -= 1;
  // Between 2^e and 2^(e+1) the middle is 1.5 * 2^e; a tie goes to the even exponent code.
  const bool odd = ((exponent + 127) & 1) != 0;
  if (fraction > 0.75F || (fraction == 0.75F && odd)) exponent += 1;
  const int code = exponent + 127;
  return code > 254 ? std::uint8_t{0xFF} : static_cast<std::uint8_t>(std::max(code, 0));
}

}  // namespace

bool IsSmallFloat(DType type) {
  return type == DType::kF8E4M3 || type == DType::kF8E5M2 || type == DType::kF8E4M3FNUZ || type == DType::kF8E5M2FNUZ ||
         type == DType::kF8E8M0;
}

float DecodeSmallFloat(std::uint8_t bits, DType type) {
  if (type == DType::kF8E8M0) return DecodeE8M0(bits);
  const Layout l = LayoutOf(type);
  if (l.fnuz && bits == 0x80) return kNan;
  const float sign = (bits & 0x80U) != 0 ? -1.0F : 1.0F;
  const auto magnitude = static_cast<std::uint8_t>(bits & 0x7FU);
  if (l.has_infinity && magnitude == 0x7C) return sign * std::numeric_limits<float>::infinity();
  if (magnitude > LargestOf(l)) return std::copysign(kNan, sign);
  const int exponent = magnitude >> l.mantissa_bits;
  const int mantissa = magnitude & ((1 << l.mantissa_bits) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << l.mantissa_bits);
  const int scale = std::max(exponent, 1) - l.bias - l.mantissa_bits;
  return sign * std::ldexp(static_cast<float>(whole), scale);
}

std::uint8_t EncodeSmallFloat(float value, DType type) {
  if (type == DType::kF8E8M0) return EncodeE8M0(value);
  const Layout l = LayoutOf(type);
  const unsigned sign = std::signbit(value) ? 0x80U : 0U;
  if (std::isnan(value)) return l.fnuz ? NanOf(l) : static_cast<std::uint8_t>(sign | NanOf(l));
  const double magnitude = std::fabs(static_cast<double>(value));
  const int lowest = 1 - l.bias;  // exponent of the smallest normal number
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(std::min(magnitude, 1e30)), lowest);
  // In units of the last place; nearbyint rounds ties to even in the default mode, which nobody changes.
  const double units = std::nearbyint(std::ldexp(std::min(magnitude, 1e30), l.mantissa_bits - exponent));
  // Adding to the exponent field carries a mantissa that rounded up into the next binade.
  const double code = units + static_cast<double>(exponent - lowest) * static_cast<double>(1 << l.mantissa_bits);
  if (code > LargestOf(l)) {
    const unsigned over = l.has_infinity ? sign | 0x7CU : (l.fnuz ? 0x80U : sign | LargestOf(l));
    return static_cast<std::uint8_t>(over);
  }
  const auto bits = static_cast<unsigned>(code);
  if (l.fnuz && bits == 0) return 0;
  return static_cast<std::uint8_t>(sign | bits);
}

}  // namespace crossdock::kernels
