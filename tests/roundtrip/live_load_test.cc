// SPDX-License-Identifier: Apache-2.0
// Families x layouts: what every rank reads into its memory is what its file of the megatron-legacy tree holds that a conversion with
// the same layout writes, tensor for tensor and byte for byte; and no rank reads more than its own.
#include "convert/live_load.h"

#include <cstring>
#include <numeric>
#include <set>

#include "convert/job.h"
#include "convert/live_names.h"
#include "convert/source.h"
#include "convert/target.h"
#include "dialects/mcore/legacy_names.h"
#include "formats/mp_rank/mp_rank.h"
#include "io/counting_storage.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "roundtrip/tiny_state.h"

namespace crossdock::convert {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Cut {
  const char* label;
  void (*apply)(LayoutOptions*);
  bool experts = false;  ///< only of families that have them
};
constexpr Cut kCuts[] = {
    {"one", [](LayoutOptions*) {}},
    {"tp4", [](LayoutOptions* l) { l->tp = 4; }},
    {"tp2_pp2", [](LayoutOptions* l) { l->tp = 2; l->pp = 2; }},
    {"pp2_uneven", [](LayoutOptions* l) { l->pp = 2; l->last_stage_layers = 1; }},
    {"tp2_pp2_vpp2", [](LayoutOptions* l) { l->tp = 2; l->pp = 2; l->vpp = 2; }},
    {"pp2_string", [](LayoutOptions* l) { l->pp = 2; l->pipeline_layout = "Et||t*2|tL"; }},
    {"ep2", [](LayoutOptions* l) { l->ep = 2; }, true},
    {"tp2_pp2_ep2", [](LayoutOptions* l) { l->tp = 2; l->pp = 2; l->ep = 2; }, true},
    {"tp4_ep2_etp2", [](LayoutOptions* l) { l->tp = 4; l->ep = 2; l->etp = 2; }, true},
    {"tp2_ep4_etp1", [](LayoutOptions* l) { l->tp = 2; l->ep = 4; l->etp = 1; }, true},
};
constexpr TinyFamily kKinds[] = {{"qwen2_tied", "qwen2", true}, {"qwen3", "qwen3", false}, {"qwen3_moe", "qwen3_moe", false}, {"mixtral", "mixtral", false}};

struct Form {
  const char* label;
  bool local = false;
  bool grouped = true;
};
constexpr Form kForms[] = {{"grouped"}, {"one_by_one", false, false}, {"local", true, false}};

ConvertOptions ToLegacyTree(const LayoutOptions& layout, const Form& form) {
  ConvertOptions options;
  options.source = "/w/source";
  options.target = "/w/tree";
  options.to = "megatron-legacy";
  options.layout = layout;
  options.threads = 1;
  options.no_optim = true;
  options.set_args = {{"transformer_impl", form.local ? "local" : "transformer_engine"}};
  if (!form.grouped) options.set_args.emplace_back("moe_grouped_gemm", "False");
  return options;
}

LoadOptions ToRank(const LayoutOptions& layout, const RankPlace& place, const Form& form = kForms[0]) {
  LoadOptions options;
  options.path = "/w/source";
  options.layout = layout;
  options.place = place;
  options.local_layers = form.local;
  options.grouped_experts = form.grouped;
  return options;
}

/// A rank's memory: a buffer a tensor, filled with what no tensor holds.
struct Memory {
  explicit Memory(const LoadPlan& plan) {
    bytes.reserve(plan.tensors().size());
    for (const LiveTensor& tensor : plan.tensors()) {
      bytes.emplace_back(static_cast<std::size_t>(tensor.bytes), '\xEE');
      buffers.push_back({tensor.name, bytes.back().data(), tensor.bytes, tensor.dtype, tensor.shape});
    }
  }
  std::vector<std::string> bytes;
  std::vector<LiveBuffer> buffers;
};

using Held = std::map<std::string, std::string>;  ///< dtype, shape and bytes by a rank's name

/// What each directory of the tree holds.
Result<std::map<std::string, Held>> ReadTree(io::Storage& storage, const LayoutOptions& layout, const Form& form) {
  SourceRequest request;
  request.path = "/w/source";
  CROSSDOCK_RETURN_IF_ERROR(io::RemoveTree(storage, "/w/tree"));
  request.no_optim = true;
  CROSSDOCK_ASSIGN_OR_RETURN(const Source source, OpenAndRead(storage, request));
  const ConvertOptions options = ToLegacyTree(layout, form);
  CROSSDOCK_ASSIGN_OR_RETURN(Target target, PrepareTarget(source, options));
  const std::string unit = target.unit;
  CROSSDOCK_RETURN_IF_ERROR(RunJob(source, &target, storage, options, {}).has_value() ? OkStatus() : Status(MakeError(ErrorCode::kIo, "the tree was not written")));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto reader, formats::mp_rank::OpenMpRank(storage, unit));
  std::map<std::string, Held> tree;
  const Catalog& catalog = reader->catalog();
  for (const Entry& entry : catalog.entries) {
    const std::optional<std::string> name = LiveName(entry.name);
    if (!name) continue;
    std::string bytes;
    for (const Chunk& chunk : entry.chunks) {
      CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(io::JoinPath(catalog.root, catalog.files[static_cast<std::size_t>(chunk.file)].path)));
      std::string part(static_cast<std::size_t>(chunk.bytes.length), '\0');
      CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(chunk.bytes.offset, std::as_writable_bytes(std::span(part))));
      bytes += part;
    }
    tree[io::ParentPath(entry.name.substr(0, entry.name.find('#')))][*name] = std::string(DTypeName(entry.dtype)) + ToString(entry.shape) + bytes;
  }
  return tree;
}

