// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <random>

#include "result_matchers.h"

namespace crossdock {
namespace {

std::span<const std::byte> Bytes(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

TEST(Crc32, GivesTheStandardCheckValue) { EXPECT_EQ(Crc32(0, Bytes("123456789")), 0xcbf43926U); }

TEST(Hashes, JoinAtEveryEdge) {
  std::mt19937 rng(7);
  std::string text(1000, '\0');
  for (char& c : text) c = static_cast<char>(rng());
  const std::string_view all(text);
  for (std::size_t cut = 0; cut <= all.size(); cut += 37) {
    const auto a = Bytes(all.substr(0, cut));
    const auto b = Bytes(all.substr(cut));
    const auto n = static_cast<std::int64_t>(b.size());
    EXPECT_EQ(Crc32Combine(Crc32(0, a), Crc32(0, b), n), Crc32(0, Bytes(all)));
    EXPECT_EQ(DigestJoin(DigestOf(a), DigestOf(b)), DigestOf(Bytes(all))) << cut;
  }
}

TEST(Digest, TellsOneBitApart) {
  std::string text(64, 'x');
  const Digest d = DigestOf(Bytes(text));
  text[63] = 'y';
  const Digest e = DigestOf(Bytes(text));
  EXPECT_NE(d.low, e.low);
  EXPECT_NE(d.high, e.high);
  EXPECT_EQ(d.ToHex().size(), 32U);
}

}  // namespace
}  // namespace crossdock
