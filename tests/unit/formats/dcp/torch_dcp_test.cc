// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/torch_dcp.h"

#include <algorithm>

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::dcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A plain DCP directory as its reader leaves it: tensors by name, items by key.
Catalog Plain(const std::vector<std::string>& tensors, ValueDict items) {
  Catalog catalog;
  catalog.format = "dcp";
  for (const std::string& name : tensors) catalog.entries.push_back({name, Slot::kParam, DType::kF32, {2, 3}, {}});
  catalog.SortEntries();
  if (std::ranges::none_of(items, [](const auto& item) { return *item.first.as_string() == "args"; })) items.emplace_back(Value("args"), Value::MakeDict());
  catalog.objects["items"] = Value::MakeDict(std::move(items));
  catalog.objects["scalars"] = Value::MakeDict();
  return catalog;
}

const TensorValue& At(const Value& value, std::size_t index) { return *(*value.as_sequence())[index].as_tensor(); }

TEST(TorchDcpTest, JoinedKeysBecomeTheDictOfARank) {
  const std::vector<std::string> order = {"model.decoder.layers.1.b", "model.decoder.layers.0.a", "optimizer.fp32_from_fp16_params.0.0"};
  std::vector<std::string> tensors = order;
  for (int i = 1; i < 12; ++i) tensors.push_back("optimizer.fp32_from_fp16_params.0." + std::to_string(i));
  tensors.insert(tensors.end(), {"optimizer.optimizer.state.0.exp_avg", "optimizer.optimizer.state.10.exp_avg", "rng_state.0.torch_rng_state"});
  Catalog catalog = Plain(tensors, {{Value("iteration"), Value(7)}, {Value("optimizer.optimizer.param_groups.0.lr"), Value(0.5)},
                                    {Value("optimizer.optimizer.param_groups.1.lr"), Value(0.25)}, {Value("opt_param_scheduler.num_steps"), Value(9)},
                                    {Value("model.decoder.layers.0._extra_state"), Value()}});
  ASSERT_THAT(MakeRankFile(order, catalog), IsOk());
  EXPECT_EQ(catalog.format, "mp_rank");
  EXPECT_TRUE(catalog.objects.contains(kByDcp));
  EXPECT_EQ(catalog.Find("rng_state.0.torch_rng_state"), -1);
  const Value& file = catalog.objects.at(kRankFile);
  EXPECT_EQ(file.GetInt("iteration"), 7);
  EXPECT_EQ(file.GetInt("opt_param_scheduler.num_steps"), 9);
  // Parameters stand in the file's order, not in that of names.
  const ValueDict& model = file.Find("model")->as_dict()->items;
  ASSERT_EQ(model.size(), 3U);
  EXPECT_EQ(*model[0].first.as_string(), "decoder.layers.1.b");
  EXPECT_EQ(model[1].second.as_tensor()->storage, "model.decoder.layers.0.a");
  const Value& optimizer = *file.Find("optimizer");
  const Value& masters = *optimizer.Find("fp32_from_fp16_params");
  ASSERT_EQ((*masters.as_sequence())[0].as_sequence()->size(), 12U);
  EXPECT_EQ(At((*masters.as_sequence())[0], 10).storage, "optimizer.fp32_from_fp16_params.0.10");
  EXPECT_EQ((*optimizer.FindPath("optimizer.param_groups")->as_sequence())[1].GetFloat("lr"), 0.25);
  const ValueDict& states = optimizer.FindPath("optimizer.state")->as_dict()->items;  // by number, with gaps: a dict
  ASSERT_EQ(states.size(), 2U);
  EXPECT_EQ(*states[1].first.as_int(), 10);
}

TEST(TorchDcpTest, AChainOfOptimizersIsAList) {
  Catalog catalog = Plain({"optimizer.0.optimizer.state.0.exp_avg", "optimizer.1.optimizer.state.0.exp_avg"}, {});
  ASSERT_THAT(MakeRankFile({}, catalog), IsOk());
  ASSERT_NE(catalog.objects.at(kRankFile).Find("optimizer")->as_sequence(), nullptr);
  EXPECT_EQ(catalog.objects.at(kRankFile).Find("optimizer")->as_sequence()->size(), 2U);
}