int WorldOf(const LayoutOptions& layout) { return std::lcm(layout.tp, layout.ep * (layout.etp > 0 ? layout.etp : layout.tp)) * layout.pp; }

/// A rank reads what its directory holds; `dirs` collects the directories that were met.
void ExpectRankReads(io::MemoryStorage& storage, const LayoutOptions& layout, const RankPlace& place, const Form& form, const std::map<std::string, Held>& tree, std::set<std::string>* dirs) {
  io::CountingStorage counted(storage);
  ASSERT_OK_AND_ASSIGN(const auto plan, MakeLoadPlan(counted, ToRank(layout, place, form)));
  Memory memory(*plan);
  ReadIntoOptions how;
  how.threads = 1;
  how.memory = 8 << 20;
  counted.Reset();
  ASSERT_OK_AND_ASSIGN(const LoadReport report, plan->ReadInto(memory.buffers, how));
  const std::int64_t asked = std::accumulate(memory.bytes.begin(), memory.bytes.end(), std::int64_t{0}, [](std::int64_t sum, const std::string& b) { return sum + static_cast<std::int64_t>(b.size()); });
  EXPECT_EQ(report.bytes_written, asked);
  EXPECT_LE(counted.Of(io::Call::kRead).bytes, asked + asked / 50) << "more than 1.02 of what the rank holds";
  EXPECT_EQ(report.bytes_read, counted.Of(io::Call::kRead).bytes);
  EXPECT_EQ(counted.Of(io::Call::kWrite).calls + counted.Of(io::Call::kCreate).calls, 0);
  EXPECT_LE(report.peak_buffer_bytes, how.memory);
  const std::string dir = dialects::mcore::RankDirName(place.tensor, place.stage, layout.pp, place.expert, layout.ep);
  ASSERT_TRUE(tree.contains(dir)) << dir;
  dirs->insert(dir);
  const Held& expected = tree.at(dir);
  EXPECT_EQ(memory.buffers.size(), expected.size());
  for (std::size_t i = 0; i < memory.buffers.size(); ++i) {
    const LiveBuffer& buffer = memory.buffers[i];
    const auto found = expected.find(buffer.name);
    if (found == expected.end()) {
      ADD_FAILURE() << buffer.name << " is not in the tree";
      continue;
    }
    Shape shape;
    for (const std::int64_t size : buffer.shape) shape.push_back(size);
    EXPECT_TRUE(buffer.dtype + ToString(shape) + memory.bytes[i] == found->second) << buffer.name << " differs";
  }
}

class LiveLoadMatrix : public ::testing::TestWithParam<std::tuple<TinyFamily, Cut>> {};

