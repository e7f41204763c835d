// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/random_state.h"

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

}  // namespace
}  // namespace crossdock::dialects::mcore
