// SPDX-License-Identifier: Apache-2.0
#include "layout/stage_map.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "result_matchers.h"
#include "unit/layout/golden_lines.h"

namespace crossdock::layout {
namespace {

using ::testing::HasSubstr;

/// Layers of each chunk; checks what holds of every map.
std::vector<std::int64_t> Counts(const Result<StageMap>& map) {
  if (!map) return {};
  EXPECT_EQ(map->chunks.size(), static_cast<std::size_t>(map->pp) * static_cast<std::size_t>(map->vpp));
  std::int64_t next = 0;
  for (std::size_t i = 0; i < map->chunks.size(); ++i) {
    const StageMap::ModelChunk& chunk = map->chunks[i];
    EXPECT_EQ(chunk.first, next);
    EXPECT_EQ(chunk.index * map->pp + chunk.stage, static_cast<int>(i));
    EXPECT_EQ(map->At(chunk.stage, chunk.index), chunk);
    EXPECT_EQ(chunk.embedding, i == 0);
    EXPECT_EQ(chunk.head, i + 1 == map->chunks.size());
    for (std::int64_t layer = chunk.first; layer < chunk.first + chunk.count; ++layer) EXPECT_EQ(map->ChunkOf(layer), chunk) << "layer " << layer;
    next += chunk.count;
  }
  return map->Counts();
}

ParallelLayout Pp(int pp) {
  ParallelLayout layout;
  layout.pp = pp;
  return layout;
}

TEST(StageMapTest, EvenStages) {
  EXPECT_EQ(Counts(MakeStageMap(Pp(1), 4)), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(Counts(MakeStageMap(Pp(4), 8)), (std::vector<std::int64_t>{2, 2, 2, 2}));
}

TEST(StageMapTest, FirstAndLastStageDiffer) {
  ParallelLayout layout = Pp(4);
  layout.first_stage_layers = 1;
  layout.last_stage_layers = 3;
  EXPECT_EQ(Counts(MakeStageMap(layout, 8)), (std::vector<std::int64_t>{1, 2, 2, 3}));
  layout.last_stage_layers.reset();
  EXPECT_EQ(Counts(MakeStageMap(layout, 7)), (std::vector<std::int64_t>{1, 2, 2, 2}));
  layout.last_stage_layers = 3;
  layout.pp = 2;
  EXPECT_EQ(Counts(MakeStageMap(layout, 4)), (std::vector<std::int64_t>{1, 3}));
}

TEST(StageMapTest, ExplicitListHoldsEveryLayer) {
  ParallelLayout layout = Pp(3);
  layout.pipeline_layers = {2, 1, 1};
  const Result<StageMap> map = MakeStageMap(layout, 4);
  EXPECT_EQ(Counts(map), (std::vector<std::int64_t>{2, 1, 1}));
  EXPECT_EQ(map->StageOf(0), 0);
  EXPECT_EQ(map->StageOf(1), 0);
  EXPECT_EQ(map->StageOf(2), 1);
  EXPECT_EQ(map->StageOf(3), 2);
}

TEST(StageMapTest, LayersThatDoNotDivideAreRefusedWithTheWayOut) {
  const Result<StageMap> map = MakeStageMap(Pp(3), 4);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, ErrorCode::kUsage);
  EXPECT_EQ(map.error().message, "4 layers do not divide by pp 3");
  EXPECT_NE(map.error().hint.find("--pipeline-layers 2,1,1"), std::string::npos) << map.error().hint;
}

TEST(StageMapTest, ImpossibleListsAreRefused) {
  ParallelLayout layout = Pp(3);
  layout.pipeline_layers = {2, 1};
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pipeline_layers = {2, 1, 2};
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pipeline_layers = {3, 1, 0};
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pipeline_layers = {INT64_MAX, INT64_MAX, 2};
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pipeline_layers = {2, 1, 1};
  layout.first_stage_layers = 2;
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
}

TEST(StageMapTest, ImpossibleEndsAreRefused) {
  ParallelLayout layout = Pp(3);
  layout.first_stage_layers = 1;
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());  // 3 layers for 2 stages
  layout.pp = 1;
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  layout.pp = 4;
  layout.first_stage_layers = 3;
  EXPECT_FALSE(MakeStageMap(layout, 4).has_value());
  EXPECT_FALSE(MakeStageMap(Pp(5), 4).has_value());
  EXPECT_FALSE(MakeStageMap(Pp(0), 4).has_value());
}

// ---- virtual stages ----

TEST(StageMapTest, VirtualStagesTakeTurns) {
  ParallelLayout layout = Pp(2);
  layout.vpp = 2;
  const Result<StageMap> map = MakeStageMap(layout, 8);
  EXPECT_EQ(Counts(map), (std::vector<std::int64_t>{2, 2, 2, 2}));
  ASSERT_THAT(map, IsOk());
  EXPECT_EQ(map->At(0, 1), (StageMap::ModelChunk{0, 1, 4, 2, false, false}));
  EXPECT_EQ(map->StageOf(3), 1);
  EXPECT_EQ(map->StageOf(5), 0);
  EXPECT_EQ(map->HeadStage(), 1);
}

// User case B54.
TEST(StageMapTest, TheLastStageDiffersUnderVirtualStages) {
  ParallelLayout layout = Pp(2);
  layout.vpp = 2;
  layout.last_stage_layers = 4;
  EXPECT_EQ(Counts(MakeStageMap(layout, 10)), (std::vector<std::int64_t>{3, 2, 3, 2}));
}

TEST(StageMapTest, LayersOfAVirtualStageAreAnotherWayToSayTheirNumber) {
  ParallelLayout layout = Pp(2);
  layout.layers_per_virtual_stage = 2;
  EXPECT_EQ(Counts(MakeStageMap(layout, 12)), (std::vector<std::int64_t>{2, 2, 2, 2, 2, 2}));
  EXPECT_THAT(MakeStageMap(layout, 10), IsError(ErrorCode::kUsage, HasSubstr("a divisor of 5")));
  layout.vpp = 2;
  EXPECT_THAT(MakeStageMap(layout, 12), IsError(ErrorCode::kUsage, HasSubstr("in two ways")));
  layout.vpp = 1;
  layout.last_stage_layers = 4;
  EXPECT_THAT(MakeStageMap(layout, 12), IsError(ErrorCode::kUsage, HasSubstr("needs stages of equal size")));
}

TEST(StageMapTest, ExplicitListIsDealtToVirtualStages) {
  ParallelLayout layout = Pp(2);
  layout.vpp = 2;
  layout.pipeline_layers = {6, 4};
  EXPECT_EQ(Counts(MakeStageMap(layout, 10)), (std::vector<std::int64_t>{3, 2, 3, 2}));
  layout.pipeline_layers = {5, 5};
  EXPECT_THAT(MakeStageMap(layout, 10), IsError(ErrorCode::kUsage, HasSubstr("5 = 2 x 2 + 1")));
}

TEST(StageMapTest, VirtualStagesThatDoNotDivideAreRefusedWithTheWayOut) {
  ParallelLayout layout = Pp(2);
  layout.vpp = 2;
  EXPECT_THAT(MakeStageMap(layout, 10), IsError(ErrorCode::kUsage, HasSubstr("--pipeline-layout 'Et*3|t*3|t*2|t*2L'")));
  layout.vpp = 3;
  layout.first_stage_layers = 4;
  EXPECT_THAT(MakeStageMap(layout, 10), IsError(ErrorCode::kUsage, HasSubstr("4 = 3 x 1 + 1")));
  layout = Pp(1);
  layout.vpp = 2;
  EXPECT_THAT(MakeStageMap(layout, 4), IsError(ErrorCode::kUsage, HasSubstr("at least two pipeline stages")));
}

TEST(StageMapTest, BothEndsOfTwoStagesWithVirtualStagesAreRefused) {
  ParallelLayout layout = Pp(2);
  layout.vpp = 2;
  layout.first_stage_layers = 6;
  layout.last_stage_layers = 4;
  EXPECT_THAT(MakeStageMap(layout, 10), IsError(ErrorCode::kUsage, HasSubstr("alone")));
}

// ---- the ways to divide exclude each other ----

TEST(StageMapTest, TwoWaysAtOnceAreRefused) {
  for (int way = 0; way < 5; ++way) {
    ParallelLayout layout = Pp(2);
    layout.pipeline_layout = "Ett|ttL";
    ASSERT_THAT(MakeStageMap(layout, 4), IsOk());
    if (way == 0) layout.pipeline_layers = {2, 2};
    if (way == 1) layout.first_stage_layers = 2;
    if (way == 2) layout.last_stage_layers = 2;
    if (way == 3) layout.account_for_embedding = true;
    if (way == 4) layout.layers_per_virtual_stage = 2;
    EXPECT_THAT(MakeStageMap(layout, 4), IsError(ErrorCode::kUsage, HasSubstr("in two ways"))) << way;
  }
  ParallelLayout layout = Pp(2);
  layout.last_stage_layers = 2;
  layout.account_for_loss = true;
  EXPECT_THAT(MakeStageMap(layout, 4), IsError(ErrorCode::kUsage, HasSubstr("--account-for-loss")));
  layout = Pp(2);
  layout.pipeline_layout = "Et|t|t|tL";
  layout.vpp = 2;
  EXPECT_EQ(Counts(MakeStageMap(layout, 4)), (std::vector<std::int64_t>{1, 1, 1, 1}));
  layout.vpp = 3;
  EXPECT_THAT(MakeStageMap(layout, 4), IsError(ErrorCode::kUsage, HasSubstr("another number of virtual stages than --vpp")));
}

TEST(StageMapTest, MultiTokenPredictionTakesNoDecoderLayer) {
  ParallelLayout layout = Pp(4);
  for (const char* text : {"Et*3|tt|m|L", "Et*3|t|tm|L", "Et*3|tt||mmL"}) {
    layout.pipeline_layout = text;
    ASSERT_OK_AND_ASSIGN(const StageMap stages, MakeStageMap(layout, 5));
    EXPECT_EQ(stages.StageOf(2), 0) << text;
  }
  for (const auto& [text, why] : {std::pair("Et*3|m|tt|L", "before them"), std::pair("Et*3|tm|mt|L", "before them"), std::pair("Et*3|tt|m|mL", "in one cell"),
                                  std::pair("Et|t|t|m|t|t||L", "last virtual stage")}) {
    layout.pipeline_layout = text;
    layout.vpp = 1;
    const Result<StageMap> stages = MakeStageMap(layout, 5);
    ASSERT_FALSE(stages) << text;
    EXPECT_THAT(stages.error().expected, HasSubstr(why)) << text;
  }
}

TEST(StageMapTest, RefusalsOfCountedEndsShowTheSum) {
  ParallelLayout layout = Pp(4);
  layout.account_for_embedding = layout.account_for_loss = true;
  EXPECT_EQ(Counts(MakeStageMap(layout, 6)), (std::vector<std::int64_t>{1, 2, 2, 1}));
  EXPECT_THAT(MakeStageMap(layout, 8), IsError(ErrorCode::kUsage, HasSubstr("8 layers + 1 for the embedding + 1 for the loss do not divide by pp 4")));
}

// ---- Megatron-Core's own answers ----

std::string Row(const std::vector<std::int64_t>& counts) {
  std::ostringstream out;
  for (const std::int64_t count : counts) out << ' ' << count;
  return out.str();
}

/// Expected layers by the words before ` =`.
std::map<std::string, std::string> Answers(const std::string& file) {
  std::map<std::string, std::string> answers;
  for (const std::string& line : GoldenLines(file)) {
    const std::size_t at = line.find(" =");
    if (at != std::string::npos) answers[line.substr(0, at)] = line.substr(at + 2);
  }
  return answers;
}

std::string Word(const std::optional<std::int64_t>& value) { return value ? std::to_string(*value) : "-"; }

/// Compares one case; a case that Megatron does not answer must be refused.
void Check(const ParallelLayout& layout, std::int64_t layers, const std::map<std::string, std::string>& answers, std::size_t* met) {
  const std::string name = std::to_string(layers) + ' ' + std::to_string(layout.pp) + ' ' + std::to_string(layout.vpp) + ' ' + Word(layout.first_stage_layers) +
                           ' ' + Word(layout.last_stage_layers) + (layout.account_for_embedding ? " 1" : " 0") + (layout.account_for_loss ? " 1" : " 0");
  const Result<StageMap> map = MakeStageMap(layout, layers);
  const auto answer = answers.find(name);
  if (answer == answers.end()) {
    EXPECT_THAT(map, IsError(ErrorCode::kUsage, HasSubstr(""))) << name;
    return;
  }
  ++*met;
  ASSERT_THAT(map, IsOk()) << name;
  EXPECT_EQ(Row(Counts(map)), answer->second) << name;
}

TEST(StageMapGoldenTest, EvenStagesAreMegatrons) {
  const std::map<std::string, std::string> answers = Answers("even.txt");
  ASSERT_GT(answers.size(), 200U);
  std::size_t met = 0;
  for (std::int64_t layers = 1; layers <= 16; ++layers) {
    for (int pp = 1; pp <= 6; ++pp) {
      for (int vpp = 1; vpp <= 4; ++vpp) {
        for (const int account : {0, 1, 2, 3}) {
          ParallelLayout layout = Pp(pp);
          layout.vpp = vpp;
          layout.account_for_embedding = (account & 1) != 0;
          layout.account_for_loss = (account & 2) != 0;
          Check(layout, layers, answers, &met);
        }
      }
    }
  }
  EXPECT_EQ(met, answers.size());
}

TEST(StageMapGoldenTest, UnevenStagesAreMegatrons) {
  const std::map<std::string, std::string> answers = Answers("uneven.txt");
  ASSERT_GT(answers.size(), 600U);
  std::size_t met = 0;
  const std::vector<std::optional<std::int64_t>> ends = {std::nullopt, 0, 1, 2, 3, 4, 6};
  for (std::int64_t layers = 1; layers <= 14; ++layers) {
    for (int pp = 1; pp <= 5; ++pp) {
      for (int vpp = 1; vpp <= 3; ++vpp) {
        for (const auto& first : ends) {
          for (const auto& last : ends) {
            if ((!first && !last) || (pp == 1 && first && last)) continue;
            for (const bool embedding : {false, true}) {
              ParallelLayout layout = Pp(pp);
              layout.vpp = vpp;
              layout.first_stage_layers = first;
              layout.last_stage_layers = last;
              layout.account_for_embedding = embedding;
              Check(layout, layers, answers, &met);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(met, answers.size());
}

TEST(StageMapGoldenTest, LayoutStringsAreMegatrons) {
  std::size_t possible = 0;
  std::size_t refused = 0;
  for (const std::string& line : GoldenLines("strings.txt")) {
    const std::size_t arrow = line.rfind(" => ");
    ASSERT_NE(arrow, std::string::npos) << line;
    std::istringstream head(line.substr(0, arrow));
    std::int64_t layers = 0;
    ParallelLayout layout;
    head >> layers >> layout.pp;
    head.get();
    std::getline(head, layout.pipeline_layout);
    if (layout.pipeline_layout.empty()) continue;  // no layout is asked for
    for (std::size_t at = layout.pipeline_layout.find("\\n"); at != std::string::npos; at = layout.pipeline_layout.find("\\n")) layout.pipeline_layout.replace(at, 2, "\n");
    const std::string answer = line.substr(arrow + 3);
    const Result<StageMap> map = MakeStageMap(layout, layers);
    // Megatron was asked for models without layers of multi-token prediction; here they are not this map's business.
    if (answer == " !" && map && layout.pipeline_layout.find('m') != std::string::npos) continue;
    if (answer == " !") {
      EXPECT_THAT(map, IsError(ErrorCode::kUsage, HasSubstr(""))) << line;
      ++refused;
    } else {
      ASSERT_THAT(map, IsOk()) << line;
      EXPECT_EQ(Row(Counts(map)), answer) << line;
      ++possible;
    }
  }
  EXPECT_GT(possible, 200U);
  EXPECT_GT(refused, 100U);
}

struct Impossible {
  std::string_view name;
  void (*change)(ParallelLayout*);
  std::string_view message, arithmetic;
};
void PrintTo(const Impossible& impossible, std::ostream* out) { *out << impossible.name; }
class ImpossibleStages : public ::testing::TestWithParam<Impossible> {};

TEST_P(ImpossibleStages, AreRefusedWithTheArithmetic) {
  ParallelLayout layout;
  layout.pp = 2;
  GetParam().change(&layout);
  EXPECT_THAT(MakeStageMap(layout, 4), IsError(ErrorCode::kUsage, ::testing::AllOf(HasSubstr(std::string(GetParam().message)), HasSubstr(std::string(GetParam().arithmetic)))));
}

INSTANTIATE_TEST_SUITE_P(
    Table, ImpossibleStages,
    ::testing::Values(
        Impossible{"ListTooShort", [](ParallelLayout* l) { l->pipeline_layers = {4}; }, "disagree about the number of pipeline stages", "found 1 (4)"},
        Impossible{"ListTooLong", [](ParallelLayout* l) { l->pipeline_layers = {2, 1, 1}; }, "disagree about the number of pipeline stages", "found 3 (2,1,1)"},
        Impossible{"StageOfNone", [](ParallelLayout* l) { l->pipeline_layers = {0, 4}; }, "a pipeline stage cannot hold 0 of 4 layers", "--pipeline-layers 0,4"},
        Impossible{"StageOfTooMany", [](ParallelLayout* l) { l->pipeline_layers = {5, 1}; }, "a pipeline stage cannot hold 5 of 4 layers", "--pipeline-layers 5,1"},
        Impossible{"ListOfAnotherSum", [](ParallelLayout* l) { l->pipeline_layers = {1, 2}; }, "does not add up to the model's layers", "found 1 + 2 = 3"},
        Impossible{"FirstOfNone", [](ParallelLayout* l) { l->first_stage_layers = 0; }, "a pipeline stage cannot hold 0 of 4 layers", ""},
        Impossible{"LastOfTooMany", [](ParallelLayout* l) { l->last_stage_layers = 5; }, "a pipeline stage cannot hold 5 of 4 layers", ""},
        Impossible{"EndsThatLeaveALayer", [](ParallelLayout* l) { l->first_stage_layers = 1; l->last_stage_layers = 2; }, "cannot share the remaining layers",
                   "expected 0 layers, found 4 - 1 - 2 = 1 layers for 0 stages"},
        Impossible{"MiddleThatDoesNotDivide", [](ParallelLayout* l) { l->pp = 3; l->first_stage_layers = 1; }, "cannot share the remaining layers",
                   "expected a positive multiple of 2, found 4 - 1 = 3 layers for 2 stages"},
        Impossible{"NothingForTheMiddle", [](ParallelLayout* l) { l->pp = 3; l->first_stage_layers = 2; l->last_stage_layers = 2; }, "cannot share the remaining layers",
                   "found 4 - 2 - 2 = 0 layers for 1 stages"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace crossdock::layout
