// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_state.h"

#include "dialects/mcore/legacy_view.h"
#include "legacy_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kFile = "mp_rank_01_001/model_optim_rng.pt";
const char* const kOptimizerGroups = "optimizer/optimizer/param_groups";
const char* const kMasters = "optimizer/fp32_from_fp16_params";

Value At(const Catalog& catalog, const char* path) {
  const Value* at = &catalog.objects.at(kFile);
  for (std::string rest = path; at != nullptr && !rest.empty();) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    at = at->Find(rest.substr(0, slash));
    rest.erase(0, std::min(slash + 1, rest.size()));
  }
  return at == nullptr ? Value() : *at;
}

/// Changes item `index` of the list at `path`.
template <typename Change>
void ChangeItem(Catalog* catalog, const char* path, std::size_t index, Change change) {
  Value list = At(*catalog, path);
  change(&list.mutable_sequence()->at(index));
  SetAt(&catalog->objects[kFile], path, std::move(list));
}

struct BrokenState {
  std::string_view name;
  void (*change)(Catalog*);
  std::string_view message, more;
};
void PrintTo(const BrokenState& broken, std::ostream* out) { *out << broken.name; }
class BrokenLegacyState : public ::testing::TestWithParam<BrokenState> {};

/// Weights can still be carried: a target that would hold the state tells why it cannot.
TEST_P(BrokenLegacyState, IsNotSeenAndTheReasonIsTold) {
  LegacySample sample;
  sample.adam = true;
  Catalog source = LegacySource(sample);
  ASSERT_OK_AND_ASSIGN(const GlobalView good, SeeLegacy(source, {}));
  ASSERT_EQ(good.optimizer_refusal, "");
  GetParam().change(&source);
  ASSERT_OK_AND_ASSIGN(const GlobalView view, SeeLegacy(source, {}));
  EXPECT_THAT(view.optimizer_refusal, AllOf(HasSubstr(std::string(GetParam().message)), HasSubstr("mp_rank_01_001"), HasSubstr(std::string(GetParam().more))));
  EXPECT_EQ(view.catalog.Find("optimizer.state.exp_avg.output_layer.weight"), -1);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenLegacyState,
    ::testing::Values(
        BrokenState{"GroupsNoList", [](Catalog* c) { SetAt(&c->objects[kFile], kOptimizerGroups, Json(R"({"a": 1})")); }, "the optimizer's parameter groups are no list", ""},
        BrokenState{"DecayUntold", [](Catalog* c) { ChangeItem(c, kOptimizerGroups, 0, [](Value* group) { group->Erase("wd_mult"); }); },
               "a parameter group does not say whether weight decay counts for it", ""},
        BrokenState{"TwoGroupsAlike", [](Catalog* c) { ChangeItem(c, kOptimizerGroups, 1, [](Value* group) { group->Set("wd_mult", Value(1.0)); }); },
               "several parameter groups have the same weight decay", ""},
        BrokenState{"NoNumbers", [](Catalog* c) { ChangeItem(c, kOptimizerGroups, 0, [](Value* group) { group->Erase("params"); }); },
               "a parameter group does not number its parameters", ""},
        BrokenState{"NumbersOfAnotherKind", [](Catalog* c) { ChangeItem(c, kOptimizerGroups, 1, [](Value* group) {
                 Value params = *group->Find("params");
                 params.mutable_sequence()->at(0) = Value("first");
                 group->Set("params", std::move(params));
               }); },
               "a parameter group does not number its parameters", ""},
        BrokenState{"TooManyNumbers", [](Catalog* c) { ChangeItem(c, kOptimizerGroups, 0, [](Value* group) {
                 Value params = *group->Find("params");
                 params.mutable_sequence()->emplace_back(std::int64_t{99});
                 group->Set("params", std::move(params));
               }); },
               "a parameter group has another number of parameters than the model", "with weight decay"},
        BrokenState{"TooFewMasters", [](Catalog* c) { ChangeItem(c, kMasters, 0, [](Value* masters) { masters->mutable_sequence()->pop_back(); }); },
               "a parameter group has too few master weights", "(output_layer.weight)"},
        BrokenState{"TooManyMasters", [](Catalog* c) { ChangeItem(c, kMasters, 0, [](Value* masters) {
                 const Value last = masters->mutable_sequence()->back();
                 masters->mutable_sequence()->push_back(last);
               }); },
               "a parameter group has another number of master weights than the model", "expected"},
        BrokenState{"NoStateOfAdam", [](Catalog* c) {
                 Value states = At(*c, "optimizer/optimizer/state");
                 Value& first = states.as_dict()->items.front().second;
                 first.Set("exp_inf", *first.Find("exp_avg"));
                 SetAt(&c->objects[kFile], "optimizer/optimizer/state", std::move(states));
               },
               "the optimizer holds exp_inf, which is no state of Adam", "(decoder.layers.0.self_attention.linear_proj.weight)"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace crossdock::dialects::mcore
