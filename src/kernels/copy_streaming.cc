// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy_streaming.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace crossdock::kernels {

#if defined(__SSE2__)
namespace {

constexpr std::size_t kStreamLine = 64;
constexpr std::size_t kStreamPage = 4096;
constexpr std::size_t kStreamPages = 4;  ///< at once: so many rows of memory are open, and each is prefetched by the processor

void StreamLine(const std::byte* from, std::byte* to) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}

}  // namespace

void CopyStreaming(const std::byte* from, std::byte* to, std::size_t size) {
  constexpr std::size_t kStep = kStreamPages * kStreamPage;
  // Whole lines alone may be streamed.
  const std::size_t head = std::min(size, (kStreamLine - reinterpret_cast<std::uintptr_t>(to) % kStreamLine) % kStreamLine);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; size - at >= kStep; at += kStep) {
    for (std::size_t line = 0; line < kStreamPage; line += kStreamLine) {
      for (std::size_t page = 0; page < kStep; page += kStreamPage) StreamLine(from + at + page + line, to + at + page + line);
    }
  }
  _mm_sfence();  // another thread reads it
  std::memcpy(to + at, from + at, size - at);
}

#else

void CopyStreaming(const std::byte* from, std::byte* to, std::size_t size) { std::memcpy(to, from, size); }

#endif

}  // namespace crossdock::kernels
