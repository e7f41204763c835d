// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/write_step.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "dialects/tunix/view.h"
#include "expr/pull_back.h"
#include "result_matchers.h"
#include "tunix_samples.h"

namespace crossdock::dialects::tunix {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What maxtext's WriteHub makes of a seen step: values are scalars and no tensors.
TargetState AsWritten(const View& view) {
  TargetState made;
  made.catalog = view.catalog;
  made.catalog.entries.clear();
  const Value& scalars = made.catalog.objects.at("scalars");
  for (std::size_t i = 0; i < view.catalog.entries.size(); ++i) {
    const Entry& entry = view.catalog.entries[i];
    if (scalars.Find(entry.name) != nullptr) continue;
    made.catalog.entries.push_back(entry);
    made.exprs.push_back(expr::Leaf(view.entry_of[i], entry.dtype, entry.shape));
  }
  made.catalog.objects["orbax"] = Json(R"({"item": "items", "zarr3": true})");
  return made;
}

/// Name -> type of every leaf.
std::map<std::string, std::string> TypesOf(const Catalog& catalog) {
  std::map<std::string, std::string> out;
  for (const Value& row : *catalog.objects.at("tree").as_sequence()) out[maxtext::ArrayName(*row.Find("path")->as_sequence())] = *row.GetString("value_type");
  return out;
}

TargetState There(const Catalog& step, StepRequest request = {}) {
  Result<View> view = SeeAsMaxText(step);
  EXPECT_TRUE(view.has_value());
  request.levels = view->levels;
  Result<TargetState> made = ToStep(AsWritten(*view), request);
  EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().ToString());
  return *std::move(made);
}

