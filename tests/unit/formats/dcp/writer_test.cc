// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"
#include "formats/dcp/dcp.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/dcp/stored_tensor.h"

namespace crossdock::formats {
namespace {

/// Bytes that depend on place and seed, so that a misplaced chunk shows.
std::string Pattern(std::int64_t size, unsigned seed) {
  std::string out(static_cast<std::size_t>(size), '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>((i * 31 + seed * 7 + (i >> 8U)) & 0xFFU);
  return out;
}

Entry MakeEntry(const std::string& name, DType dtype, Shape shape, std::vector<std::pair<Box, std::int32_t>> chunks) {
  Entry entry{.name = name, .dtype = dtype, .shape = shape, .chunks = {}};
  for (auto& [box, shard] : chunks) {
    Chunk& chunk = entry.chunks.emplace_back();
    chunk.box = box;
    chunk.shard = shard;
  }
  return entry;
}

Value EmptyTensor() {
  TensorValue t;
  t.dtype = DType::kU8;
  t.shape = {0};
  t.strides = {1};
  t.bytes = std::make_shared<std::string>();
  return Value(t);
}

Catalog TwoFileTarget() {
  Catalog target;
  target.entries.push_back(MakeEntry("a.large", DType::kF32, {2, 600, 512}, {{{{0, 0, 0}, {1, 600, 512}}, 0}, {{{1, 0, 0}, {1, 600, 512}}, 1}}));
  target.entries.push_back(MakeEntry("b.small", DType::kBF16, {4, 3}, {{{{0, 0}, {1, 3}}, 0}, {{{1, 0}, {3, 3}}, 1}}));
  target.entries.push_back(MakeEntry("c.scalar", DType::kI64, {}, {{{{}, {}}, 1}}));
  target.entries.push_back(MakeEntry("d.fp8", DType::kF8E4M3, {8}, {{{{0}, {8}}, 0}}));
  target.entries.push_back(MakeEntry("e.empty", DType::kF32, {0, 4}, {{{{0, 0}, {0, 4}}, 0}}));
  target.objects["common"] = Value::MakeDict({{Value("iteration"), Value(7)}, {Value("betas"), Value::MakeTuple({Value(0.9), Value(0.95)})}});
  target.objects["object:x._extra_state/shard_0_1"] = Value::MakeList({EmptyTensor()});
  return target;
}

/// Does what the executor does: frames, data, seals, metadata.
Result<Placement> Write(io::Storage& storage, const std::string& dir, CheckpointWriter& writer, Catalog target) {
  CROSSDOCK_ASSIGN_OR_RETURN(Placement placement, writer.LayOut(std::move(target)));
  std::vector<std::unique_ptr<io::WriteFile>> files;
  for (const FileRef& ref : placement.catalog.files) {
    CROSSDOCK_ASSIGN_OR_RETURN(auto file, storage.Create(io::JoinPath(dir, ref.path)));
    files.push_back(std::move(file));
  }
  const auto put = [&](std::int32_t file, std::int64_t offset, const std::string& bytes) {
    return files[static_cast<std::size_t>(file)]->WriteAt(offset, std::as_bytes(std::span(bytes)));
  };
  for (const Frame& frame : placement.frames) CROSSDOCK_RETURN_IF_ERROR(put(frame.file, frame.offset, frame.bytes));
  for (std::size_t e = 0; e < placement.catalog.entries.size(); ++e) {
    const Entry& entry = placement.catalog.entries[e];
    for (std::size_t c = 0; c < entry.chunks.size(); ++c) {
      const Chunk& chunk = entry.chunks[c];
      const std::string data = Pattern(chunk.bytes.length, static_cast<unsigned>(10 * e + c));
      CROSSDOCK_RETURN_IF_ERROR(put(chunk.file, chunk.bytes.offset, data));
      CROSSDOCK_ASSIGN_OR_RETURN(const auto frames, writer.Seal(placement.catalog, static_cast<std::int32_t>(e), static_cast<std::int32_t>(c),
                                                                Crc32(0, std::as_bytes(std::span(data)))));
      for (const Frame& frame : frames) {
        CROSSDOCK_RETURN_IF_ERROR(put(frame.file, frame.offset, frame.bytes));
      }
    }
  }
  for (const auto& file : files) {
    const Status synced = file->Sync();
    if (!synced) return synced.error();
  }
  const Status metadata = writer.WriteMetadata(placement.catalog, storage, dir);
  if (!metadata) return metadata.error();
  return placement;
}

TEST(DcpWriter, WhatItPlacesIsWhatTheReaderFinds) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "out/iter_0000007"), IsOk());
  const auto writer = MakeDcpWriter();
  ASSERT_OK_AND_ASSIGN(const Placement placement, Write(storage, "out/iter_0000007", *writer, TwoFileTarget()));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenDcp(storage, "out/iter_0000007"));
  const Catalog& found = reader->catalog();
  ASSERT_EQ(found.entries.size(), placement.catalog.entries.size());
  EXPECT_EQ(found.step, 7);
  for (std::size_t e = 0; e < found.entries.size(); ++e) {
    const Entry& want = placement.catalog.entries[e];
    EXPECT_EQ(found.entries[e].name, want.name);
    EXPECT_EQ(found.entries[e].dtype, want.dtype);
    EXPECT_EQ(found.entries[e].shape, want.shape);
    ASSERT_EQ(found.entries[e].chunks.size(), want.chunks.size());
    for (std::size_t c = 0; c < want.chunks.size(); ++c) {
      EXPECT_EQ(found.entries[e].chunks[c].box, want.chunks[c].box);
      ASSERT_OK_AND_ASSIGN(const ByteRange range, reader->Locate(static_cast<std::int32_t>(e), static_cast<std::int32_t>(c)));
      EXPECT_EQ(range.length, want.chunks[c].bytes.length);
      if (range.length > 0) {
        EXPECT_EQ(range, want.chunks[c].bytes) << want.name;
      }
    }
  }
  ASSERT_EQ(found.object_refs.size(), 1U);
  EXPECT_EQ(found.object_refs[0].name, "x._extra_state/shard_0_1");
  ASSERT_OK_AND_ASSIGN(const Value extra, reader->LoadObject(found.object_refs[0]));
  EXPECT_TRUE(extra.Equals(TwoFileTarget().objects.at("object:x._extra_state/shard_0_1")));
  EXPECT_TRUE(found.objects.at("common").Equals(placement.catalog.objects.at("common")));
  EXPECT_EQ(found.objects.at("metadata.json").GetInt("common_backend_version"), 1);
}