TEST_P(LiveLoadMatrix, EveryRankHoldsItsFile) {
  const auto& [family, cut] = GetParam();
  const bool experts = std::string_view(family.family) == "qwen3_moe" || std::string_view(family.family) == "mixtral";
  if (cut.experts && !experts) return;  // a layout of dense layers is tried without
  io::MemoryStorage storage;
  ASSERT_THAT(WriteTinyState(storage, "/w/source", family), IsOk());
  LayoutOptions layout;
  layout.given = true;
  cut.apply(&layout);
  for (const Form& form : kForms) {
    if (!experts && !form.local && !form.grouped) continue;
    SCOPED_TRACE(form.label);
    ASSERT_OK_AND_ASSIGN(const auto tree, ReadTree(storage, layout, form));
    std::set<std::string> dirs;
    for (int rank = 0; rank < WorldOf(layout); ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      ASSERT_OK_AND_ASSIGN(const RankPlace place, PlaceOfRank(layout, {rank}));
      ExpectRankReads(storage, layout, place, form, tree, &dirs);
    }
    EXPECT_EQ(dirs.size(), tree.size()) << "every directory is some rank's";
  }
}

INSTANTIATE_TEST_SUITE_P(All, LiveLoadMatrix, ::testing::Combine(::testing::ValuesIn(kKinds), ::testing::ValuesIn(kCuts)), [](const auto& cell) {
  return std::string(std::get<0>(cell.param).label) + "_" + std::get<1>(cell.param).label;
});

class LiveLoad : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(WriteTinyState(storage_, "/w/source", kKinds[1]), IsOk());
    layout_.given = true;
    layout_.tp = 2;
    ASSERT_OK_AND_ASSIGN(plan_, MakeLoadPlan(storage_, ToRank(layout_, {})));
  }
  Result<LoadReport> Read(const std::vector<LiveBuffer>& buffers, bool strict = true, bool cast = false) {
    ReadIntoOptions how;
    how.threads = 1;
    how.strict = strict;
    how.cast = cast;
    return plan_->ReadInto(buffers, how);
  }
  io::MemoryStorage storage_;
  LayoutOptions layout_;
  std::unique_ptr<LoadPlan> plan_;
};

TEST_F(LiveLoad, NamesAllDisagreementsTogetherAndTouchesNothing) {
  Memory memory(*plan_);
  std::vector<LiveBuffer> buffers = memory.buffers;
  const std::string missing = buffers[0].name, shaped = buffers[1].name, typed = buffers[2].name, small = buffers[4].name;
  buffers[1].shape[0] += 1;
  buffers[2].dtype = "F16";
  buffers[3].name = "decoder.layers.9.unknown";
  buffers[4].bytes -= 2;
  buffers.erase(buffers.begin());
  EXPECT_THAT(Read(buffers), IsError(ErrorCode::kUsage, AllOf(HasSubstr("missing: `" + missing + "`"), HasSubstr("`" + shaped + "` ["), HasSubstr("] is expected"),
                                                              HasSubstr("`" + typed + "` F16 where BF16 is expected"),
                                                              HasSubstr("not of this rank: `decoder.layers.9.unknown`"), HasSubstr("of another size: `" + small))));
  for (const std::string& bytes : memory.bytes) EXPECT_EQ(bytes, std::string(bytes.size(), '\xEE'));
  EXPECT_THAT(Read({memory.buffers[0], memory.buffers[0]}, false), IsError(ErrorCode::kUsage, HasSubstr("given twice")));
}

TEST_F(LiveLoad, ReadsAPartWhereThatIsMeant) {
  Memory memory(*plan_);
  ASSERT_OK_AND_ASSIGN(const LoadReport report, Read({memory.buffers[1]}, false));
  EXPECT_EQ(report.tensors, 1);
  EXPECT_NE(memory.bytes[1], std::string(memory.bytes[1].size(), '\xEE'));
  EXPECT_EQ(memory.bytes[0], std::string(memory.bytes[0].size(), '\xEE'));
}

