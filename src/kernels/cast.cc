// SPDX-License-Identifier: Apache-2.0
#include "kernels/cast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/small_float.h"

namespace crossdock::kernels {
namespace {

/// Elements that pass through the F32 buffer at once: 4 KiB stay in the L1 cache.
constexpr std::int64_t kBlock = 1024;
using Buffer = std::array<float, kBlock>;

template <typename T>
T Get(const std::byte* p, std::int64_t i) {
  T v;
  std::memcpy(&v, p + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return v;
}
template <typename T>
void Put(std::byte* p, std::int64_t i, T v) {
  std::memcpy(p + i * static_cast<std::int64_t>(sizeof(T)), &v, sizeof(T));
}

// All branches below are selects on values that were computed anyway, so the compiler makes vector code of them.

std::uint16_t ToBf16(float f) {
  const auto b = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t rounded = (b + 0x7FFFU + ((b >> 16U) & 1U)) >> 16U;
  const std::uint32_t nan = (b >> 16U) | 0x40U;
  return static_cast<std::uint16_t>((b & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
}
float FromBf16(std::uint16_t h) { return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16U); }

std::uint16_t ToF16(float f) {
  const auto b = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t sign = (b >> 16U) & 0x8000U;
  const std::uint32_t a = b & 0x7FFFFFFFU;
  // Normal results: round at bit 13, then move the exponent's bias; a carry out of the largest gives infinity.
  const std::uint32_t normal = ((a + 0xFFFU + ((a >> 13U) & 1U)) - 0x38000000U) >> 13U;
  // Below 2^-14 the unit is 2^-24, which is the last place of numbers in [0.5, 1): the addition rounds for us.
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + 0.5F) - 0x3F000000U;
  const std::uint32_t nan = 0x7E00U | ((a >> 13U) & 0x3FFU);
  std::uint32_t h = a < 0x38800000U ? denormal : normal;
  h = a >= 0x47800000U ? 0x7C00U : h;  // 65536 and above, infinity included
  h = a > 0x7F800000U ? nan : h;
  return static_cast<std::uint16_t>(sign | h);
}
float FromF16(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16U;
  const std::uint32_t a = h & 0x7FFFU;
  const std::uint32_t normal = (a << 13U) + 0x38000000U;
  const auto denormal = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(a)) * 0x1p-24F);
  const std::uint32_t special = (a << 13U) | 0x7F800000U | (a > 0x7C00U ? 0x400000U : 0U);
  std::uint32_t w = a < 0x400U ? denormal : normal;
  w = a >= 0x7C00U ? special : w;
  return std::bit_cast<float>(sign | w);
}

void ToFloats(const std::byte* from, DType type, float* out, std::int64_t n) {
  switch (type) {
    case DType::kF32:
      std::memcpy(out, from, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::kF64:
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(Get<double>(from, i));
      return;
    case DType::kBF16:
      for (std::int64_t i = 0; i < n; ++i) out[i] = FromBf16(Get<std::uint16_t>(from, i));
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < n; ++i) out[i] = FromF16(Get<std::uint16_t>(from, i));
      return;
    default:
      for (std::int64_t i = 0; i < n; ++i) out[i] = DecodeSmallFloat(Get<std::uint8_t>(from, i), type);
  }
}

void FromFloats(const float* in, std::byte* to, DType type, std::int64_t n) {
  switch (type) {
    case DType::kF32:
      std::memcpy(to, in, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::kF64:
      for (std::int64_t i = 0; i < n; ++i) Put(to, i, static_cast<double>(in[i]));
      return;
    case DType::kBF16:
      for (std::int64_t i = 0; i < n; ++i) Put(to, i, ToBf16(in[i]));
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < n; ++i) Put(to, i, ToF16(in[i]));
      return;
    default:
      for (std::int64_t i = 0; i < n; ++i) Put(to, i, EncodeSmallFloat(in[i], type));
  }
}

/// Some element has all bits of its exponent set. A reduction without a branch: the compiler makes vector code of it.
template <typename T>
bool AnyExponentFull(const std::byte* p, T mask, std::int64_t count) {
  T any = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const T bits = Get<T>(p, i) & mask;
    any = static_cast<T>(any | static_cast<T>(bits == mask ? 1 : 0));
  }
  return any != 0;
}

bool MayHoldNonfinite(const std::byte* p, DType type, std::int64_t count) {
  switch (type) {
    case DType::kF64: return AnyExponentFull<std::uint64_t>(p, 0x7FF0000000000000U, count);
    case DType::kF32: return AnyExponentFull<std::uint32_t>(p, 0x7F800000U, count);
    case DType::kBF16: return AnyExponentFull<std::uint16_t>(p, 0x7F80U, count);
    case DType::kF16: return AnyExponentFull<std::uint16_t>(p, 0x7C00U, count);
    default: return true;
  }
}

bool Convertible(DType type) {
  return type == DType::kF64 || type == DType::kF32 || type == DType::kBF16 || type == DType::kF16 ||
         IsSmallFloat(type);
}

}  // namespace

bool CanCast(DType from, DType to) { return Convertible(from) && Convertible(to); }

void Cast(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count) {
  const std::int64_t from_size = ElementSize(from_type);
  const std::int64_t to_size = ElementSize(to_type);
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count * from_size));
    return;
  }
  Buffer buffer;
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t n = std::min(kBlock, count - at);
    ToFloats(from + at * from_size, from_type, buffer.data(), n);
    FromFloats(buffer.data(), to + at * to_size, to_type, n);
  }
}

std::int64_t CountOverflows(const std::byte* from, DType from_type, const std::byte* to, DType to_type, std::int64_t count) {
  if (!MayHoldNonfinite(to, to_type, count)) return 0;
  const std::int64_t from_size = ElementSize(from_type);
  const std::int64_t to_size = ElementSize(to_type);
  std::int64_t overflows = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isfinite(LoadAsDouble(to + i * to_size, to_type))) continue;
    if (std::isfinite(LoadAsDouble(from + i * from_size, from_type))) ++overflows;
  }
  return overflows;
}

double LoadAsDouble(const std::byte* p, DType type) {
  if (type == DType::kF64) return Get<double>(p, 0);
  float f = 0;
  ToFloats(p, type, &f, 1);
  return static_cast<double>(f);
}

void StoreFromDouble(double v, std::byte* p, DType type) {
  if (type == DType::kF64) {
    Put(p, 0, v);
    return;
  }
  const auto f = static_cast<float>(v);
  FromFloats(&f, p, type, 1);
}

}  // namespace crossdock::kernels
