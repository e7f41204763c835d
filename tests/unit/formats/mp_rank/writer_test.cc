// SPDX-License-Identifier: Apache-2.0
#include "base/endian.h"
#include "base/hash.h"
#include "formats/mp_rank/mp_rank.h"
#include "formats/torch_zip/torch_file.h"
#include "formats/torch_zip/zip_directory.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/dcp/stored_tensor.h"

namespace crossdock::formats::mp_rank {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Bytes that depend on place and seed, so that a misplaced tensor shows.
std::string Pattern(std::int64_t size, unsigned seed) {
  std::string out(static_cast<std::size_t>(size), '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>((i * 31 + seed * 7 + (i >> 8U)) & 0xFFU);
  return out;
}

/// An entry of the catalog and what stands for it in the object.
Value Outside(Catalog& catalog, const std::string& name, DType dtype, const Shape& shape) {
  Entry entry{.name = name, .dtype = dtype, .shape = shape, .chunks = {}};
  entry.chunks.push_back({.box = Box::Whole(shape), .bytes = {}});
  catalog.entries.push_back(entry);
  TensorValue t;
  t.dtype = dtype;
  t.shape = shape;
  t.strides = RowMajorStrides(shape);
  t.storage = name;
  t.storage_numel = CheckedCount(shape);
  return Value(t);
}

Value Inside(const std::string& bytes) {
  TensorValue t;
  t.dtype = DType::kU8;
  t.shape = {static_cast<std::int64_t>(bytes.size())};
  t.strides = {1};
  t.storage_numel = t.shape[0];
  t.bytes = std::make_shared<std::string>(bytes);
  return Value(t);
}

Catalog Target() {
  Catalog target;
  const std::string a = "mp_rank_00_000/model_optim_rng.pt";
  Value model = Value::MakeDict();
  model.as_dict()->ordered_class = true;
  model.Set("z.weight", Outside(target, a + "#model/z.weight", DType::kBF16, {600, 5}));  // before `a`, in the file too
  model.Set("a.weight", Outside(target, a + "#model/a.weight", DType::kF32, {3, 4}));
  model.Set("a._extra_state", Value());
  model.Set("fp8", Outside(target, a + "#model/fp8", DType::kF8E4M3, {8}));
  model.Set("empty", Inside(""));
  model.Set("scalar", Outside(target, a + "#model/scalar", DType::kI64, {}));
  target.objects[a] = Value::MakeDict({{Value("iteration"), Value(7)}, {Value("model"), model},
                                       {Value("rng_state"), Value::MakeList({Inside("random state")})}});
  const std::string b = "mp_rank_00_001/model_optim_rng.pt";
  const Value masters = Value::MakeList({Value::MakeList({Outside(target, b + "#optimizer/fp32_from_fp16_params/0/0", DType::kF32, {2})})});
  target.objects[b] = Value::MakeDict({{Value("optimizer"), Value::MakeDict({{Value("fp32_from_fp16_params"), masters}})}});
  const std::string c = "mp_rank_00_001/distrib_optim.pt";
  const Value key = Value::MakeTuple({Value(DType::kBF16), Value(DType::kF32)});
  const Value buffer = Outside(target, c + "#0/(torch.bfloat16, torch.float32)/param", DType::kF32, {15});
  target.objects[c] = Value::MakeDict({{Value(0), Value::MakeDict({{key, Value::MakeDict({{Value("param"), buffer}})}})}});
  target.SortEntries();
  return target;
}

/// Does what the executor does: frames, data and seals, the tensors in reverse.
Result<Placement> Write(io::Storage& storage, const std::string& dir, CheckpointWriter& writer, Catalog target) {
  CROSSDOCK_ASSIGN_OR_RETURN(Placement placement, writer.LayOut(std::move(target)));
  std::vector<std::unique_ptr<io::WriteFile>> files;
  for (const FileRef& ref : placement.catalog.files) {
    const std::string path = io::JoinPath(dir, ref.path);
    CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, io::ParentPath(path)));
    CROSSDOCK_ASSIGN_OR_RETURN(auto file, storage.Create(path));
    files.push_back(std::move(file));
  }
  const auto put = [&](std::int32_t file, std::int64_t offset, const std::string& bytes) {
    return files[static_cast<std::size_t>(file)]->WriteAt(offset, std::as_bytes(std::span(bytes)));
  };
  for (const Frame& frame : placement.frames) CROSSDOCK_RETURN_IF_ERROR(put(frame.file, frame.offset, frame.bytes));
  for (std::size_t e = placement.catalog.entries.size(); e-- > 0;) {
    const Chunk& chunk = placement.catalog.entries[e].chunks.at(0);
    const std::string data = Pattern(chunk.bytes.length, static_cast<unsigned>(e));
    CROSSDOCK_RETURN_IF_ERROR(put(chunk.file, chunk.bytes.offset, data));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto frames,
                               writer.Seal(placement.catalog, static_cast<std::int32_t>(e), 0, Crc32(0, std::as_bytes(std::span(data)))));
    for (const Frame& frame : frames) CROSSDOCK_RETURN_IF_ERROR(put(frame.file, frame.offset, frame.bytes));
  }
  for (const auto& file : files) CROSSDOCK_RETURN_IF_ERROR(file->Sync());
  CROSSDOCK_RETURN_IF_ERROR(writer.WriteMetadata(placement.catalog, storage, dir));
  return placement;
}

