// SPDX-License-Identifier: Apache-2.0
/// \file  The codecs of zarr chunks that we decode: what stands between the elements and the stored bytes.
/// On disk (FORMAT.md, 4): a v2 array names at most one (`compressor`), a v3 array a list. What a decoder needs to know lies
/// in the encoded bytes themselves, so that a codec is no more than its name here.
#pragma once

#include <cstdint>
#include <vector>

namespace crossdock::formats::zarr {

enum class Codec : std::uint8_t {
  kZstd,    ///< frames of Zstandard
  kGzip,    ///< gzip (v3 and v2) or zlib (v2) streams
  kBlosc,   ///< one Blosc 1 buffer; stands alone
  kCrc32c,  ///< the bytes, then their CRC-32C, little-endian
};

/// In the order in which they were applied when the chunk was written.
using Codecs = std::vector<Codec>;

}  // namespace crossdock::formats::zarr
