// SPDX-License-Identifier: Apache-2.0
#include "verify/difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/cast.h"

namespace crossdock::verify {
namespace {

/// Elements with all exponent bits set; a plain loop that the compiler vectorises.
template <typename Word>
std::int64_t CountNonfinite(std::span<const std::byte> data, Word exponent) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i + sizeof(Word) <= data.size(); i += sizeof(Word)) {
    Word w;
    std::memcpy(&w, data.data() + i, sizeof w);
    n += static_cast<std::int64_t>((w & exponent) == exponent);
  }
  return n;
}

std::int64_t CountNonfinite(std::span<const std::byte> data, DType type) {
  switch (type) {
    case DType::kBF16: return CountNonfinite<std::uint16_t>(data, 0x7f80);
    case DType::kF16: return CountNonfinite<std::uint16_t>(data, 0x7c00);
    case DType::kF32: return CountNonfinite<std::uint32_t>(data, 0x7f800000U);
    case DType::kF64: return CountNonfinite<std::uint64_t>(data, 0x7ff0000000000000ULL);
    default: break;
  }
  return 0;  // 8-bit floats are compared as bytes; their NaNs are a matter of the quantizer
}

/// A float's bits on a line where neighbours differ by one, so that a distance counts units in the last place.
std::optional<std::int64_t> Ordinal(double v, DType type) {
  std::byte raw[8] = {};
  kernels::StoreFromDouble(v, raw, type);
  const std::int64_t width = ElementSize(type) * 8;
  std::uint64_t bits = 0;
  std::memcpy(&bits, raw, static_cast<std::size_t>(ElementSize(type)));
  const std::uint64_t sign = 1ULL << static_cast<unsigned>(width - 1);
  if (width == 64) return std::nullopt;
  const auto magnitude = static_cast<std::int64_t>(bits & (sign - 1));
  return (bits & sign) != 0 ? -magnitude : magnitude;
}

bool WithinOneUlp(double a, double b, DType narrower) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  const auto x = Ordinal(a, narrower);
  const auto y = Ordinal(b, narrower);
  if (!x || !y) return a == b || std::fabs(a - b) <= std::ldexp(std::max(std::fabs(a), std::fabs(b)), -52);
  return std::abs(*x - *y) <= 1;
}

double AsDouble(const std::byte* p, DType type) {
  if (IsFloating(type)) return kernels::LoadAsDouble(p, type);
  // Integers are compared by value; counters and tables stay far below 2^53.
  std::int64_t v = 0;
  std::memcpy(&v, p, static_cast<std::size_t>(ElementSize(type)));
  const bool is_signed = type == DType::kI64 || type == DType::kI32 || type == DType::kI16 || type == DType::kI8;
  const auto shift = static_cast<unsigned>(64 - ElementSize(type) * 8);
  if (is_signed && shift != 0) v = static_cast<std::int64_t>(static_cast<std::uint64_t>(v) << shift) >> shift;
  return static_cast<double>(v);
}

}  // namespace

void Accumulate(std::span<const std::byte> a, DType a_type, std::span<const std::byte> b, DType b_type,
                std::int64_t base, TensorDifference* into) {
  const std::int64_t a_size = ElementSize(a_type);
  const std::int64_t b_size = ElementSize(b_type);
  const std::int64_t count = static_cast<std::int64_t>(a.size()) / a_size;
  into->elements += count;
  into->nonfinite += std::max(CountNonfinite(a, a_type), CountNonfinite(b, b_type));
  if (a_type == b_type && std::memcmp(a.data(), b.data(), a.size()) == 0) return;

  const DType narrower = a_size <= b_size ? a_type : b_type;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* pa = a.data() + i * a_size;
    const std::byte* pb = b.data() + i * b_size;
    if (a_type == b_type && std::memcmp(pa, pb, static_cast<std::size_t>(a_size)) == 0) continue;
    const double x = AsDouble(pa, a_type);
    const double y = AsDouble(pb, b_type);
    if (a_type != b_type && x == y && std::signbit(x) == std::signbit(y)) continue;
    ++into->differing_bits;
    if (into->first_index < 0) into->first_index = base + i;
    const double d = std::fabs(x - y);
    if (std::isfinite(d)) {
      into->max_abs = std::max(into->max_abs, d);
      into->sum_abs += d;
    } else {
      ++into->incomparable;
    }
    // Two NaNs of different payload, or two equal infinities, differ in bits only.
    const bool same = (std::isnan(x) && std::isnan(y)) || x == y;
    into->not_exact += static_cast<std::int64_t>(!same && !(d <= 1e-6 + 1e-4 * std::fabs(y)));
    into->not_close += static_cast<std::int64_t>(!same && !(d <= 1e-4 + 1e-3 * std::fabs(y)));
    into->beyond_ulp += static_cast<std::int64_t>(!IsFloating(narrower) || !WithinOneUlp(x, y, narrower));
  }
}

}  // namespace crossdock::verify
