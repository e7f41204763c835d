// SPDX-License-Identifier: Apache-2.0
// Iterations broken on purpose, one by one, from one that Megatron-Core wrote.
#include <functional>

#include "formats/dcp/dcp.h"
#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats {
namespace {

using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

/// A tensor of one chunk in `__0_0.distcp`, of shape [16].
constexpr std::string_view kTensor = "decoder.final_layernorm.weight";

Files GoodFiles() {
  Files files;
  for (const char* name : {".metadata", "metadata.json", "common.pt", "__0_0.distcp", "__1_0.distcp"}) {
    files[name] = ReadGolden("dcp/numbered_pp2/iter_0000020/" + std::string(name));
  }
  return files;
}

Value& State(const Value& object) { return *object.as_opaque()->state; }
Value& At(Value& dict, std::string_view key) { return const_cast<Value&>(*dict.Find(key)); }

/// Reads the metadata as a tree, lets `change` at it, writes it again.
Files Metadata(const std::function<void(Value& metadata)>& change) {
  Files files = GoodFiles();
  Value metadata = pickle::ReadPickle(files[".metadata"]).value();
  State(metadata).Erase("all_local_plans");
  change(metadata);
  files[".metadata"] = pickle::WritePickle(metadata).value().bytes;
  return files;
}

/// Changes the state of the tensor's TensorStorageMetadata, or of its first chunk.
Files Tensor(const std::function<void(Value& state)>& change) {
  return Metadata([&](Value& metadata) { change(State(At(At(State(metadata), "state_dict_metadata"), kTensor))); });
}
Files TensorChunk(const std::function<void(Value& state)>& change) {
  return Tensor([&](Value& state) { change(State(At(state, "chunks").mutable_sequence()->at(0))); });
}

/// Changes the _StorageInfo of the tensor's chunk.
Files Info(const std::function<void(Value& state)>& change) {
  return Metadata([&](Value& metadata) {
    for (auto& [index, info] : At(State(metadata), "storage_data").as_dict()->items) {
      if (State(index).GetString("fqn") == kTensor) change(State(info));
    }
  });
}

Files Set(const std::string& name, const std::string& content) {
  Files files = GoodFiles();
  files[name] = content;
  return files;
}
Files Without(const std::string& name) {
  Files files = GoodFiles();
  files.erase(name);
  return files;
}

Value Size(ValueList dims) { return Value::MakeTuple(std::move(dims)); }

struct Case {
  std::string name;
  Files files;
  ErrorCode code;
  std::string text;
};

std::vector<Case> Cases() {
  constexpr auto kCorrupt = ErrorCode::kCorrupt;
  const std::string data = GoodFiles().at("__0_0.distcp");
  // One statement a case: a single initializer of this size takes the compiler minutes.
  std::vector<Case> all;
  const auto add = [&all](const char* name, Files content, ErrorCode code, const char* text) {
    all.push_back({name, std::move(content), code, text});
  };
  add("no_metadata", Without(".metadata"), ErrorCode::kIncomplete, ".metadata");
  add("empty_metadata", Set(".metadata", ""), kCorrupt, "ends before");
  add("metadata_is_something_else", Set(".metadata", "}."), kCorrupt, "something else");
  add("metadata_would_run", Set(".metadata", "cos\nsystem\n(S'x'\ntR."), ErrorCode::kUnsafe, "os.system");
  add("missing_data_file", Without("__0_0.distcp"), ErrorCode::kIncomplete, "__0_0.distcp");
  add("truncated_data_file", Set("__0_0.distcp", data.substr(0, data.size() - 1)), kCorrupt, "shorter than its metadata says");
  add("empty_data_file", Set("__0_0.distcp", ""), kCorrupt, "shorter than its metadata says");
  add("other_backend", Set("metadata.json", R"({"sharded_backend": "zarr", "sharded_backend_version": 1})"), ErrorCode::kUnsupported, "zarr");
  add("bad_json", Set("metadata.json", "{"), kCorrupt, "metadata.json");
  add("bad_common", Set("common.pt", "nothing"), kCorrupt, "common.pt");
  add("common_would_run", Set("common.pt", ReadGolden("torch_zip/unsafe.pt")), ErrorCode::kUnsafe, "posix.system");
  add("bad_run_config", Set("run_config.yaml", "a: ["), kCorrupt, "run_config.yaml");
  add("path_leaves_the_directory", Info([](Value& s) { s.Set("relative_path", Value("../__0_0.distcp")); }), ErrorCode::kUnsafe, "__0_0.distcp");
  add("absolute_path", Info([](Value& s) { s.Set("relative_path", Value("/etc/passwd")); }), ErrorCode::kUnsafe, "/etc/passwd");
  add("path_in_a_folder", Info([](Value& s) { s.Set("relative_path", Value("a/__0_0.distcp")); }), ErrorCode::kUnsafe, "another directory");
  add("path_is_no_text", Info([](Value& s) { s.Set("relative_path", Value(1)); }), kCorrupt, "without file");
  add("negative_offset", Info([](Value& s) { s.Set("offset", Value(-1)); }), kCorrupt, "without file, offset or length");
  add("range_overflows", Info([](Value& s) { s.Set("offset", Value(INT64_MAX)); }), kCorrupt, "without file, offset or length");
  add("range_past_the_end", Info([](Value& s) { s.Set("length", Value(1 << 30)); }), kCorrupt, "shorter than its metadata says");
  add("compressed", Info([](Value& s) { s.Set("transform_descriptors", Value::MakeList({Value("zstd")})); }), ErrorCode::kUnsupported, "transformed");
  add("no_place", Metadata([](Value& m) {
         std::erase_if(At(State(m), "storage_data").as_dict()->items, [](const auto& item) { return State(item.first).GetString("fqn") == kTensor; });
       }), kCorrupt, "where a chunk lies");
  add("no_chunks", Tensor([](Value& s) { s.Set("chunks", Value::MakeList()); }), ErrorCode::kIncomplete, "do not cover");
  add("gap", TensorChunk([](Value& s) { s.Set("sizes", Size({Value(15)})); }), ErrorCode::kIncomplete, "do not cover");
  add("overlap", Tensor([](Value& s) {
         ValueList& chunks = *At(s, "chunks").mutable_sequence();
         Opaque second = *chunks.at(0).as_opaque();
         second.state = std::make_shared<Value>(Value::MakeDict({{Value("offsets"), Size({Value(8)})}, {Value("sizes"), Size({Value(8)})}}));
         chunks.push_back(Value(second));
       }), kCorrupt, "overlap");
  add("chunk_outside", TensorChunk([](Value& s) { s.Set("offsets", Size({Value(1)})); }), kCorrupt, "outside");
  add("chunk_of_other_rank", TensorChunk([](Value& s) { s.Set("sizes", Size({Value(16), Value(1)})); }), kCorrupt, "number of axes");
  add("negative_size", Tensor([](Value& s) { s.Set("size", Size({Value(-16)})); }), kCorrupt, "negative size");
  add("size_overflows", Tensor([](Value& s) { s.Set("size", Size({Value(INT64_MAX), Value(INT64_MAX)})); }), kCorrupt, "overflows");
  add("size_is_no_tuple", Tensor([](Value& s) { s.Set("size", Value("16")); }), kCorrupt, "no tuple");
  add("nine_axes", Tensor([](Value& s) { s.Set("size", Size(ValueList(9, Value(1)))); }), ErrorCode::kUnsupported, "axes");
  add("no_size", Tensor([](Value& s) { s.Erase("size"); }), kCorrupt, "without size");
  add("no_properties", Tensor([](Value& s) { s.Erase("properties"); }), kCorrupt, "without properties");
  add("unknown_dtype", Tensor([](Value& s) {
         Opaque dtype;
         dtype.module = "torch";
         dtype.name = "complex128";
         State(At(s, "properties")).mutable_sequence()->at(0) = Value(dtype);
       }), ErrorCode::kUnsupported, "complex128");
  add("no_state_dict", Metadata([](Value& m) { State(m).Erase("state_dict_metadata"); }), kCorrupt, "no state_dict_metadata");
  return all;
}

Status Fill(io::Storage& storage, const Files& files) {
  CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, "c/iter_0000020"));
  for (const auto& [name, content] : files) {
    const Status written = io::WriteSmallFile(storage, "c/iter_0000020/" + name, content);
    if (!written) return written;
  }
  return OkStatus();
}

