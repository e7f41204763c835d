// SPDX-License-Identifier: Apache-2.0
// Formats x families: a view shows what `convert --to hf` writes, name for name, and each region of a tensor byte for byte; and it reads no
// more of the files than the region.
#include "convert/view.h"

#include <random>

#include "convert/job.h"
#include "convert/source.h"
#include "convert/target.h"
#include "formats/safetensors/safetensors.h"
#include "io/counting_storage.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "roundtrip/tiny_state.h"
#include "tensor/dtype.h"

namespace crossdock::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct Stored {
  const char* label;
  const char* to;   ///< what the source is written as; null: the full state itself
  int tp = 1, pp = 1;
};
constexpr Stored kStored[] = {{"full_state", nullptr}, {"hf", "hf"}, {"megatron", "megatron", 2, 2}, {"legacy", "megatron-legacy", 4, 2},
                              {"dcp", "dcp"}, {"maxtext", "maxtext"}};
constexpr TinyFamily kViewed[] = {{"qwen2_tied", "qwen2", true}, {"qwen3", "qwen3", false}, {"llama", "llama", false}};

Status WriteAs(io::Storage& storage, const std::string& from, const std::string& to, const Stored& how, std::optional<std::string> dtype = {}, std::optional<std::string> hf_template = {}) {
  ConvertOptions options;
  options.source = from;
  options.target = to;
  options.to = how.to;
  options.threads = 1;
  options.dtype = std::move(dtype);
  options.no_optim = true;
  options.hf_template = hf_template;
  options.layout.tp = how.tp;
  options.layout.pp = how.pp;
  options.layout.given = how.tp * how.pp > 1;
  SourceRequest request;
  request.path = from;
  request.no_optim = true;
  request.hf_template = hf_template;
  CROSSDOCK_ASSIGN_OR_RETURN(const Source source, OpenAndRead(storage, request));
  CROSSDOCK_ASSIGN_OR_RETURN(Target target, PrepareTarget(source, options));
  const Result<JobResult> result = RunJob(source, &target, storage, options, {});
  return result ? OkStatus() : Status(result.error());
}

ConvertOptions Viewing(const std::string& path) {
  ConvertOptions options;
  options.source = path;
  options.threads = 1;
  return options;
}

/// The rows of `box` out of a row-major tensor, told apart from the engine's own boxes.
std::string RegionOf(const std::string& whole, const std::vector<std::int64_t>& shape, const ViewBox& box, std::int64_t element) {
  std::string out;
  std::int64_t count = 1;
  for (const std::int64_t n : box.sizes) count *= n;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, at = 0, stride = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      at += (box.offsets[axis] + rest % box.sizes[axis]) * stride;
      rest /= box.sizes[axis];
      stride *= shape[axis];
    }
    out.append(whole, static_cast<std::size_t>(at * element), static_cast<std::size_t>(element));
  }
  return out;
}

Result<std::string> ReadBox(const View& view, std::size_t index, const ViewBox& box, std::int64_t element, std::int64_t* read = nullptr) {
  std::int64_t count = element;
  for (const std::int64_t n : box.sizes) count *= n;
  std::string out(static_cast<std::size_t>(count), '\xEE');
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, view.Read(index, box, std::as_writable_bytes(std::span(out))));
  if (read != nullptr) *read = bytes;
  return out;
}

class ViewMatrix : public ::testing::TestWithParam<std::tuple<Stored, TinyFamily>> {};

TEST_P(ViewMatrix, ShowsWhatAConversionWrites) {
  const auto& [stored, family] = GetParam();
  io::MemoryStorage storage;
  ASSERT_THAT(WriteTinyState(storage, "/w/source", family), IsOk());
  ASSERT_THAT(WriteAs(storage, "/w/source", "/w/hf", kStored[1]), IsOk());
  std::string path = "/w/source";
  if (stored.to != nullptr) {
    path = "/w/stored";
    ASSERT_THAT(WriteAs(storage, "/w/source", path, stored), IsOk());
  }
  ConvertOptions viewing = Viewing(path);
  if (stored.to != nullptr && std::string_view(stored.to) == "maxtext") viewing.hf_template = "/w/hf";
  ASSERT_THAT(WriteAs(storage, path, "/w/shown", kStored[1], {}, viewing.hf_template), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto view, OpenView(storage, viewing));
  // ReadTensors gives "BF16[50, 16]" and the bytes.
  const std::map<std::string, std::string> expected = ReadTensors(storage.Files("/w/shown"));
  ASSERT_EQ(view->tensors().size(), expected.size());
  std::mt19937 random(7);
  for (std::size_t i = 0; i < view->tensors().size(); ++i) {
    const ViewTensor& tensor = view->tensors()[i];
    SCOPED_TRACE(tensor.name);
    ASSERT_TRUE(expected.contains(tensor.name));
    const std::string& all = expected.at(tensor.name);
    const std::string bytes = all.substr(all.size() - static_cast<std::size_t>(tensor.bytes));
    const std::int64_t element = ElementSize(*DTypeFromName(tensor.dtype));
    EXPECT_EQ(all.find(tensor.dtype), 0U);
    ViewBox whole{std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape};
    ASSERT_OK_AND_ASSIGN(const std::string read, ReadBox(*view, i, whole, element));
    EXPECT_TRUE(read == bytes);
    ViewBox box;
    for (const std::int64_t size : tensor.shape) {
      const auto from = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size));
      box.offsets.push_back(from);
      box.sizes.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size - from)) + 1);
    }
    ASSERT_OK_AND_ASSIGN(const std::string part, ReadBox(*view, i, box, element));
    EXPECT_TRUE(part == RegionOf(bytes, tensor.shape, box, element));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ViewMatrix, ::testing::Combine(::testing::ValuesIn(kStored), ::testing::ValuesIn(kViewed)), [](const auto& cell) {
  return std::string(std::get<0>(cell.param).label) + "_" + std::get<1>(cell.param).label;
});

