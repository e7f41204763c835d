// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/blob.h"

#include "base/hash.h"
#include "result_matchers.h"
#include "unit/formats/bytes_file.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats::torch_zip {
namespace {

using ::testing::HasSubstr;

TEST(Blob, HasTheDocumentedPlaces) {  // FORMAT.md, 2: bf16 [2, 3]
  ASSERT_OK_AND_ASSIGN(const BlobLayout layout, LayOutBlob(DType::kBF16, {2, 3}));
  EXPECT_EQ(layout.header_size, 320);
  EXPECT_EQ(layout.data_size, 12);
  EXPECT_EQ(layout.total(), 654);
}

struct Case {
  std::string name;
  DType dtype;
  Shape shape;
};
class Blobs : public ::testing::TestWithParam<Case> {};

TEST_P(Blobs, AreLocatedAgainWithTwoReads) {
  const Case& c = GetParam();
  ASSERT_OK_AND_ASSIGN(const BlobLayout layout, LayOutBlob(c.dtype, c.shape));
  const BlobFrames frames = MakeBlobFrames(layout, 0x12345678);
  ASSERT_EQ(static_cast<std::int64_t>(frames.header.size()), layout.header_size);
  ASSERT_EQ(static_cast<std::int64_t>(frames.trailer.size()), layout.trailer_size);
  EXPECT_EQ(layout.header_size % 64, 0);
  const BytesFile file("before" + frames.header, layout.data_size, frames.trailer + "after");
  ASSERT_OK_AND_ASSIGN(const ByteRange data, LocateBlobData(file, {6, layout.total()}, c.dtype, c.shape));
  if (layout.data_size > 0) {
    EXPECT_EQ(data, (ByteRange{6 + layout.header_size, layout.data_size}));
  }
  EXPECT_LE(file.reads, 2);
  EXPECT_THAT(LocateBlobData(file, {6, layout.total()}, DType::kI64, c.shape), IsError(ErrorCode::kCorrupt, HasSubstr("I64")));
}

INSTANTIATE_TEST_SUITE_P(Table, Blobs,
                         ::testing::Values(Case{"matrix", DType::kBF16, {2, 3}}, Case{"scalar", DType::kF32, {}},
                                           Case{"empty", DType::kF32, {0, 4}}, Case{"fp8", DType::kF8E4M3, {128, 128}},
                                           Case{"large", DType::kF32, {1000, 1000}}, Case{"just_below_4GiB", DType::kU8, {0xFFFFFFFE}},
                                           Case{"marker", DType::kU8, {0xFFFFFFFF}}, Case{"above_4GiB", DType::kBF16, {5, 1 << 30}}),
                         [](const auto& row) { return row.param.name; });

TEST(Blob, FindsTheDataOfTorchsOwn) {
  const std::string bytes = ReadGolden("torch_zip/bare.pt");
  const BytesFile file(bytes);
  ASSERT_OK_AND_ASSIGN(const ByteRange data, LocateBlobData(file, {0, file.size()}, DType::kBF16, {4, 3}));
  EXPECT_EQ(data.length, 24);
  EXPECT_EQ(data.offset % 64, 0);
  EXPECT_THAT(LocateBlobData(file, {0, file.size()}, DType::kBF16, {3, 4}),
              IsError(ErrorCode::kCorrupt, HasSubstr("BF16 [4, 3]")));
  const BytesFile object(ReadGolden("torch_zip/bare_empty.pt"));
  EXPECT_THAT(LocateBlobData(object, {0, object.size()}, DType::kU8, {0}), IsError(ErrorCode::kCorrupt, HasSubstr("no tensor")));
  EXPECT_THAT(LocateBlobData(file, {0, file.size() + 1}, DType::kBF16, {4, 3}),
              IsError(ErrorCode::kCorrupt, HasSubstr("ends before")));
}

TEST(Blob, RefusesTypesThatTorchLacks) {
  EXPECT_THAT(LayOutBlob(DType::kF6E2M3, {4}), IsError(ErrorCode::kUnsupported, HasSubstr("F6_E2M3")));
}

}  // namespace
}  // namespace crossdock::formats::torch_zip