/// A case of tests/golden/tunix/trees: a step as the real trainer saved it.
Value GoldenTree(const std::string& name) {
  std::ifstream file(std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/tunix/trees/" + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  return Json(text.str());
}

std::set<std::string> NamedInMaxText(const std::string& name) {
  std::set<std::string> out;
  const Value golden = GoldenTree(name);
  for (const Value& line : *golden.Find("rows")->as_sequence()) {
    const ValueList& row = *line.as_sequence();
    if (row[6].as_string() != nullptr && !row[3].is_null()) out.insert(*row[6].as_string());
  }
  return out;
}

Catalog GoldenStep(const std::string& name) {
  const Value golden = GoldenTree(name);
  Catalog catalog;
  catalog.root = name;
  ValueList rows;
  Value scalars = Value::MakeDict();
  for (const Value& line : *golden.Find("rows")->as_sequence()) {
    const ValueList& row = *line.as_sequence();
    maxtext::KeyPath path = {row[0]};
    path.insert(path.end(), row[1].as_sequence()->begin(), row[1].as_sequence()->end());
    Entry entry{maxtext::ArrayName(path), Slot::kParam, DType::kF32, {}, {}};
    Value out = Value::MakeDict();
    out.Set("path", Value::MakeList(std::move(path)));
    out.Set("value_type", row[2]);
    rows.push_back(std::move(out));
    if (row[3].is_null()) continue;
    entry.dtype = *DTypeFromName(*row[3].as_string());
    Value sizes = row[4];
    for (const Value& size : *sizes.as_sequence()) entry.shape.push_back(*size.as_int());
    const bool random = entry.name.find(".rngs.") != std::string::npos;
    if (entry.shape.empty() || random) {
      Value scalar = Value::MakeDict();
      scalar.Set("dtype", row[3]);
      scalar.Set("shape", row[4]);
      scalar.Set("values", Value::MakeList(ValueList(static_cast<std::size_t>(CheckedCount(entry.shape)), Value(3))));
      scalars.Set(entry.name, std::move(scalar));
    }
    entry.chunks.push_back({Box::Whole(entry.shape), -1, {}, ChunkEncoding::kRaw, 0});
    catalog.entries.push_back(std::move(entry));
  }
  catalog.objects["tree"] = Value::MakeList(std::move(rows));
  catalog.objects["scalars"] = std::move(scalars);
  catalog.SortEntries();
  return catalog;
}

std::vector<std::string> GoldenTrees() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/tunix/trees")) names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class ThereAndBack : public ::testing::TestWithParam<std::string> {};

TEST_P(ThereAndBack, EveryTrainersStepHasItsLeavesAgain) {
  const Catalog step = GoldenStep(GetParam());
  const TargetState back = There(step);
  EXPECT_EQ(TypesOf(back.catalog), TypesOf(step));
  EXPECT_THAT(CheckFits(back.catalog, step), IsOk());
  for (std::size_t i = 0; i < back.exprs.size(); ++i) {
    const Entry& entry = back.catalog.entries[i];
    if (entry.name.find("acc_grads") == std::string::npos) {
      EXPECT_EQ(back.exprs[i]->leaf, step.Find(entry.name)) << entry.name;
    }
    EXPECT_EQ(entry.shape, step.entries[static_cast<std::size_t>(step.Find(entry.name))].shape);
  }
}

/// Names in MaxText's tree as the trees' last column has them: told by who made the checkpoints, not by rules.
TEST_P(ThereAndBack, TheSeenTreeIsTheOneThatMaxTextHas) {
  const Catalog step = GoldenStep(GetParam());
  ASSERT_OK_AND_ASSIGN(const View view, SeeAsMaxText(step));
  std::set<std::string> seen;
  for (const auto& [name, type] : TypesOf(view.catalog)) {
    if (type == "np.ndarray") seen.insert(name);
  }
  std::set<std::string> named = NamedInMaxText(GetParam());
  if (view.levels.schedule) named.insert("opt_state.2.count");
  EXPECT_EQ(seen, named);
}

INSTANTIATE_TEST_SUITE_P(Golden, ThereAndBack, ::testing::ValuesIn(GoldenTrees()), [](const auto& param) { return param.param; });

TEST(TunixWriteStep, TheStepIsUnsignedAndTheItemsAreNamed) {
  const TargetState back = There(Step(Params("base.") + Adam(kOptState + "0.", "base.") + kStep));
  EXPECT_EQ(back.catalog.objects.at("scalars").Find("optimizer_state.step.value")->GetString("dtype"), "U32");
  EXPECT_EQ(back.catalog.objects.at("scalars").Find("optimizer_state.opt_state.0.count.value")->GetString("dtype"), "I32");
  EXPECT_EQ(back.catalog.objects.at("orbax").Find("items")->as_sequence()->size(), 2U);
  EXPECT_EQ(back.catalog.objects.at("orbax").Find("item"), nullptr);
}

TEST(TunixWriteStep, WithoutOptimizerStateThereIsOneItem) {
  ASSERT_OK_AND_ASSIGN(View view, SeeAsMaxText(Step(Params(""))));
  TargetState made = AsWritten(view);
  Value none = Value::MakeDict();
  none.Set("path", Json(R"(["opt_state"])"));
  none.Set("value_type", "Dict");
  made.catalog.objects["tree"].mutable_sequence()->push_back(std::move(none));
  ASSERT_OK_AND_ASSIGN(const TargetState back, ToStep(std::move(made), {}));
  EXPECT_EQ(ToJson(*back.catalog.objects.at("orbax").Find("items"), 0), R"(["model_params"])");
  for (const auto& [name, type] : TypesOf(back.catalog)) EXPECT_THAT(name, HasSubstr("model_params."));
}

TEST(TunixWriteStep, AnotherRunsCountersFollowThisOne) {
  const Catalog trainer = Step(Params("base.") + "model_params.base.rngs.params.count.value = 8\n" + Injected({"learning_rate"}) + Adam(kOptState + "inner_state.1.0.", "base.", "0") + kStep);
  ASSERT_OK_AND_ASSIGN(const View levels, SeeAsMaxText(trainer));
  ASSERT_OK_AND_ASSIGN(const View source, SeeAsMaxText(Step(Params("") + Adam(kOptState + "0.", "") + kOptState + "2.count.value = 41\n" + kStep)));
  const auto count = [](const TargetState& made, const std::string& name) {
    return *made.catalog.objects.at("scalars").Find("optimizer_state.opt_state." + name + ".value")->Find("values")->as_sequence()->front().as_int();
  };
  StepRequest request;
  request.levels = levels.levels;
  request.counters_follow = true;
  ASSERT_OK_AND_ASSIGN(const TargetState follows, ToStep(AsWritten(source), request));
  EXPECT_EQ(count(follows, "count"), 41);
  EXPECT_EQ(count(follows, "hyperparams_states.learning_rate.count"), 41);
  EXPECT_EQ(count(follows, "inner_state.1.0.count"), 5) << "Adam's own";
  EXPECT_EQ(*follows.catalog.objects.at("scalars").Find("model_params.base.rngs.params.count.value")->Find("values")->as_sequence()->front().as_int(), 8) << "a random stream's";
  EXPECT_THAT(CheckFits(follows.catalog, trainer), IsOk());
  request.counters_follow = false;
  ASSERT_OK_AND_ASSIGN(const TargetState recorded, ToStep(AsWritten(source), request));
  EXPECT_EQ(count(recorded, "hyperparams_states.learning_rate.count"), 6) << "as the record says";
}

TEST(TunixWriteStep, GatheredGradientsBeginAnew) {
  const std::string steps = kOptState + "mini_step.value = 3\n" + kOptState + "gradient_step.value = 9\n";
  const Catalog source = Step(Params("base.") + steps + Adam(kOptState + "inner_opt_state.0.", "base.") + Lines({kOptState + "acc_grads.base." + kKernel + ".value", kOptState + "acc_grads.base." + kTable + ".value"}) + kStep);
  const TargetState back = There(source);
  EXPECT_EQ(TypesOf(back.catalog), TypesOf(source));
  const auto value = [&](const char* name) { return *back.catalog.objects.at("scalars").Find(kOptState + name + ".value")->Find("values")->as_sequence()->front().as_int(); };
  EXPECT_EQ(value("mini_step"), 0);
  EXPECT_EQ(value("gradient_step"), 9);
  const std::int32_t gathered = back.catalog.Find(kOptState + "acc_grads.base." + kKernel + ".value");
  ASSERT_GE(gathered, 0);
  const expr::Expr& zeros = back.exprs[static_cast<std::size_t>(gathered)];
  EXPECT_EQ(zeros->shape, (Shape{4, 2}));
  EXPECT_THAT(expr::PullBack(zeros, Box::Whole(zeros->shape)), ::testing::Each(::testing::Field(&expr::Piece::leaf, -1)));
}

TEST(TunixWriteStep, WhatHasNoPlaceIsRefused) {
  ASSERT_OK_AND_ASSIGN(const View view, SeeAsMaxText(Step(Params(""))));
  TargetState made = AsWritten(view);
  Entry entry{"batch_stats.mean", Slot::kParam, DType::kF32, {2}, {}};
  made.exprs.insert(made.exprs.begin(), expr::Leaf(0, DType::kF32, {2}));
  made.catalog.entries.insert(made.catalog.entries.begin(), entry);
  Value row = Value::MakeDict();
  row.Set("path", Json(R"(["batch_stats", "mean"])"));
  row.Set("value_type", "np.ndarray");
  made.catalog.objects["tree"].mutable_sequence()->push_back(std::move(row));
  EXPECT_THAT(ToStep(std::move(made), {}), IsError(ErrorCode::kUnsupported, HasSubstr("batch_stats.mean")));
}

TEST(TunixWriteStep, ATrainerThatHasOtherLeavesIsToldOf) {
  const TargetState plain = There(Step(Params("") + Adam(kOptState + "0.", "") + kStep));
  EXPECT_THAT(CheckFits(plain.catalog, Step(Params("base.") + Adam(kOptState + "0.", "base.") + kStep)),
              IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("nothing fills"), HasSubstr("model_params.base."))));
  EXPECT_THAT(CheckFits(plain.catalog, Step(Params(""))), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("the template has not"), HasSubstr("optimizer_state"))));
  Catalog other = Step(Params("") + Adam(kOptState + "0.", "") + kStep);
  other.entries[static_cast<std::size_t>(other.Find("model_params." + kTable + ".value"))].shape = {9, 2};
  EXPECT_THAT(CheckFits(plain.catalog, other), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("another shape"), HasSubstr("[9, 2]"))));
  const TargetState weights = There(Step(Params("")));
  EXPECT_THAT(CheckFits(weights.catalog, Step(Params("") + Adam(kOptState + "0.", "") + kStep)), IsOk()) << "parameters alone";
}

