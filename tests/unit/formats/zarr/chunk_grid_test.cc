// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/chunk_grid.h"

#include <map>
#include <numeric>

#include "result_matchers.h"

namespace crossdock::formats::zarr {
namespace {

using ::testing::HasSubstr;

/// A store of one-byte elements that holds every chunk of an array whose element at (i, j, ...) is its row-major number.
class Store {
 public:
  explicit Store(const ArrayMetadata& array) : array_(array) {}

  FindObject Find() {
    return [this](const std::string& key) -> Result<std::optional<Stored>> {
      if (key == without_) return std::optional<Stored>();
      const auto [at, fresh] = files_.emplace(key, static_cast<std::int32_t>(files_.size()));
      return std::optional<Stored>({at->second, {0, CheckedCount(array_.chunk_shape) + more_}});
    };
  }
  void Without(std::string key) { without_ = std::move(key); }
  void GrowBy(std::int64_t bytes) { more_ = bytes; }
  [[nodiscard]] std::size_t objects() const { return files_.size(); }

 private:
  ArrayMetadata array_;
  std::map<std::string, std::int32_t> files_;
  std::string without_;
  std::int64_t more_ = 0;
};

/// Every element of each piece must come from the place of its chunk file that holds it.
void ExpectPlaces(const ArrayMetadata& array, const std::vector<Chunk>& chunks) {
  std::vector<Box> boxes;
  const Dims strides = RowMajorStrides(array.chunk_shape);
  for (const Chunk& chunk : chunks) {
    boxes.push_back(chunk.box);
    EXPECT_EQ(chunk.bytes.length, chunk.box.count());
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < array.shape.size(); ++axis) at += chunk.box.offsets[axis] % array.chunk_shape[axis] * strides[axis];
    EXPECT_EQ(chunk.bytes.offset, at) << ToString(chunk.box);
    // Contiguous in the file: each axis outside the first that is longer than one lies whole.
    bool longer = false;
    for (std::size_t axis = 0; axis < array.shape.size(); ++axis) {
      if (longer) {
        EXPECT_EQ(chunk.box.sizes[axis], array.chunk_shape[axis]) << ToString(chunk.box);
      }
      longer = longer || chunk.box.sizes[axis] > 1;
    }
  }
  EXPECT_THAT(CheckCover(array.shape, boxes), IsOk());
}

struct GridCase {
  const char* name;
  Shape shape, chunk_shape;
  std::size_t objects, pieces;
};
void PrintTo(const GridCase& c, std::ostream* out) { *out << c.name; }
class ZarrGrid : public ::testing::TestWithParam<GridCase> {};

TEST_P(ZarrGrid, PiecesCoverTheArrayAndLieWhereTheyShould) {
  const GridCase& c = GetParam();
  const ArrayMetadata array{c.shape, c.chunk_shape, DType::kU8, '.'};
  Store store(array);
  ASSERT_OK_AND_ASSIGN(const std::vector<Chunk> chunks, PlaceChunks(array, store.Find()));
  EXPECT_EQ(store.objects(), c.objects);
  EXPECT_EQ(chunks.size(), c.pieces);
  ExpectPlaces(array, chunks);
}

INSTANTIATE_TEST_SUITE_P(All, ZarrGrid,
                         ::testing::Values(GridCase{"scalar", {}, {}, 1, 1}, GridCase{"whole", {4, 6}, {4, 6}, 1, 1},
                                           GridCase{"even", {4, 6}, {2, 3}, 4, 4}, GridCase{"ragged_rows", {5, 6}, {2, 6}, 3, 3},
                                           GridCase{"larger_than_the_array", {3, 6}, {8, 6}, 1, 1},
                                           GridCase{"ragged_columns", {4, 5}, {2, 3}, 4, 6}, GridCase{"ragged_both", {3, 5}, {2, 3}, 4, 5},
                                           GridCase{"ragged_middle", {2, 3, 4}, {2, 2, 4}, 2, 3}, GridCase{"ragged_all", {3, 3, 3}, {2, 2, 2}, 8, 14},
                                           GridCase{"empty", {0, 6}, {1, 6}, 0, 0}),
                         [](const auto& row) { return row.param.name; });

TEST(ZarrChunks, MissingOnesAreNamedAndNeverMadeUp) {
  const ArrayMetadata array{{4, 6}, {2, 3}, DType::kU8, '.'};
  Store store(array);
  store.Without("1.0");
  EXPECT_THAT(PlaceChunks(array, store.Find()), IsError(ErrorCode::kIncomplete, HasSubstr("`1.0`")));
}

TEST(ZarrChunks, OfAnotherSizeAreCorrupt) {
  const ArrayMetadata array{{4, 6}, {2, 3}, DType::kU8, '.'};
  for (const std::int64_t more : {-1, 1}) {
    Store store(array);
    store.GrowBy(more);
    EXPECT_THAT(PlaceChunks(array, store.Find()), IsError(ErrorCode::kCorrupt, HasSubstr("6 bytes in `0.0`")));
  }
}

TEST(ZarrChunks, AbsurdNumbersOfThemAreRefusedBeforeAnyWork) {
  const ArrayMetadata grid{{std::int64_t{1} << 40U}, {1}, DType::kU8, '.'};
  Store store(grid);
  EXPECT_THAT(PlaceChunks(grid, store.Find()), IsError(ErrorCode::kUnsupported, HasSubstr("too many pieces")));
  EXPECT_EQ(store.objects(), 0U);
  const ArrayMetadata sliver{{std::int64_t{1} << 40U, 1}, {std::int64_t{1} << 40U, 2}, DType::kU8, '.'};
  Store other(sliver);
  EXPECT_THAT(PlaceChunks(sliver, other.Find()), IsError(ErrorCode::kUnsupported, HasSubstr("too many pieces")));
}

}  // namespace
}  // namespace crossdock::formats::zarr
