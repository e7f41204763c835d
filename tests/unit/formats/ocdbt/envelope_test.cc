// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/envelope.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "result_matchers.h"

namespace crossdock::formats::ocdbt {
namespace {

using ::testing::HasSubstr;

/// The checksum made right again after a change.
std::string Summed(std::string record) {
  StoreLittle(record.data() + record.size() - 4, Crc32c(0, std::as_bytes(std::span(record.data(), record.size() - 4))));
  return record;
}

TEST(OcdbtEnvelope, GoesBothWaysCompressedOrNot) {
  for (const std::string& body : {std::string("x"), std::string(100'000, 'y'), std::string()}) {
    for (const Record record : {Record::kManifest, Record::kNode}) {
      const std::string bytes = Envelope(record, body);
      ASSERT_OK_AND_ASSIGN(const std::string back, OpenEnvelope(record, bytes));
      EXPECT_EQ(back, body);
    }
  }
  EXPECT_LT(Envelope(Record::kNode, std::string(100'000, 'y')).size(), 200U);
}

TEST(OcdbtEnvelope, EveryFlippedBitIsFound) {
  const std::string record = Envelope(Record::kNode, "some body that is short");
  for (std::size_t i = 0; i < 8 * record.size(); ++i) {
    std::string flipped = record;
    flipped[i / 8] ^= static_cast<char>(1U << (i % 8));
    EXPECT_THAT(OpenEnvelope(Record::kNode, flipped), IsError(ErrorCode::kCorrupt, HasSubstr("malformed"))) << i;
  }
}

TEST(OcdbtEnvelope, EveryCutIsFound) {
  const std::string record = Envelope(Record::kNode, std::string(1000, 'z'));
  for (std::size_t n = 0; n < record.size(); ++n) {
    EXPECT_THAT(OpenEnvelope(Record::kNode, record.substr(0, n)), IsError(ErrorCode::kCorrupt, HasSubstr("malformed"))) << n;
  }
}

TEST(OcdbtEnvelope, NamesWhatItDoesNotRead) {
  const std::string record = Envelope(Record::kNode, "abc");
  EXPECT_THAT(OpenEnvelope(Record::kManifest, record), IsError(ErrorCode::kCorrupt, HasSubstr("not begin as a manifest")));
  std::string version = record;
  version[12] = 1;
  EXPECT_THAT(OpenEnvelope(Record::kNode, Summed(version)), IsError(ErrorCode::kUnsupported, HasSubstr("found version 1")));
  std::string compression = record;
  compression[13] = 2;
  EXPECT_THAT(OpenEnvelope(Record::kNode, Summed(compression)), IsError(ErrorCode::kUnsupported, HasSubstr("compression 2")));
  compression[13] = 1;  // the body is no frame
  EXPECT_THAT(OpenEnvelope(Record::kNode, Summed(compression)), IsError(ErrorCode::kCorrupt, HasSubstr("zstd frame")));
}

}  // namespace
}  // namespace crossdock::formats::ocdbt
