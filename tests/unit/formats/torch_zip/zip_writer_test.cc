// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/zip_writer.h"

#include "formats/torch_zip/zip_directory.h"
#include "result_matchers.h"
#include "unit/formats/bytes_file.h"

namespace crossdock::formats::torch_zip {
namespace {

TEST(ZipWriter, EntriesAreReadBackAtMultiplesOf64) {
  ZipWriter zip("common");
  zip.Add("data.pkl", "hello");
  zip.Add("data/0", std::string(1000, 'x'));
  zip.Add("empty", "");
  const BytesFile file(zip.Finish());
  ASSERT_OK_AND_ASSIGN(const RangeReader range, RangeReader::Open(file, {0, file.size()}));
  ASSERT_OK_AND_ASSIGN(const ZipDirectory directory, ZipDirectory::Read(range));
  EXPECT_EQ(directory.prefix(), "common");
  EXPECT_EQ(directory.entries().size(), 3U);
  for (const auto& [name, entry] : directory.entries()) {
    ASSERT_OK_AND_ASSIGN(const ByteRange place, directory.Locate(range, name));
    EXPECT_EQ(place.offset % 64, 0) << name;
  }
  ASSERT_OK_AND_ASSIGN(const std::string text, directory.Load(range, "data.pkl", 100));
  EXPECT_EQ(text, "hello");
}

TEST(ZipWriter, ManyEntriesNeedTheZip64Count) {
  ZipWriter zip("archive");
  for (int i = 0; i < 70'000; ++i) zip.Add("data/" + std::to_string(i), "");
  const BytesFile file(zip.Finish());
  ASSERT_OK_AND_ASSIGN(const RangeReader range, RangeReader::Open(file, {0, file.size()}));
  ASSERT_OK_AND_ASSIGN(const ZipDirectory directory, ZipDirectory::Read(range));
  EXPECT_EQ(directory.entries().size(), 70'000U);
}

TEST(ZipWriter, AHoleMovesWhatFollows) {
  ZipWriter zip("archive");
  zip.AddHole("data/0", 100, 7);
  const std::string head = zip.TakeHead();
  zip.Add("version", "3\n");
  const BytesFile file(head, 100, zip.Finish());
  ASSERT_OK_AND_ASSIGN(const RangeReader range, RangeReader::Open(file, {0, file.size()}));
  ASSERT_OK_AND_ASSIGN(const ZipDirectory directory, ZipDirectory::Read(range));
  ASSERT_OK_AND_ASSIGN(const std::string version, directory.Load(range, "version", 10));
  EXPECT_EQ(version, "3\n");
}

}  // namespace
}  // namespace crossdock::formats::torch_zip
