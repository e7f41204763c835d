// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <string_view>

#include <gtest/gtest.h>

namespace crossdock {
namespace {

std::uint32_t Of(std::string_view text, std::uint32_t from = 0) { return Crc32c(from, std::as_bytes(std::span(text.data(), text.size()))); }

TEST(Crc32c, IsTheCastagnoliChecksum) {
  EXPECT_EQ(Of("123456789"), 0xE3069283U);  // the check value of the catalogue of CRCs
  EXPECT_EQ(Of(std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32)), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(Of(""), 0U);
}

TEST(Crc32c, ContinuesFromWhatCameBefore) { EXPECT_EQ(Of("6789", Of("12345")), Of("123456789")); }

}  // namespace
}  // namespace crossdock
