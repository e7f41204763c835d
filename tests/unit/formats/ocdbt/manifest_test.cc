// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/manifest.h"

#include "formats/ocdbt/envelope.h"
#include "result_matchers.h"

namespace crossdock::formats::ocdbt {
namespace {

using ::testing::HasSubstr;

Manifest Sound() {
  Manifest manifest;
  manifest.uuid[3] = 'u';
  manifest.newest = Root{5, 2, {"", "d/nodes"}, 100, 50, {7, 800, 9000}, 1234};
  return manifest;
}

TEST(OcdbtManifest, GoesBothWays) {
  ASSERT_OK_AND_ASSIGN(const Manifest back, ReadManifest(WriteManifest(Sound())));
  EXPECT_EQ(back.uuid, Sound().uuid);
  EXPECT_EQ(back.largest_inline, 1024U);
  EXPECT_FALSE(back.numbered);
  ASSERT_TRUE(back.newest.has_value());
  EXPECT_EQ(back.newest->generation, 5U);
  EXPECT_EQ(back.newest->height, 2);
  EXPECT_EQ(back.newest->file.path(), "d/nodes");
  EXPECT_EQ(back.newest->offset, 100);
  EXPECT_EQ(back.newest->length, 50);
  EXPECT_EQ(back.newest->statistics.keys, 7U);
  EXPECT_EQ(back.newest->commit_time_ns, 1234U);
}

TEST(OcdbtManifest, AnEmptyTreeHasNoPlace) {
  Manifest manifest = Sound();
  manifest.newest = Root{};
  ASSERT_OK_AND_ASSIGN(const Manifest back, ReadManifest(WriteManifest(manifest)));
  EXPECT_TRUE(back.newest->empty());
}

TEST(OcdbtManifest, EveryCutAndAddedByteIsRefused) {
  ASSERT_OK_AND_ASSIGN(const std::string body, OpenEnvelope(Record::kManifest, WriteManifest(Sound())));
  for (std::size_t n = 0; n < body.size(); ++n) {
    EXPECT_THAT(ReadManifest(Envelope(Record::kManifest, body.substr(0, n))), IsError(ErrorCode::kCorrupt, HasSubstr(""))) << n;
  }
  EXPECT_THAT(ReadManifest(Envelope(Record::kManifest, body + '\0')), IsError(ErrorCode::kCorrupt, HasSubstr("follow its end")));
}

TEST(OcdbtManifest, OtherKindsAreRefusedAndNumberedOnesHaveNoGeneration) {
  ASSERT_OK_AND_ASSIGN(std::string body, OpenEnvelope(Record::kManifest, WriteManifest(Sound())));
  body[16] = 2;
  EXPECT_THAT(ReadManifest(Envelope(Record::kManifest, body)), IsError(ErrorCode::kUnsupported, HasSubstr("0 (single) or 1 (numbered)")));
  body[16] = 1;
  EXPECT_THAT(ReadManifest(Envelope(Record::kManifest, body)), IsError(ErrorCode::kCorrupt, HasSubstr("follow its end")));
  // uuid, kind, 1024, 100,000,000, arity, zstd and its level: what is left is the configuration alone.
  ASSERT_OK_AND_ASSIGN(const Manifest numbered, ReadManifest(Envelope(Record::kManifest, body.substr(0, 16 + 1 + 2 + 4 + 1 + 1 + 4))));
  EXPECT_TRUE(numbered.numbered);
  EXPECT_FALSE(numbered.newest.has_value());
}

}  // namespace
}  // namespace crossdock::formats::ocdbt
