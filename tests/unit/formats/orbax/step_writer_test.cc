// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/orbax.h"
#include "formats/orbax/step_files.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/orbax/read_back.h"

namespace crossdock::formats::orbax {
namespace {

using ::testing::HasSubstr;

void AddTensor(const std::string& item, const std::string& name, Shape shape, Catalog* target) {
  target->entries.push_back({item + "." + name, Slot::kParam, DType::kF32, shape, {Chunk{Box::Whole(shape), -1, {}, ChunkEncoding::kRaw, 0}}});
  Value row = Value::MakeDict();
  row.Set("path", Value::MakeList({Value(item), Value(name)}));
  row.Set("value_type", "jax.Array");
  if (!target->objects.contains("tree")) target->objects["tree"] = Value::MakeList();
  target->objects["tree"].mutable_sequence()->push_back(std::move(row));
}

/// The items are named in another order than entries have.
Catalog TwoItems() {
  Catalog target;
  AddTensor("a_state", "mu", {3}, &target);
  AddTensor("model", "b", {2}, &target);
  AddTensor("model", "w", {2, 2}, &target);
  Value row = Value::MakeDict();
  row.Set("path", *ParseJson(R"(["a_state", "step"])"));
  row.Set("value_type", "jax.Array");
  target.objects["tree"].mutable_sequence()->push_back(std::move(row));
  target.objects["scalars"] = *ParseJson(R"({"a_state.step": {"dtype": "U32", "shape": [], "values": [7]}})");
  target.objects["custom_metadata"] = *ParseJson(R"({"global_step": 5})");
  target.objects["orbax"] = *ParseJson(R"({"items": ["model", "a_state"], "zarr3": false})");
  return target;
}

/// Elements that tell of which tensor they are.
std::string ElementsOf(const Entry& entry) {
  std::string out(static_cast<std::size_t>(entry.chunks[0].box.count()) * 4, '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(entry.name.back() + static_cast<char>(i));
  return out;
}

TEST(OrbaxStepWriter, EachItemIsACheckpointOfItsOwn) {
  for (const bool ocdbt : {true, false}) {
    io::MemoryStorage storage;
    ASSERT_THAT(storage.MakeDir("/7"), IsOk());
    Catalog target = TwoItems();
    target.objects["orbax"].Set("ocdbt", ocdbt);
    const auto writer = MakeOrbaxStepWriter();
    ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(std::move(target)));
    for (const Entry& entry : placement.catalog.entries) {
      const std::string path = io::JoinPath("/7", placement.catalog.files[static_cast<std::size_t>(entry.chunks[0].file)].path);
      ASSERT_THAT(io::MakeDirs(storage, io::ParentPath(path)), IsOk());
      auto file = io::Exists(storage, path) ? storage.OpenWrite(path) : storage.Create(path);
      ASSERT_THAT(file, IsOk());
      const std::string elements = ElementsOf(entry);
      ASSERT_THAT((*file)->WriteAt(entry.chunks[0].bytes.offset, std::as_bytes(std::span(elements))), IsOk());
    }
    ASSERT_THAT(writer->WriteMetadata(placement.catalog, storage, "/7"), IsOk());
    std::size_t read = 0;
    for (const std::string item : {"model", "a_state"}) {
      ASSERT_OK_AND_ASSIGN(const auto reader, OpenOrbax(storage, "/7/" + item));
      for (const Entry& entry : reader->catalog().entries) {
        ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadBack(storage, *reader, reader->catalog().Find(entry.name)));
        EXPECT_EQ(bytes, entry.name == "step" ? std::string("\7\0\0\0", 4) : ElementsOf(entry)) << item << "." << entry.name;
        ++read;
      }
      EXPECT_EQ(reader->catalog().objects.at("orbax").GetBool("zarr3"), false);
    }
    EXPECT_EQ(read, 4U);
    const auto files = storage.Files("/7");
    ASSERT_OK_AND_ASSIGN(const Value step, ParseJson(files.at("_CHECKPOINT_METADATA")));
    EXPECT_EQ(step.Find("item_handlers")->as_dict()->items.size(), 2U);
    EXPECT_EQ(step.GetString("item_handlers.a_state"), kPyTreeHandler);
    EXPECT_EQ(step.GetInt("custom_metadata.global_step"), 5);
    EXPECT_TRUE(files.contains("commit_success.txt") && files.contains("model/commit_success.txt") && files.contains("a_state/commit_success.txt"));
    // The plan said what would be there, and no less.
    std::map<std::string, std::int64_t> promised;
    for (const FileRef& file : placement.catalog.files) promised[file.path] = file.identity.size;
    for (const FileRef& file : writer->MetadataFiles()) promised[file.path] = file.identity.size;
    ASSERT_EQ(promised.size(), files.size());
    for (const auto& [path, bytes] : files) EXPECT_LE(static_cast<std::int64_t>(bytes.size()), promised.at(path)) << path;
  }
}

TEST(OrbaxStepWriter, WhatIsOfNoItemIsRefused) {
  Catalog tensor = TwoItems();
  AddTensor("other", "x", {1}, &tensor);
  EXPECT_THAT(MakeOrbaxStepWriter()->LayOut(std::move(tensor)), IsError(ErrorCode::kUnsupported, HasSubstr("belongs to no item")));
  Catalog value = TwoItems();
  value.objects["scalars"].Set("steps", Value::MakeDict());
  EXPECT_THAT(MakeOrbaxStepWriter()->LayOut(std::move(value)), IsError(ErrorCode::kUnsupported, HasSubstr("belongs to no item")));
  Catalog no_tensor = TwoItems();
  no_tensor.entries.erase(no_tensor.entries.begin());
  EXPECT_THAT(MakeOrbaxStepWriter()->LayOut(std::move(no_tensor)), IsError(ErrorCode::kIncomplete, HasSubstr("a leaf of the tree has no tensor")));
}

TEST(OrbaxStepFiles, TheMarkerMayBeLeftOut) {
  EXPECT_EQ(StepFiles({{"a"}, "h", true}, Value::MakeDict()).size(), 2U);
  const auto files = StepFiles({{}, "h", false}, Value::MakeDict());
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].first, "_CHECKPOINT_METADATA");
}

}  // namespace
}  // namespace crossdock::formats::orbax