TEST(MpRankWriter, WhatItPlacesIsWhatTheReaderFinds) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/out/iter_0000007"), IsOk());
  const auto writer = MakeMpRankWriter();
  ASSERT_OK_AND_ASSIGN(const Placement placement, Write(storage, "/out/iter_0000007", *writer, Target()));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenMpRank(storage, "/out/iter_0000007"));
  const Catalog& found = reader->catalog();
  EXPECT_EQ(found.step, 7);
  ASSERT_EQ(found.files.size(), placement.catalog.files.size());
  for (std::size_t f = 0; f < found.files.size(); ++f) {
    EXPECT_EQ(found.files[f].path, placement.catalog.files[f].path);
    EXPECT_EQ(found.files[f].identity.size, placement.catalog.files[f].identity.size);
  }
  ASSERT_EQ(found.entries.size(), placement.catalog.entries.size());
  for (std::size_t e = 0; e < found.entries.size(); ++e) {
    const Entry& want = placement.catalog.entries[e];
    EXPECT_EQ(found.entries[e].name, want.name);
    EXPECT_EQ(found.entries[e].dtype, want.dtype);
    EXPECT_EQ(found.entries[e].shape, want.shape);
    ASSERT_EQ(found.entries[e].chunks.size(), 1U);
    EXPECT_EQ(found.entries[e].chunks[0].box, want.chunks[0].box);
    EXPECT_EQ(found.entries[e].chunks[0].file, want.chunks[0].file);
    EXPECT_EQ(found.entries[e].chunks[0].bytes, want.chunks[0].bytes);
    ASSERT_OK_AND_ASSIGN(const std::string data, ReadWhole(storage, *reader, static_cast<std::int32_t>(e)));
    EXPECT_EQ(data, Pattern(want.chunks[0].bytes.length, static_cast<unsigned>(e)));
  }
  ASSERT_EQ(found.objects.size(), placement.catalog.objects.size());
  for (const auto& [name, value] : placement.catalog.objects) EXPECT_EQ(ToJson(found.objects.at(name)), ToJson(value)) << name;
}