class BrokenIteration : public ::testing::TestWithParam<Case> {};

TEST_P(BrokenIteration, IsRefusedWhenOpened) {
  io::MemoryStorage storage;
  ASSERT_THAT(Fill(storage, GetParam().files), IsOk());
  EXPECT_THAT(OpenDcp(storage, "c/iter_0000020"), IsError(GetParam().code, HasSubstr(GetParam().text)));
}

INSTANTIATE_TEST_SUITE_P(ByName, BrokenIteration, ::testing::ValuesIn(Cases()), [](const auto& row) { return row.param.name; });

TEST(BrokenIterations, AnUnchangedTreeIsReadSoThatTheOthersFailForTheirReason) {
  io::MemoryStorage storage;
  ASSERT_THAT(Fill(storage, Metadata([](Value&) {})), IsOk());
  EXPECT_THAT(OpenDcp(storage, "c/iter_0000020"), IsOk());
}

TEST(BrokenIterations, MissingFilesAreToldWithKeysAndRanges) {
  io::MemoryStorage storage;
  ASSERT_THAT(Fill(storage, Without("__1_0.distcp")), IsOk());
  const auto opened = OpenDcp(storage, "c/iter_0000020");
  EXPECT_THAT(opened, IsError(ErrorCode::kIncomplete, HasSubstr("bytes ")));
  EXPECT_THAT(opened.error().ToString(), HasSubstr(" of __1_0.distcp)"));
  EXPECT_THAT(opened.error().ToString(), HasSubstr("`"));
}