TEST_F(LiveLoad, CastsOnlyWhenAsked) {
  Memory memory(*plan_);
  ASSERT_THAT(Read(memory.buffers), IsOk());
  std::vector<std::vector<float>> wide;
  std::vector<LiveBuffer> buffers = memory.buffers;
  for (LiveBuffer& buffer : buffers) {
    wide.emplace_back(static_cast<std::size_t>(buffer.bytes) / 2);
    buffer = {buffer.name, wide.back().data(), buffer.bytes * 2, "F32", buffer.shape};
  }
  EXPECT_THAT(Read(buffers), IsError(ErrorCode::kUsage, HasSubstr("F32 where BF16 is expected")));
  ASSERT_THAT(Read(buffers, true, true), IsOk());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (std::size_t at = 0; at < wide[i].size(); ++at) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &wide[i][at], 4);
      std::uint16_t narrow = 0;
      std::memcpy(&narrow, memory.bytes[i].data() + 2 * at, 2);
      ASSERT_EQ(bits, std::uint32_t{narrow} << 16U) << buffers[i].name << " " << at;
    }
  }
}

TEST_F(LiveLoad, TellsThatTheSourceChanged) {
  Memory memory(*plan_);
  ASSERT_OK_AND_ASSIGN(std::string content, io::ReadSmallFile(storage_, "/w/source/model.safetensors"));
  ASSERT_THAT(storage_.RemoveFile("/w/source/model.safetensors"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage_, "/w/source/model.safetensors", content), IsOk());
  EXPECT_THAT(Read(memory.buffers), IsError(ErrorCode::kCorrupt, HasSubstr("changed while it was read")));
}

TEST_F(LiveLoad, StopsWhenAsked) {
  Memory memory(*plan_);
  std::stop_source stop;
  stop.request_stop();
  Hooks hooks;
  hooks.stop = stop.get_token();
  EXPECT_THAT(plan_->ReadInto(memory.buffers, {}, hooks), IsError(ErrorCode::kCancelled, AllOf(HasSubstr("read into them again"), Not(HasSubstr("--resume")))));
}

TEST_F(LiveLoad, RefusesRanksThatAreNone) {
  EXPECT_THAT(MakeLoadPlan(storage_, ToRank(layout_, {2, 0, 0, 0})), IsError(ErrorCode::kUsage, HasSubstr("no such tensor rank")));
  EXPECT_THAT(MakeLoadPlan(storage_, ToRank(layout_, {0, 1, 0, 0})), IsError(ErrorCode::kUsage, HasSubstr("no such stage rank")));
  EXPECT_THAT(MakeLoadPlan(storage_, ToRank(layout_, {0, 0, -1, 0})), IsError(ErrorCode::kUsage, HasSubstr("no such expert rank")));
}

/// Directories cannot tell these ranks apart, memory can: the parts of an expert are those of the layout with as many tensor ranks.
TEST(LiveLoadExperts, AreDividedByRanksThatDenseLayersDoNotHave) {
  io::MemoryStorage storage;
  ASSERT_THAT(WriteTinyState(storage, "/w/source", kKinds[2]), IsOk());
  LayoutOptions two, wide;
  two.given = wide.given = true;
  two.tp = 2;
  wide.etp = 2;
  wide.ep = 2;
  ASSERT_OK_AND_ASSIGN(const auto expected, MakeLoadPlan(storage, ToRank(two, {1, 0, 0, 1})));
  ASSERT_OK_AND_ASSIGN(const auto plan, MakeLoadPlan(storage, ToRank(wide, {0, 0, 1, 1})));
  Memory whole(*expected), part(*plan);
  ASSERT_THAT(expected->ReadInto(whole.buffers, {}), IsOk());
  ASSERT_THAT(plan->ReadInto(part.buffers, {}), IsOk());
  std::map<std::string, const std::string*> of;
  for (std::size_t i = 0; i < whole.buffers.size(); ++i) of[whole.buffers[i].name] = &whole.bytes[i];
  int experts = 0;
  for (std::size_t i = 0; i < part.buffers.size(); ++i) {
    std::string name = part.buffers[i].name;
    if (name.find("experts") == std::string::npos) continue;
    name.back() = static_cast<char>(name.back() + 2);  // the second rank's first expert is the third of all
    ASSERT_TRUE(of.contains(name)) << name;
    EXPECT_TRUE(part.bytes[i] == *of.at(name)) << name;
    ++experts;
  }
  EXPECT_EQ(experts, 4 * 2 * 2);  // layers, experts, matrices
}

}  // namespace
}  // namespace crossdock::convert
