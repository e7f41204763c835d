// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/decoders.h"

#include <vector>

#include "result_matchers.h"
#include "unit/formats/zarr/encode.h"

namespace crossdock::formats::zarr {
namespace {

using ::testing::HasSubstr;

/// Compressible, but not the same everywhere.
std::string Text(std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; out.size() < bytes; ++i) out += static_cast<char>((i * i / 97) % 251);
  return out;
}

Result<std::string> Decoded(const Codecs& codecs, const std::string& stored, std::size_t piece = 1000) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto stream, Decode(codecs, StoredBytes(stored)));
  std::string out;
  std::vector<std::byte> buffer(piece);
  while (true) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::size_t n, stream->Read(buffer));
    if (n == 0) return out;
    out.append(reinterpret_cast<const char*>(buffer.data()), n);
  }
}

struct CodecCase {
  const char* name;
  Codecs codecs;
  std::string content, stored;
};
void PrintTo(const CodecCase& c, std::ostream* out) { *out << c.name; }
class ZarrCodecs : public ::testing::TestWithParam<CodecCase> {};

TEST_P(ZarrCodecs, GiveTheBytesBackInPiecesOfAnySize) {
  const CodecCase& c = GetParam();
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{100'000}, std::size_t{10'000'000}}) {
    if (c.content.size() / piece > 1'000'000) continue;
    ASSERT_OK_AND_ASSIGN(const std::string out, Decoded(c.codecs, c.stored, piece));
    EXPECT_EQ(out.size(), c.content.size());
    EXPECT_TRUE(out == c.content);
  }
}

TEST_P(ZarrCodecs, RefuseWhatIsCutAnywhere) {
  const CodecCase& c = GetParam();
  const std::size_t step = std::max<std::size_t>(c.stored.size() / 200, 1);
  for (std::size_t n = 0; n < c.stored.size(); n += step) {
    const auto out = Decoded(c.codecs, c.stored.substr(0, n));
    if (c.codecs.empty()) {
      EXPECT_THAT(out, IsOk());
      continue;
    }
    ASSERT_THAT(out, IsError(ErrorCode::kCorrupt, HasSubstr(""))) << n;
  }
}

std::vector<CodecCase> Cases() {
  std::vector<CodecCase> cases;
  const std::string small = Text(13);
  const std::string large = Text(3'000'001);
  const auto add = [&](const char* name, Codecs codecs, const std::string& content, std::string stored) {
    cases.push_back({name, std::move(codecs), content, std::move(stored)});
  };
  add("plain", {}, large, large);
  add("zstd", {Codec::kZstd}, large, Zstd(large));
  add("zstd_small", {Codec::kZstd}, small, Zstd(small));
  add("zstd_zeros", {Codec::kZstd}, std::string(5'000'000, '\0'), Zstd(std::string(5'000'000, '\0')));
  add("gzip", {Codec::kGzip}, large, Gzip(large));
  add("zlib", {Codec::kGzip}, large, Gzip(large, 15));
  add("crc32c", {Codec::kCrc32c}, large, WithCrc32c(large));
  add("zstd_crc32c", {Codec::kZstd, Codec::kCrc32c}, large, WithCrc32c(Zstd(large)));
  add("crc32c_gzip", {Codec::kCrc32c, Codec::kGzip}, small, Gzip(WithCrc32c(small)));
  add("blosc_lz4", {Codec::kBlosc}, large, Blosc(large, "lz4", BLOSC_SHUFFLE, 4, 0));
  add("blosc_zstd_bitshuffle", {Codec::kBlosc}, large, Blosc(large, "zstd", BLOSC_BITSHUFFLE, 2, 0));
  add("blosc_blosclz_blocks", {Codec::kBlosc}, large, Blosc(large, "blosclz", BLOSC_SHUFFLE, 8, 65536));
  add("blosc_zlib_no_shuffle", {Codec::kBlosc}, large, Blosc(large, "zlib", BLOSC_NOSHUFFLE, 1, 40000));
  add("blosc_threads", {Codec::kBlosc}, large, Blosc(large, "lz4", BLOSC_SHUFFLE, 4, 16384, 5, 4));
  add("blosc_whole_blocks", {Codec::kBlosc}, large.substr(0, 1 << 20), Blosc(large.substr(0, 1 << 20), "lz4hc", BLOSC_SHUFFLE, 4, 1 << 16));
  add("blosc_small", {Codec::kBlosc}, small, Blosc(small, "lz4", BLOSC_SHUFFLE, 4, 0));
  add("blosc_copied", {Codec::kBlosc}, large, Blosc(large, "lz4", BLOSC_SHUFFLE, 4, 0, 0));
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, ZarrCodecs, ::testing::ValuesIn(Cases()), [](const auto& row) { return row.param.name; });

TEST(ZarrDecoders, TakeFramesAndMembersOneAfterTheOther) {
  ASSERT_OK_AND_ASSIGN(const std::string frames, Decoded({Codec::kZstd}, Zstd("ab") + Zstd("cde")));
  EXPECT_EQ(frames, "abcde");
  ASSERT_OK_AND_ASSIGN(const std::string members, Decoded({Codec::kGzip}, Gzip("ab") + Gzip("cde")));
  EXPECT_EQ(members, "abcde");
}

TEST(ZarrDecoders, FlippedBitsUnderAChecksumAreFound) {
  std::string stored = WithCrc32c(Text(100));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    stored[i] ^= 4;
    EXPECT_THAT(Decoded({Codec::kCrc32c}, stored), IsError(ErrorCode::kCorrupt, HasSubstr("CRC-32C"))) << i;
    stored[i] ^= 4;
  }
}

TEST(ZarrDecoders, AWindowBeyondTheBoundIsRefused) {
  // A frame header that asks for 2^31 bytes: magic, descriptor without single segment, window descriptor.
  const std::string frame("\x28\xB5\x2F\xFD\x00\xA8\x01\x00\x00", 9);
  EXPECT_THAT(Decoded({Codec::kZstd}, frame), IsError(ErrorCode::kCorrupt, HasSubstr("too much memory")));
}

/// Whatever is done to a header, nothing is read or written out of place and no large memory is asked for.
TEST(ZarrDecoders, DamagedBloscHeadersAreErrorsOrOtherBytes) {
  const std::string content = Text(50'000);
  const std::string stored = Blosc(content, "lz4", BLOSC_SHUFFLE, 4, 4096);
  int refused = 0;
  for (std::size_t i = 0; i < 16 + 4 * 13; ++i) {
    for (const int value : {0, 1, 0x7F, 0x80, 0xFF}) {
      std::string damaged = stored;
      damaged[i] = static_cast<char>(value);
      const auto out = Decoded({Codec::kBlosc}, damaged, 100'000);
      if (!out) ++refused;
      if (damaged == stored) {
        ASSERT_THAT(out, IsOk());
        EXPECT_EQ(*out, content);
      }
    }
  }
  EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace crossdock::formats::zarr