TEST(BrokenIterations, RepeatedChunksOfReplicatedSavesAreRead) {
  io::MemoryStorage storage;
  ASSERT_THAT(Fill(storage, Tensor([](Value& s) {
    ValueList& chunks = *At(s, "chunks").mutable_sequence();
    chunks.push_back(chunks.at(0));
  })), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenDcp(storage, "c/iter_0000020"));
  const Catalog& catalog = reader->catalog();
  EXPECT_EQ(catalog.entries.at(static_cast<std::size_t>(catalog.Find(kTensor))).chunks.size(), 1U);
}

struct DataCase {
  std::string name;
  Files files;
  std::string text;
};
class WrongData : public ::testing::TestWithParam<DataCase> {};

// What only the data can tell is found when a chunk is located.
TEST_P(WrongData, IsRefusedWhenLocated) {
  io::MemoryStorage storage;
  ASSERT_THAT(Fill(storage, GetParam().files), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenDcp(storage, "c/iter_0000020"));
  const auto located = reader->Locate(reader->catalog().Find(kTensor), 0);
  EXPECT_THAT(located, IsError(ErrorCode::kCorrupt, HasSubstr(GetParam().text)));
  EXPECT_THAT(located.error().ToString(), HasSubstr(std::string(kTensor)));
}

INSTANTIATE_TEST_SUITE_P(
    ByName, WrongData,
    ::testing::Values(DataCase{"zeros", Set("__1_0.distcp", std::string(GoodFiles().at("__1_0.distcp").size(), '\0')), "no end record"},
                      DataCase{"other_dtype", Tensor([](Value& s) { State(At(s, "properties")).mutable_sequence()->at(0) = Value(DType::kF32); }), "F32"},
                      DataCase{"other_shape", Tensor([](Value& s) {
                        s.Set("size", Size({Value(8)}));
                        State(At(s, "chunks").mutable_sequence()->at(0)).Set("sizes", Size({Value(8)}));
                      }), "[16]"},
                      DataCase{"off_by_one", Info([](Value& s) { s.Set("length", Value(s.GetInt("length").value() - 1)); }), "no end record"}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace crossdock::formats
