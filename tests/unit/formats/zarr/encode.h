// SPDX-License-Identifier: Apache-2.0
/// \file  The encoders of the codecs that the tests decode, by the libraries themselves.
#pragma once

#include <blosc.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <string>

#include "base/crc32c.h"
#include "base/endian.h"

namespace crossdock::formats::zarr {

inline std::string Zstd(const std::string& bytes, int level = 3) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t n = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), level);
  if (ZSTD_isError(n) != 0U) std::abort();
  out.resize(n);
  return out;
}

/// `window` 15 + 16 is gzip, 15 zlib.
inline std::string Gzip(const std::string& bytes, int window = 31) {
  z_stream state{};
  if (deflateInit2(&state, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::string out(deflateBound(&state, bytes.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  state.avail_in = static_cast<uInt>(bytes.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  if (deflate(&state, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

inline std::string Blosc(const std::string& bytes, const char* codec, int shuffle, std::size_t typesize, std::size_t block, int level = 5, int threads = 1) {
  std::string out(bytes.size() + BLOSC_MAX_OVERHEAD, '\0');
  const int n = blosc_compress_ctx(level, shuffle, typesize, bytes.size(), bytes.data(), out.data(), out.size(), codec, block, threads);
  if (n <= 0) std::abort();
  out.resize(static_cast<std::size_t>(n));
  return out;
}

inline std::string WithCrc32c(const std::string& bytes) {
  char sum[4];
  StoreLittle(sum, Crc32c(0, std::as_bytes(std::span(bytes.data(), bytes.size()))));
  return bytes + std::string(sum, 4);
}

/// Rows of (offset, length) as the index of a shard holds them.
inline std::string IndexOf(std::initializer_list<std::uint64_t> numbers) {
  std::string out;
  for (const std::uint64_t n : numbers) {
    char row[8];
    StoreLittle(row, n);
    out.append(row, 8);
  }
  return out;
}

}  // namespace crossdock::formats::zarr
