// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_model.h"

#include "dialects/mcore/legacy_view.h"
#include "legacy_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Value* FileOf(Catalog* catalog, const std::string& dir) { return &catalog->objects[dir + "/model_optim_rng.pt"]; }

/// The model's dict with each name changed; an empty new name drops the parameter.
template <typename Rename>
void RenameAll(Catalog* catalog, const std::string& dir, Rename rename) {
  Value* file = FileOf(catalog, dir);
  Value model = Value::MakeDict();
  for (const auto& [key, value] : file->Find("model")->as_dict()->items) {
    const std::string name = rename(*key.as_string());
    if (!name.empty()) model.Set(name, value);
  }
  file->Set("model", std::move(model));
}

struct Broken {
  std::string_view name;
  int vpp;
  void (*change)(Catalog*);
  ErrorCode code;
  std::string_view message, where, expected, found;
};
void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }
class BrokenLegacyModel : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenLegacyModel, IsRefusedWithPlaceExpectedAndFound) {
  LegacySample sample;
  sample.vpp = GetParam().vpp;
  if (sample.vpp > 1) sample.counts = {1, 1, 1, 1};
  Catalog source = LegacySource(sample);
  ASSERT_THAT(SeeLegacy(source, {}), IsOk());
  GetParam().change(&source);
  EXPECT_THAT(SeeLegacy(source, {}), IsError(GetParam().code, AllOf(HasSubstr(std::string(GetParam().message)), HasSubstr(std::string(GetParam().where)),
                                                                    HasSubstr(std::string(GetParam().expected)), HasSubstr(std::string(GetParam().found)))));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenLegacyModel,
    ::testing::Values(
        Broken{"NoModel", 1, [](Catalog* c) { FileOf(c, "mp_rank_01_001")->Erase("model"); }, ErrorCode::kIncomplete, "a rank's file holds no model", "mp_rank_01_001",
               "expected `model` or `model0`", ""},
        Broken{"NoData", 1,
               [](Catalog* c) {
                 TensorValue tensor;
                 tensor.storage = "nowhere";
                 SetAt(FileOf(c, "mp_rank_00_001"), "model/decoder.final_layernorm.weight", Value(std::move(tensor)));
               },
               ErrorCode::kCorrupt, "a parameter of a legacy file has no data", "mp_rank_00_001", "decoder.final_layernorm.weight", ""},
        Broken{"LayersWithAGap", 1,
               [](Catalog* c) {
                 for (const char* dir : {"mp_rank_00_000", "mp_rank_01_000"}) {
                   RenameAll(c, dir, [](std::string name) {
                     const std::size_t at = name.find("layers.1.");
                     return at == std::string::npos ? name : name.replace(at, 9, "layers.3.");
                   });
                 }
               },
               ErrorCode::kCorrupt, "the layers of a stage are not numbered from 0", "mp_rank_00_000", "expected 0 to 1", "found 0 to 3"},
        Broken{"RanksThatDiffer", 1,
               [](Catalog* c) { RenameAll(c, "mp_rank_01_000", [](const std::string& name) { return name.ends_with("layers.1.mlp.linear_fc2.weight") ? "" : name; }); },
               ErrorCode::kCorrupt, "two ranks of a stage hold different parameters", "mp_rank_01_000",
               "decoder.layers.1.mlp.linear_fc2.weight", "1 names differ"},
        Broken{"ChunksThatDiffer", 2, [](Catalog* c) { FileOf(c, "mp_rank_01_001")->Erase("model1"); }, ErrorCode::kCorrupt,
               "the ranks hold different numbers of model chunks", "mp_rank_01_001", "expected 2 as mp_rank_00_000", "found 1"},
        Broken{"AnotherNumberOfLayers", 1,
               [](Catalog* c) {
                 for (const char* dir : {"mp_rank_00_000", "mp_rank_01_000"}) {
                   RenameAll(c, dir, [](const std::string& name) { return name.find("layers.1.") == std::string::npos ? name : std::string(); });
                 }
               },
               ErrorCode::kCorrupt, "the stages hold another number of layers than the arguments say", "", "expected num_layers = 3",
               "found 2 on 2 stages of 1 model chunks"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace crossdock::dialects::mcore