TEST(TunixWriteStep, SlotsAreToldByNames) {
  EXPECT_EQ(SlotOf("optimizer_state.opt_state.1.0.mu.base.decoder.w.value"), Slot::kAdamMu);
  EXPECT_EQ(SlotOf("optimizer_state.opt_state.1.0.nu.base.mu.w.value"), Slot::kAdamNu);
  EXPECT_EQ(SlotOf("optimizer_state.opt_state.inner_states.muon.inner_state.0.mu.w.value"), Slot::kMuonMu);
  EXPECT_EQ(SlotOf("model_params.mu.w.value"), Slot::kParam);
  EXPECT_EQ(SlotOf("optimizer_state.step.value"), Slot::kParam);
}

TEST(TunixWriteStep, ARecordOfAnotherTreeIsRefused) {
  ASSERT_OK_AND_ASSIGN(const View view, SeeAsMaxText(Step(Params("base.") + kStep + Adam(kOptState + "0.", "base."))));
  for (const std::string& name : {std::string("model_params.base.decoder"), "model_params.base." + kKernel + ".scale", std::string("opt_state.0.mu"), std::string("opt_state.0")}) {
    StepRequest request;
    request.levels = view.levels;
    request.levels.dropped[name] = {DType::kF32, {}, Value(0.5), {}};
    EXPECT_THAT(ToStep(AsWritten(view), request), IsError(ErrorCode::kCorrupt, HasSubstr("would be a leaf and hold"))) << name;
  }
}

}  // namespace
}  // namespace crossdock::dialects::tunix