TEST(TorchDcpTest, GapsStayDictsAndDeepKeysDoNotNestWithoutEnd) {
  std::string deep = "optimizer";
  for (int i = 0; i < 100'000; ++i) deep += ".a";
  Catalog catalog = Plain({"optimizer.fp32_from_fp16_params.0.0", "optimizer.fp32_from_fp16_params.0.2", deep}, {});
  ASSERT_THAT(MakeRankFile({}, catalog), IsOk());
  const Value& file = catalog.objects.at(kRankFile);
  EXPECT_NE((*file.FindPath("optimizer.fp32_from_fp16_params")->as_sequence())[0].as_dict(), nullptr);
  int depth = 0;
  for (const Value* at = file.Find("optimizer"); at != nullptr; at = at->Find("a")) ++depth;
  EXPECT_LE(depth, 17);
}

TEST(TorchDcpTest, AKeyThatIsAValueAndADictIsRefused) {
  Catalog catalog = Plain({"optimizer.optimizer.state.0.exp_avg"}, {{Value("optimizer.optimizer"), Value(1)}});
  EXPECT_THAT(MakeRankFile({}, catalog), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("a value and the dict"), HasSubstr("optimizer.state"))));
}

TEST(TorchDcpTest, RefusesWhatSavedSeveralTensorsUnderOneName) {
  for (const char* name : {"tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size"}) {
    Value args = Value::MakeDict();
    args.Set(name, Value(2));
    Catalog parallel = Plain({"model.decoder.layers.0.a"}, {{Value("args"), args}});
    EXPECT_THAT(MakeRankFile({"model.decoder.layers.0.a"}, parallel), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("model-parallel ranks"), HasSubstr(name))));
  }
  Catalog silent = Plain({"model.decoder.layers.0.a"}, {});
  silent.objects["items"] = Value::MakeDict();
  EXPECT_THAT(MakeRankFile({"model.decoder.layers.0.a"}, silent), IsError(ErrorCode::kIncomplete, HasSubstr("parallelism")));
}

TEST(TorchDcpTest, KnownByItsKeys) {
  io::MemoryStorage storage;
  const auto looks = [&](const std::string& dir, const std::string& bytes) {
    EXPECT_THAT(io::MakeDirs(storage, dir), IsOk());
    EXPECT_THAT(io::WriteSmallFile(storage, dir + "/.metadata", bytes), IsOk());
    return LooksMegatronDcp(storage, dir);
  };
  EXPECT_EQ(looks("a", "..checkpoint_version..model.decoder.layers.0.x"), MegatronDcp::kTorchDcp);
  EXPECT_EQ(looks("b", "..checkpoint_version..model.module.decoder.layers.0.x"), MegatronDcp::kFsdpDtensor);
  EXPECT_EQ(looks("c", "..model.decoder.layers.0.x"), std::nullopt);              // Hugging Face names of some models
  EXPECT_EQ(looks("d", "..checkpoint_version..decoder.layers.x"), std::nullopt);  // torch_dist
  EXPECT_EQ(looks("e", "..checkpoint_version..ema_model.module.x"), std::nullopt);
  EXPECT_EQ(LooksMegatronDcp(storage, "nowhere"), std::nullopt);
  // However large, and across the border of two blocks.
  for (const std::size_t at : {std::size_t{4194304} - 10, std::size_t{4194304} - 256, std::size_t{9000000}}) {
    std::string large(10000000, '.');
    large.replace(at, 24, "model.decoder.layers.0.a");
    large.replace(100, 18, "checkpoint_version");
    EXPECT_EQ(looks("large" + std::to_string(at), large), MegatronDcp::kTorchDcp) << at;
  }
}

}  // namespace
}  // namespace crossdock::formats::dcp
