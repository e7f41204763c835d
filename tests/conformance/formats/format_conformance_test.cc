// SPDX-License-Identifier: Apache-2.0
// What every format that reads and writes must keep: the target catalog of a plan is what the reader returns after the commit, every
// byte of a tensor comes back, what LayOut says of files is true, and equal input gives equal bytes.
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "formats/orbax/orbax.h"
#include "formats/safetensors/safetensors.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/orbax/read_back.h"

namespace crossdock::formats {
namespace {

struct Form {
  const char* name;
  std::function<std::unique_ptr<CheckpointWriter>()> writer;
  std::function<Result<std::unique_ptr<CheckpointReader>>(io::Storage&, const std::string&)> open;
  const char* orbax = "";  ///< objects["orbax"]
  bool chunks = true;      ///< a tensor may be cut
  bool empty = false;      ///< tensors without elements have a place
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

std::string Pattern(const std::string& name, std::size_t bytes) {
  std::string out(bytes, '\0');
  std::size_t seed = 7;
  for (const char c : name) seed = seed * 131 + static_cast<unsigned char>(c);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>((seed + i * 31 + i / 251) % 251);
  return out;
}

/// Tensors of every common type and rank, some of them in pieces of rows.
Catalog Target(const Form& form) {
  struct Row {
    const char* name;
    DType dtype;
    Shape shape;
    std::int64_t rows;
  };
  const Row rows[] = {
      {"layers.0.w", DType::kBF16, {8, 6}, 4},  {"layers.10.w", DType::kBF16, {7, 6}, 3}, {"layers.1", DType::kF32, {5}, 2}, {"layers.1.x", DType::kF32, {1}, 1},
      {"zeros", DType::kF32, {300, 4}, 100},    {"scalar", DType::kI32, {}, 1},           {"flags", DType::kBool, {3, 2, 2}, 1}, {"fp8", DType::kF8E4M3, {16}, 16},
      {"wide", DType::kF64, {2, 3}, 1},         {"bytes", DType::kU8, {1000}, 1000},
  };
  Catalog target;
  ValueList tree;
  for (const Row& row : rows) {
    Entry entry{row.name, Slot::kParam, row.dtype, row.shape, {}};
    const std::int64_t all = row.shape.empty() ? 1 : row.shape[0];
    const std::int64_t step = form.chunks ? row.rows : all;
    for (std::int64_t at = 0; at < all; at += step) {
      Chunk chunk{Box::Whole(row.shape), -1, {}, ChunkEncoding::kRaw, 0};
      if (!row.shape.empty()) {
        chunk.box.offsets[0] = at;
        chunk.box.sizes[0] = std::min(step, all - at);
      }
      entry.chunks.push_back(chunk);
    }
    target.entries.push_back(std::move(entry));
    Value leaf = Value::MakeDict();
    leaf.Set("path", Value::MakeList({Value(row.name)}));
    leaf.Set("value_type", "np.ndarray");
    tree.push_back(std::move(leaf));
  }
  if (form.empty) target.entries.push_back({"nothing", Slot::kParam, DType::kF32, {0, 4}, {Chunk{Box::Whole({0, 4}), -1, {}, ChunkEncoding::kRaw, 0}}});
  target.SortEntries();
  target.objects["tree"] = Value::MakeList(std::move(tree));
  if (*form.orbax != '\0') target.objects["orbax"] = *ParseJson(form.orbax);
  return target;
}

std::string BytesOf(const Entry& entry) {
  const auto bytes = static_cast<std::size_t>(*ByteSize(entry.dtype, entry.shape));
  return entry.name == "zeros" ? std::string(bytes, '\0') : Pattern(entry.name, bytes);
}

/// Files, frames and chunks as the executor writes them: rows of a chunk are contiguous here.
Placement Write(const Form& form, io::MemoryStorage& storage, CheckpointWriter& writer) {
  auto laid = writer.LayOut(Target(form));
  EXPECT_THAT(laid, IsOk());
  Placement placement = *std::move(laid);
  std::map<std::int32_t, std::string> files;
  for (std::size_t f = 0; f < placement.catalog.files.size(); ++f) files[static_cast<std::int32_t>(f)].resize(static_cast<std::size_t>(placement.catalog.files[f].identity.size));
  for (const Frame& frame : placement.frames) files[frame.file].replace(static_cast<std::size_t>(frame.offset), frame.bytes.size(), frame.bytes);
  for (const Entry& entry : placement.catalog.entries) {
    const std::string bytes = BytesOf(entry);
    for (const Chunk& chunk : entry.chunks) {
      const std::int64_t row = chunk.box.rank() == 0 || entry.shape[0] == 0 ? 0 : static_cast<std::int64_t>(bytes.size()) / entry.shape[0];
      const std::int64_t from = chunk.box.rank() == 0 ? 0 : chunk.box.offsets[0] * row;
      EXPECT_LE(chunk.bytes.end(), placement.catalog.files[static_cast<std::size_t>(chunk.file)].identity.size);
      files[chunk.file].replace(static_cast<std::size_t>(chunk.bytes.offset), static_cast<std::size_t>(chunk.bytes.length), bytes, static_cast<std::size_t>(from),
                                static_cast<std::size_t>(chunk.bytes.length));
    }
  }
  for (const auto& [number, bytes] : files) {
    const std::string path = "/out/" + placement.catalog.files[static_cast<std::size_t>(number)].path;
    EXPECT_THAT(io::MakeDirs(storage, io::ParentPath(path)), IsOk());
    EXPECT_THAT(io::WriteSmallFile(storage, path, bytes), IsOk());
  }
  EXPECT_THAT(writer.WriteMetadata(placement.catalog, storage, "/out"), IsOk());
  return placement;
}

class FormatConformance : public ::testing::TestWithParam<Form> {
 protected:
  FormatConformance() { EXPECT_THAT(storage_.MakeDir("/out"), IsOk()); }
  io::MemoryStorage storage_;
};

TEST_P(FormatConformance, TheReaderReturnsWhatWasPlaced) {
  const auto writer = GetParam().writer();
  const Placement placement = Write(GetParam(), storage_, *writer);
  ASSERT_OK_AND_ASSIGN(const auto reader, GetParam().open(storage_, "/out"));
  const Catalog& read = reader->catalog();
  ASSERT_EQ(read.entries.size(), placement.catalog.entries.size());
  for (std::size_t e = 0; e < read.entries.size(); ++e) {
    const Entry& found = read.entries[e];
    const Entry& placed = placement.catalog.entries[e];
    EXPECT_EQ(found.name, placed.name);
    EXPECT_EQ(found.dtype, placed.dtype);
    EXPECT_EQ(found.shape, placed.shape);
    ASSERT_EQ(found.chunks.size(), placed.chunks.size()) << found.name;
    for (std::size_t c = 0; c < found.chunks.size(); ++c) {
      EXPECT_EQ(found.chunks[c].box, placed.chunks[c].box) << found.name;
      EXPECT_EQ(found.chunks[c].encoding, ChunkEncoding::kRaw) << found.name;
      EXPECT_EQ(found.chunks[c].bytes, placed.chunks[c].bytes) << found.name;
      EXPECT_EQ(read.files.at(static_cast<std::size_t>(found.chunks[c].file)).path, placement.catalog.files.at(static_cast<std::size_t>(placed.chunks[c].file)).path);
    }
  }
}

TEST_P(FormatConformance, EveryByteComesBack) {
  const auto writer = GetParam().writer();
  (void)Write(GetParam(), storage_, *writer);
  ASSERT_OK_AND_ASSIGN(const auto reader, GetParam().open(storage_, "/out"));
  for (std::size_t e = 0; e < reader->catalog().entries.size(); ++e) {
    const Entry& entry = reader->catalog().entries[e];
    ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadBack(storage_, *reader, static_cast<std::int32_t>(e)));
    EXPECT_TRUE(bytes == BytesOf(entry)) << entry.name;
  }
}

TEST_P(FormatConformance, ChunksDoNotOverlapInTheirFiles) {
  const auto writer = GetParam().writer();
  const Placement placement = Write(GetParam(), storage_, *writer);
  std::set<std::pair<std::int32_t, std::int64_t>> taken;
  for (const Entry& entry : placement.catalog.entries) {
    for (const Chunk& chunk : entry.chunks) {
      for (std::int64_t at = chunk.bytes.offset; at < chunk.bytes.end(); ++at) EXPECT_TRUE(taken.emplace(chunk.file, at).second) << entry.name;
    }
  }
}

TEST_P(FormatConformance, NoFileBesideThoseThatWereAnnounced) {
  const auto writer = GetParam().writer();
  const Placement placement = Write(GetParam(), storage_, *writer);
  std::set<std::string> announced;
  for (const FileRef& file : placement.catalog.files) announced.insert(file.path);
  for (const FileRef& file : writer->MetadataFiles()) announced.insert(file.path);
  std::set<std::string> found;
  for (const auto& [path, bytes] : storage_.Files("/out")) found.insert(path);
  EXPECT_EQ(found, announced);
}

TEST_P(FormatConformance, EqualInputGivesEqualBytes) {
  io::MemoryStorage other;
  ASSERT_THAT(other.MakeDir("/out"), IsOk());
  (void)Write(GetParam(), storage_, *GetParam().writer());
  (void)Write(GetParam(), other, *GetParam().writer());
  EXPECT_EQ(storage_.Files("/out"), other.Files("/out"));
}

const auto kOrbaxWriter = [] { return orbax::MakeOrbaxWriter(); };
const auto kSafetensorsWriter = [] { return safetensors::MakeSafetensorsWriter({}); };
INSTANTIATE_TEST_SUITE_P(
    All, FormatConformance,
    ::testing::Values(Form{"orbax", kOrbaxWriter, orbax::OpenOrbax}, Form{"orbax_zarr2", kOrbaxWriter, orbax::OpenOrbax, R"({"zarr3": false})"},
                      Form{"orbax_directories", kOrbaxWriter, orbax::OpenOrbax, R"({"ocdbt": false})"},
                      Form{"orbax_directories_zarr2", kOrbaxWriter, orbax::OpenOrbax, R"({"ocdbt": false, "zarr3": false})"},
                      Form{"orbax_flat", kOrbaxWriter, orbax::OpenOrbax, R"({"item": ""})"},
                      Form{"safetensors", kSafetensorsWriter, safetensors::OpenSafetensors, "", false, true}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace crossdock::formats
