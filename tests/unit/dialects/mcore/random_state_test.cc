// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/random_state.h"

#include "layout/stage_map.h"
#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

Value Object(const char* module, const char* name, ValueList args = {}) {
  Opaque object;
  object.form = Opaque::Form::kReduce;
  object.module = module;
  object.name = name;
  object.args = std::move(args);
  return Value(std::move(object));
}

Value Saved(Value numpy) {
  return Value::MakeList({Value::MakeDict({{Value("random_rng_state"), Value::MakeTuple({Value(3), Value::MakeTuple({Value(1), Value(2)}), Value()})},
                                           {Value("np_rng_state"), Value::MakeTuple({Value("MT19937"), std::move(numpy), Value(624)})},
                                           {Value("torch_rng_state"), Value(TensorValue{})}})});
}

TEST(RandomState, KeysNameStageAndRank) { EXPECT_EQ(RandomStateKey(0, 3, 1, 2), "rng_state/shard_0.1_3.2"); }

TEST(RandomState, DataTensorsAndArraysAreAllThatItNeeds) {
  EXPECT_THAT(CheckRandomState(Saved(Object("numpy._core.multiarray", "_reconstruct", {Object("numpy", "ndarray"), Object("_codecs", "encode", {Value("b")})}))), IsOk());
  for (const auto& [module, name] : {std::pair{"trainer", "Hook"}, {"numpy", "load"}, {"os", "system"}}) {
    EXPECT_THAT(CheckRandomState(Saved(Object(module, name))), IsError(ErrorCode::kUnsupported, HasSubstr(name)));
    EXPECT_THAT(CheckRandomState(Saved(Object("numpy", "dtype", {Object(module, name)}))), IsError(ErrorCode::kUnsupported, HasSubstr(name)));
  }
  Opaque with_state;
  with_state.module = "numpy";
  with_state.name = "ndarray";
  with_state.state = std::make_shared<Value>(Object("trainer", "Hook"));
  EXPECT_THAT(CheckRandomState(Saved(Value(with_state))), IsError(ErrorCode::kUnsupported, HasSubstr("trainer.Hook")));
  EXPECT_THAT(CheckRandomState(Value::MakeDict({{Object("trainer", "Key"), Value(1)}})), IsError(ErrorCode::kUnsupported, HasSubstr("trainer.Key")));
}

Catalog SavedByFour() {
  Value args = TinyArgs(4);
  args.Set("pipeline_model_parallel_size", 2);
  Catalog source = McoreSource("llama", args);
  for (const int stage : {0, 1}) {
    for (const int rank : {0, 1}) source.object_refs.push_back({RandomStateKey(stage, 2, rank, 2), 0, {0, 10}});
  }
  return source;
}

Result<Value> NameAsState(const ObjectRef& ref) { return Value(ref.name); }

/// A run of the same layout asks for every rank's: one of them alone would not load.
TEST(RandomState, AllAreReadOrNone) {
  Catalog source = SavedByFour();
  const RandomStates all = ReadRandomStates(source, NameAsState);
  EXPECT_EQ(all.refusal, "");
  EXPECT_EQ(all.count(), 4);
  EXPECT_EQ(*all.states.Find("rng_state/shard_1.0_2.2")->as_string(), "rng_state/shard_1.0_2.2");
  const auto broken = [](const ObjectRef& ref) -> Result<Value> {
    if (ref.name.starts_with("rng_state/shard_1.1")) return MakeError(ErrorCode::kCorrupt, "a pickle ends too early");
    return Value(1);
  };
  EXPECT_EQ(ReadRandomStates(source, broken).refusal, "random states cannot be carried: a pickle ends too early");
  EXPECT_EQ(ReadRandomStates(source, broken).count(), 0);
  const auto foreign = [](const ObjectRef&) -> Result<Value> { return Saved(Object("trainer.hooks", "Restore")); };
  EXPECT_THAT(ReadRandomStates(source, foreign).refusal, HasSubstr("`trainer.hooks.Restore`"));
  source.object_refs.pop_back();
  EXPECT_EQ(ReadRandomStates(source, NameAsState).refusal, "random states cannot be carried: there are none for pipeline rank 1 and tensor-parallel rank 1");
  source.objects.erase("common");
  EXPECT_THAT(ReadRandomStates(source, NameAsState).refusal, HasSubstr("no arguments say"));
  source.object_refs.clear();
  EXPECT_EQ(ReadRandomStates(source, NameAsState).refusal, "");
}

TEST(RandomState, IsPutWhereTheLayoutIsTheSame) {
  TargetOptions options;
  options.layout.tp = options.layout.pp = 2;
  options.random = ReadRandomStates(SavedByFour(), NameAsState);
  const auto place = [](const TargetOptions& asked) {
    TargetState target;
    target.stages = layout::MakeStageMap(asked.layout, 4).value();
    PlaceRandomStates(asked, &target);
    return target;
  };
  const TargetState same = place(options);
  EXPECT_EQ(same.random_states, 4);
  EXPECT_TRUE(same.catalog.objects.contains("object:rng_state/shard_0.1_2.2"));
  EXPECT_TRUE(same.left_out.empty());
  const auto why = [&](const TargetOptions& asked) {
    const TargetState target = place(asked);
    EXPECT_EQ(target.random_states, 0);
    EXPECT_TRUE(target.catalog.objects.empty());
    return target.left_out.size() == 1 ? target.left_out[0].reason : "";
  };
  TargetOptions other = options;
  other.layout.pp = 1;
  EXPECT_THAT(why(other), HasSubstr("the layout is another"));
  other = options;
  other.layout.ep = 2;
  EXPECT_THAT(why(other), HasSubstr("the layout is another"));
  other = options;
  other.no_rng = true;
  EXPECT_THAT(why(other), HasSubstr("--no-rng"));
  other = options;
  other.random.states.Set("rng_state/shard_0.0_2.2", Saved(Object("os", "System")));   // a full state may come from anywhere
  EXPECT_THAT(why(other), HasSubstr("os.System"));
  other.random = {};
  other.random.refusal = "they cannot be read";
  EXPECT_EQ(why(other), "they cannot be read");
}

}  // namespace
}  // namespace crossdock::dialects::mcore