TEST(MpRankWriter, StatesTrueSumsTwiceAndAlignsTensors) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/out"), IsOk());
  ASSERT_OK_AND_ASSIGN(const Placement placement, Write(storage, "/out", *MakeMpRankWriter(), Target()));
  std::size_t tensors = 0;
  for (const auto& [path, content] : storage.Files("/out")) {
    ASSERT_OK_AND_ASSIGN(const auto file, storage.OpenRead(io::JoinPath("/out", path)));
    const auto size = static_cast<std::int64_t>(content.size());
    ASSERT_OK_AND_ASSIGN(const auto range, torch_zip::RangeReader::Open(*file, {0, size}));
    ASSERT_OK_AND_ASSIGN(const auto zip, torch_zip::ZipDirectory::Read(range));
    EXPECT_EQ(zip.prefix(), path.substr(path.find('/') + 1, path.rfind('.') - path.find('/') - 1));
    for (const auto& [name, entry] : zip.entries()) {
      ASSERT_OK_AND_ASSIGN(const ByteRange place, zip.Locate(range, name));
      EXPECT_EQ(place.offset % 64, 0) << name;
      const std::string_view data = std::string_view(content).substr(static_cast<std::size_t>(place.offset), static_cast<std::size_t>(place.length));
      const std::uint32_t sum = Crc32(0, std::as_bytes(std::span(data)));
      EXPECT_EQ(LoadLittle<std::uint32_t>(content.data() + entry.header_offset + 14), sum) << name;
      const std::size_t record = content.rfind(zip.prefix() + "/" + name);   // its name in the central directory
      EXPECT_EQ(LoadLittle<std::uint32_t>(content.data() + record - 46 + 16), sum) << name;
      if (name.starts_with("data/")) ++tensors;
    }
  }
  EXPECT_EQ(tensors, placement.catalog.entries.size() + 2);
}

TEST(MpRankWriter, EqualTargetsGiveEqualBytes) {
  io::MemoryStorage storage;
  ASSERT_OK_AND_ASSIGN([[maybe_unused]] const Placement first, Write(storage, "/a", *MakeMpRankWriter(), Target()));
  ASSERT_OK_AND_ASSIGN([[maybe_unused]] const Placement second, Write(storage, "/b", *MakeMpRankWriter(), Target()));
  EXPECT_EQ(storage.Files("/a"), storage.Files("/b"));
}

TEST(MpRankWriter, PlacesBeyondFourGiBNeedNoData) {
  Catalog target;
  const std::string name = "mp_rank_00/model_optim_rng.pt";
  Value model = Value::MakeDict();
  for (const char* key : {"a", "b", "c"}) model.Set(key, Outside(target, name + "#model/" + key, DType::kBF16, {std::int64_t{1} << 31U, key[0] == 'b' ? 1 : 2}));
  target.objects[name] = Value::MakeDict({{Value("model"), model}});
  ASSERT_OK_AND_ASSIGN(const Placement placement, MakeMpRankWriter()->LayOut(std::move(target)));
  EXPECT_GT(placement.catalog.files.at(0).identity.size, std::int64_t{20} << 30U);
  std::int64_t frames = 0;
  for (const Frame& frame : placement.frames) frames += static_cast<std::int64_t>(frame.bytes.size());
  EXPECT_LT(frames, 4096);
  EXPECT_NE(placement.frames.back().bytes.find("PK\6\6"), std::string::npos);   // a zip64 end record
}

TEST(MpRankWriter, RefusesObjectsThatDoNotFitTheirTensors) {
  Catalog lost = Target();
  lost.objects.erase("mp_rank_00_001/distrib_optim.pt");
  EXPECT_THAT(MakeMpRankWriter()->LayOut(std::move(lost)), IsError(ErrorCode::kUnsupported, HasSubstr("distrib_optim.pt#0")));
  Catalog unknown = Target();
  std::erase_if(unknown.entries, [](const Entry& e) { return e.name.ends_with("a.weight"); });
  EXPECT_THAT(MakeMpRankWriter()->LayOut(std::move(unknown)), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("a.weight"), HasSubstr("contradict"))));
  Catalog shaped = Target();
  for (Entry& entry : shaped.entries) entry.shape = entry.name.ends_with("a.weight") ? Shape{4, 3} : entry.shape;
  EXPECT_THAT(MakeMpRankWriter()->LayOut(std::move(shaped)), IsError(ErrorCode::kUnsupported, HasSubstr("[4, 3]")));
  Catalog twice = Target();
  Value& object = twice.objects.at("mp_rank_00_001/model_optim_rng.pt");
  object.Set("again", *object.FindPath("optimizer.fp32_from_fp16_params"));
  EXPECT_THAT(MakeMpRankWriter()->LayOut(std::move(twice)), IsError(ErrorCode::kUnsupported, HasSubstr("one place")));
}

}  // namespace
}  // namespace crossdock::formats::mp_rank