TEST(DcpWriter, LargeDataStartsAtAPageAndFilesHaveTheStatedSizes) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "out"), IsOk());
  const auto writer = MakeDcpWriter();
  ASSERT_OK_AND_ASSIGN(const Placement placement, Write(storage, "out", *writer, TwoFileTarget()));
  for (const Chunk& chunk : placement.catalog.entries[0].chunks) EXPECT_EQ(chunk.bytes.offset % 4096, 0);
  std::vector<FileRef> files = placement.catalog.files;
  EXPECT_EQ(files.at(0).path, "__0_0.distcp");
  EXPECT_EQ(files.at(1).path, "__1_0.distcp");
  for (const FileRef& file : writer->MetadataFiles()) files.push_back(file);
  EXPECT_EQ(files.size(), 5U);
  for (const FileRef& file : files) {
    ASSERT_OK_AND_ASSIGN(const io::FileInfo info, storage.Stat(io::JoinPath("out", file.path)));
    EXPECT_EQ(info.size, file.identity.size) << file.path;
  }
}

TEST(DcpWriter, EqualTargetsGiveEqualBytes) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "a"), IsOk());
  ASSERT_THAT(io::MakeDirs(storage, "b"), IsOk());
  ASSERT_OK_AND_ASSIGN([[maybe_unused]] const Placement first, Write(storage, "a", *MakeDcpWriter(), TwoFileTarget()));
  ASSERT_OK_AND_ASSIGN([[maybe_unused]] const Placement second, Write(storage, "b", *MakeDcpWriter(), TwoFileTarget()));
  EXPECT_EQ(storage.Files("a"), storage.Files("b"));
}

TEST(DcpWriter, MetadataOfAnInterruptedRunIsWrittenAnew) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "out"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, "out/.metadata", "half"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, "out/metadata.json", "{"), IsOk());
  ASSERT_OK_AND_ASSIGN([[maybe_unused]] const Placement placement, Write(storage, "out", *MakeDcpWriter(), TwoFileTarget()));
  EXPECT_THAT(OpenDcp(storage, "out"), IsOk());
}

}  // namespace
}  // namespace crossdock::formats