class ViewOfQwen : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(WriteTinyState(storage_, "/w/source", kViewed[1]), IsOk());
    ASSERT_THAT(WriteAs(storage_, "/w/source", "/w/hf", kStored[1]), IsOk());
    ASSERT_THAT(WriteAs(storage_, "/w/source", "/w/megatron", kStored[2]), IsOk());
  }
  io::MemoryStorage storage_;
};

TEST_F(ViewOfQwen, ReadsTheBytesOfTheRegionAndNoOthers) {
  for (const char* path : {"/w/hf", "/w/megatron"}) {
    io::CountingStorage counting(storage_);
    ASSERT_OK_AND_ASSIGN(const auto view, OpenView(counting, Viewing(path)));
    for (const auto& [name, rows] : {std::pair{"model.embed_tokens.weight", 3}, {"model.layers.2.mlp.gate_proj.weight", 5}, {"model.layers.1.self_attn.k_proj.weight", 2}}) {
      ASSERT_OK_AND_ASSIGN(const std::size_t index, view->Find(name));
      std::int64_t told = 0;
      const ViewBox box{{1, 0}, {rows, 16}};
      const std::int64_t element = ElementSize(*DTypeFromName(view->tensors()[index].dtype));
      // Where a chunk lies in its zip is looked up once.
      ASSERT_THAT(ReadBox(*view, index, box, element), IsOk());
      counting.Reset();
      ASSERT_THAT(ReadBox(*view, index, box, element, &told), IsOk());
      EXPECT_EQ(told, rows * 16 * element) << path << " " << name;
      EXPECT_EQ(counting.Of(io::Call::kRead).bytes, told);
      EXPECT_EQ(counting.Of(io::Call::kWrite).calls, 0);
    }
  }
}

TEST_F(ViewOfQwen, CastsAsAConversionDoes) {
  ASSERT_THAT(WriteAs(storage_, "/w/megatron", "/w/f16", kStored[1], "fp16"), IsOk());
  ConvertOptions options = Viewing("/w/megatron");
  options.dtype = "fp16";
  ASSERT_OK_AND_ASSIGN(const auto view, OpenView(storage_, options));
  const auto expected = ReadTensors(storage_.Files("/w/f16"));
  for (std::size_t i = 0; i < view->tensors().size(); ++i) {
    const ViewTensor& tensor = view->tensors()[i];
    EXPECT_EQ(tensor.dtype, "F16");
    ASSERT_OK_AND_ASSIGN(const std::string read, ReadBox(*view, i, {std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape}, 2));
    EXPECT_TRUE(expected.at(tensor.name).ends_with(read)) << tensor.name;
  }
}

TEST_F(ViewOfQwen, ShowsAHuggingFaceDirectoryAsItIsStored) {
  // No configuration: no family is known, and none is needed.
  ASSERT_THAT(storage_.RemoveFile("/w/hf/config.json"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto view, OpenView(storage_, Viewing("/w/hf")));
  EXPECT_EQ(view->tensors().size(), ReadTensors(storage_.Files("/w/hf")).size());
  EXPECT_THAT(view->metadata(), ElementsAre(Pair("format", "pt")));
  const std::vector<std::size_t> order = view->InFileOrder();
  EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), view->tensors().size());
}

TEST_F(ViewOfQwen, NamesTheNearestTensorAndTheRegion) {
  ASSERT_OK_AND_ASSIGN(const auto view, OpenView(storage_, Viewing("/w/megatron")));
  const auto missing = view->Find("model.embed_token.weight");
  EXPECT_THAT(missing, IsError(ErrorCode::kUsage, HasSubstr("did you mean `model.embed_tokens.weight`?")));
  ASSERT_OK_AND_ASSIGN(const std::size_t index, view->Find("model.norm.weight"));
  std::string out(4, ' ');
  const auto memory = std::as_writable_bytes(std::span(out));
  EXPECT_THAT(view->Read(index, {{15}, {2}}, memory), IsError(ErrorCode::kUsage, HasSubstr("[15:17]")));
  EXPECT_THAT(view->Read(index, {{0, 0}, {1, 1}}, memory), IsError(ErrorCode::kUsage, HasSubstr("a region of [16]")));
  EXPECT_THAT(view->Read(index, {{0}, {9}}, memory), IsError(ErrorCode::kUsage, HasSubstr("4 bytes")));
}

}  // namespace
}  // namespace crossdock::convert
