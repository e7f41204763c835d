// SPDX-License-Identifier: Apache-2.0
#include "convert/master_proof.h"

#include "convert/demo_model.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The demonstration's model as if the order of its optimizer state had been computed.
Result<DemoModel> Computed() {
  CROSSDOCK_ASSIGN_OR_RETURN(DemoModel model, MakeDemoModel());
  model.source.view.emplace();
  model.source.view->prove_masters = true;
  return model;
}

dialects::HubTensor* MasterOf(DemoModel* model, std::string_view name) {
  for (dialects::HubTensor& t : model->source.hub.tensors) {
    if (t.name == name && t.slot == Slot::kMaster) return &t;
  }
  return nullptr;
}

TEST(MasterProof, TakesMastersThatRoundToTheirWeights) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, Computed());
  EXPECT_THAT(ProveMasters(model.source, {}, {}), IsOk());
}

TEST(MasterProof, RefusesTheMasterOfAnotherWeight) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, Computed());
  dialects::HubTensor* first = MasterOf(&model, "model.layers.0.mlp.gate_proj.weight");
  dialects::HubTensor* second = MasterOf(&model, "model.layers.1.mlp.gate_proj.weight");
  ASSERT_TRUE(first != nullptr && second != nullptr);
  std::swap(first->expr, second->expr);
  EXPECT_THAT(ProveMasters(model.source, {}, {}),
              IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("gate_proj.weight"), HasSubstr(model.source.reader->catalog().root))));
  // Nothing is read of a state that is left behind, or whose order the source says itself.
  ConvertOptions without;
  without.no_optim = true;
  EXPECT_THAT(ProveMasters(model.source, without, {}), IsOk());
  model.source.view->prove_masters = false;
  EXPECT_THAT(ProveMasters(model.source, {}, {}), IsOk());
}

TEST(MasterProof, RefusesAStateWithoutMasters) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, Computed());
  std::erase_if(model.source.hub.tensors, [](const auto& t) { return t.slot == Slot::kMaster; });
  EXPECT_THAT(ProveMasters(model.source, {}, {}),
              IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("there are none to compare"), HasSubstr("--dist-ckpt-optim-fully-reshardable"))));
}

}  // namespace
}  // namespace crossdock::convert
