// SPDX-License-Identifier: Apache-2.0
// Families x formats x layouts: full state -> format -> full state, every byte of weights and Adam state compared; and
// from each layout to the next within a format (from copy to copy in one without layouts). A format joins with a line in kFormats.
#include <array>

#include "convert/job.h"
#include "convert/source.h"
#include "convert/target.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "roundtrip/tiny_state.h"

namespace crossdock::convert {
namespace {

struct Format {
  const char* label;
  const char* name;
  bool layouts;               ///< written for a parallel layout
  bool masters = true;        ///< holds master weights beside parameters and moments
  std::array<std::pair<const char*, const char*>, 2> set = {};   ///< --set NAME=VALUE; null: none
};
constexpr Format kFormats[] = {
    {"full_state", "full-state", false},
    {"megatron", "megatron", true},
    {"legacy", "megatron-legacy", true},
    {"legacy_distributed", "megatron-legacy", true, true, {{{"use_distributed_optimizer", "True"}}}},
    {"dcp", "dcp", false, false, {{{"lr", "0.001"}, {"weight_decay", "0.1"}}}},
};

constexpr TinyFamily kFamilies[] = {
    {"llama", "llama", false}, {"mistral", "mistral", false}, {"qwen2", "qwen2", false}, {"qwen2_tied", "qwen2", true},
    {"qwen3", "qwen3", false}, {"qwen3_tied", "qwen3", true},
};

struct Division {
  const char* label;
  void (*apply)(LayoutOptions*);
  int chunks;
};
constexpr Division kDivisions[] = {
    {"pp1", [](LayoutOptions*) {}, 1},
    {"pp2_uneven", [](LayoutOptions* l) { l->pp = 2; l->first_stage_layers = 3; }, 2},
    {"pp2_vpp2", [](LayoutOptions* l) { l->pp = 2; l->vpp = 2; }, 4},
    {"pp2_string", [](LayoutOptions* l) { l->pp = 2; l->pipeline_layout = "Et||t*2|tL"; }, 4},
};

LayoutOptions LayoutFor(const Format& format, int tp, const Division& division) {
  LayoutOptions layout;
  if (!format.layouts) return layout;
  layout.given = true;
  layout.tp = tp;
  division.apply(&layout);
  return layout;
}

/// One conversion inside `storage`; returns what the target said of its stages.
Result<layout::StageMap> ConvertIn(io::MemoryStorage& storage, const std::string& from, const std::string& to, const Format& format, const LayoutOptions& layout) {
  ConvertOptions options;
  options.source = from;
  options.target = to;
  options.to = format.name;
  for (const auto& [name, value] : format.set) {
    if (name != nullptr) options.set_args.emplace_back(name, value);
  }
  options.layout = layout;
  options.threads = 1;
  SourceRequest request;
  request.path = from;
  CROSSDOCK_ASSIGN_OR_RETURN(const Source source, OpenAndRead(storage, request));
  CROSSDOCK_ASSIGN_OR_RETURN(Target target, PrepareTarget(source, options));
  CROSSDOCK_ASSIGN_OR_RETURN(const JobResult result, RunJob(source, &target, storage, options, {}));
  if (!result.equal) return MakeError(ErrorCode::kCorrupt, "the job found a difference");
  return target.state.stages;
}

void ExpectSame(const std::map<std::string, std::string>& expected, const std::map<std::string, std::string>& found) {
  ASSERT_FALSE(expected.empty());
  for (const auto& [name, bytes] : expected) {
    const auto it = found.find(name);
    if (it == found.end()) {
      ADD_FAILURE() << name << " is not there";
    } else {
      EXPECT_TRUE(it->second == bytes) << name << " differs";
    }
  }
  EXPECT_EQ(found.size(), expected.size());
}

class LayoutMatrix : public ::testing::TestWithParam<std::tuple<Format, TinyFamily>> {
 protected:
  void SetUp() override {
    ASSERT_THAT(WriteTinyState(storage_, "/w/source", std::get<1>(GetParam())), IsOk());
    expected_ = ReadTensors(storage_.Files("/w/source"));
    if (std::get<0>(GetParam()).masters) return;
    std::erase_if(expected_, [](const auto& tensor) { return tensor.first.starts_with("optim/master/"); });
  }
  io::MemoryStorage storage_;
  std::map<std::string, std::string> expected_;
};

TEST_P(LayoutMatrix, EveryLayoutComesBack) {
  const Format format = std::get<0>(GetParam());
  for (const int tp : {1, 2, 4}) {
    for (const Division& division : kDivisions) {
      if (!format.layouts && (tp > 1 || division.chunks > 1)) continue;
      SCOPED_TRACE(std::string(division.label) + " tp" + std::to_string(tp));
      const std::string place = "/w/" + std::string(division.label) + std::to_string(tp);
      ASSERT_OK_AND_ASSIGN(const layout::StageMap stages, ConvertIn(storage_, "/w/source", place, format, LayoutFor(format, tp, division)));
      EXPECT_EQ(static_cast<int>(stages.chunks.size()), format.layouts ? division.chunks : 0);
      ASSERT_THAT(ConvertIn(storage_, place, place + "-back", kFormats[0], {}), IsOk());
      ExpectSame(expected_, ReadTensors(storage_.Files(place + "-back")));
    }
  }
}

TEST_P(LayoutMatrix, LayoutsFollowEachOther) {
  const Format format = std::get<0>(GetParam());
  std::string before = "/w/source";
  int number = 0;
  for (const auto& [tp, division] : {std::pair{2, 2}, {1, 1}, {4, 3}, {2, 0}, {1, 3}, {4, 2}, {1, 0}}) {
    const std::string place = "/w/step" + std::to_string(number++);
    ASSERT_THAT(ConvertIn(storage_, before, place, format, LayoutFor(format, tp, kDivisions[division])), IsOk()) << place;
    before = place;
  }
  ASSERT_THAT(ConvertIn(storage_, before, "/w/back", kFormats[0], {}), IsOk());
  ExpectSame(expected_, ReadTensors(storage_.Files("/w/back")));
}

INSTANTIATE_TEST_SUITE_P(All, LayoutMatrix, ::testing::Combine(::testing::ValuesIn(kFormats), ::testing::ValuesIn(kFamilies)), [](const auto& cell) {
  return std::string(std::get<0>(cell.param).label) + "_" + std::get<1>(cell.param).label;
});

}  // namespace
}  // namespace crossdock::convert
