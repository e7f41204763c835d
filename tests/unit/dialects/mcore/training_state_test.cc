// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/training_state.h"

#include <cstring>

#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

/// A tensor without axes, as torch saves a counter.
template <typename T>
Value Counter(DType dtype, T value) {
  TensorValue tensor;
  tensor.dtype = dtype;
  tensor.storage = "0";
  tensor.storage_numel = 1;
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  tensor.bytes = std::make_shared<const std::string>(std::move(bytes));
  return Value(tensor);
}

/// train_state.pt of Megatron-Bridge: see FORMAT.md of formats/dcp.
Value TrainState() {
  Value state = Value::MakeDict();
  state.Set("step", Counter(DType::kI64, std::int64_t{42}));
  state.Set("consumed_train_samples", Counter(DType::kI64, std::int64_t{1344}));
  state.Set("skipped_train_samples", Counter(DType::kI64, std::int64_t{3}));
  state.Set("consumed_valid_samples", Counter(DType::kI64, std::int64_t{64}));
  state.Set("floating_point_operations_so_far", Counter(DType::kF64, 2.5e15));
  state.Set("do_train", Counter(DType::kBool, true));
  return state;
}

Catalog Bridge() {
  Catalog catalog;
  catalog.root = "/run/iter_0000042";
  catalog.step = 42;
  catalog.objects["common"] = Value::MakeDict();
  catalog.objects["train_state.pt"] = TrainState();
  return catalog;
}

TEST(TrainingState, TakesBridgesCountersWhereThereAreNoArguments) {
  const Catalog catalog = Bridge();
  ASSERT_OK_AND_ASSIGN(const Counters counters, ReadCounters(catalog, nullptr, false));
  EXPECT_EQ(counters.step, 42);
  EXPECT_EQ(counters.consumed_train_samples, 1344);
  const Value extras = ReadExtras(catalog, nullptr);
  EXPECT_EQ(extras.GetInt("args.skipped_train_samples"), 3);
  EXPECT_EQ(extras.GetInt("args.consumed_valid_samples"), 64);
  EXPECT_EQ(extras.GetInt("num_floating_point_operations_so_far"), 2'500'000'000'000'000);
}

TEST(TrainingState, ReadsCountersOfAnyWidth) {
  Catalog catalog = Bridge();
  catalog.objects["train_state.pt"].Set("floating_point_operations_so_far", Counter(DType::kF32, 1024.0F));
  catalog.objects["train_state.pt"].Set("consumed_train_samples", Counter(DType::kI32, std::int32_t{8}));
  ASSERT_OK_AND_ASSIGN(const Counters counters, ReadCounters(catalog, nullptr, false));
  EXPECT_EQ(counters.consumed_train_samples, 8);
  EXPECT_EQ(ReadExtras(catalog, nullptr).GetInt("num_floating_point_operations_so_far"), 1024);
}

TEST(TrainingState, KeepsWhatArgumentsAndCommonStateSay) {
  Catalog catalog = Bridge();
  catalog.objects["common"].Set("num_floating_point_operations_so_far", Value(5));
  Value args = Value::MakeDict();
  args.Set("skipped_train_samples", Value(1));
  const Value extras = ReadExtras(catalog, &args);
  EXPECT_EQ(extras.GetInt("args.skipped_train_samples"), 1);
  EXPECT_EQ(extras.GetInt("num_floating_point_operations_so_far"), 5);
}

TEST(TrainingState, LeavesOutACounterThatIsNoNumber) {
  Catalog catalog = Bridge();
  catalog.objects["train_state.pt"].Set("consumed_train_samples", Value("many"));
  catalog.objects["train_state.pt"].Set("floating_point_operations_so_far", Counter(DType::kF64, -1.0));
  ASSERT_OK_AND_ASSIGN(const Counters counters, ReadCounters(catalog, nullptr, false));
  EXPECT_EQ(counters.consumed_train_samples, std::nullopt);
  EXPECT_EQ(ReadExtras(catalog, nullptr).Find("num_floating_point_operations_so_far"), nullptr);
}

}  // namespace
}  // namespace crossdock::dialects::mcore
