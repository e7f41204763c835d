// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/random_states.h"

#include "result_matchers.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::HasSubstr;

Value Array() {
  Opaque type;
  type.form = Opaque::Form::kGlobal;
  type.module = "numpy";
  type.name = "ndarray";
  Opaque array;
  array.form = Opaque::Form::kReduce;
  array.module = "numpy._core.multiarray";
  array.name = "_reconstruct";
  array.args = {Value(std::move(type)), Value::MakeTuple({Value(0)}), Value(Value::Bytes{"b"})};
  array.state = std::make_shared<Value>(Value::MakeTuple({Value(1), Value::MakeTuple({Value(2)}), Value(false), Value(Value::Bytes{std::string("\x00\xff\x7f", 3)})}));
  return Value(std::move(array));
}

TensorValue Bytes(std::string data) {
  TensorValue tensor;
  tensor.dtype = DType::kU8;
  tensor.shape = {static_cast<std::int64_t>(data.size())};
  tensor.strides = {1};
  tensor.storage = "0";
  tensor.storage_numel = tensor.shape[0];
  tensor.bytes = std::make_shared<const std::string>(std::move(data));
  return tensor;
}

RandomStates Some() {
  RandomStates random;
  random.layout = "tp 2";
  random.states.Set("rng_state/shard_0.0_1.2", Value::MakeList({Value::MakeDict({
      {Value("random_rng_state"), Value::MakeTuple({Value(3), Value::MakeTuple({Value(4294967295), Value(0)}), Value(-0.30000000000000004)})},
      {Value("np_rng_state"), Array()}, {Value("none"), Value()}, {Value("torch_rng_state"), Value(Bytes(std::string("\x00\x01\xfe", 3)))}})}));
  return random;
}

TEST(RandomStatesText, ComesBackAsItWas) {
  ASSERT_OK_AND_ASSIGN(const std::string text, EncodeRandomStates(Some()));
  ASSERT_OK_AND_ASSIGN(const RandomStates back, DecodeRandomStates(text));
  EXPECT_EQ(back.layout, "tp 2");
  ASSERT_OK_AND_ASSIGN(const std::string again, EncodeRandomStates(back));
  EXPECT_EQ(again, text);
  const Value& state = back.states.Find("rng_state/shard_0.0_1.2")->as_sequence()->front();
  EXPECT_TRUE(state.Find("random_rng_state")->is_tuple());
  EXPECT_EQ(*(*state.Find("random_rng_state")->as_sequence())[2].as_float(), -0.30000000000000004);
  EXPECT_TRUE(state.Find("none")->is_null());
  EXPECT_EQ(*state.Find("torch_rng_state")->as_tensor()->bytes, std::string("\x00\x01\xfe", 3));
  const Opaque* array = state.Find("np_rng_state")->as_opaque();
  ASSERT_NE(array, nullptr);
  EXPECT_EQ(array->form, Opaque::Form::kReduce);
  EXPECT_EQ(array->args[0].as_opaque()->form, Opaque::Form::kGlobal);
  EXPECT_EQ((*array->state->as_sequence())[3].as_bytes()->data, std::string("\x00\xff\x7f", 3));
}

TEST(RandomStatesText, WhatHasNoFormIsNamed) {
  const auto refused = [](Value value) {
    RandomStates random;
    random.states.Set("k", std::move(value));
    return EncodeRandomStates(random);
  };
  TensorValue view = Bytes("abcd");
  view.shape = {2};
  view.strides = {2};
  EXPECT_THAT(refused(Value(view)), IsError(ErrorCode::kUnsupported, HasSubstr("a view")));
  view.bytes = nullptr;
  EXPECT_THAT(refused(Value(view)), IsError(ErrorCode::kUnsupported, HasSubstr("no data")));
  Opaque list;
  list.module = "trainer";
  list.name = "Bag";
  list.items = {Value(1)};
  EXPECT_THAT(refused(Value(list)), IsError(ErrorCode::kUnsupported, HasSubstr("trainer.Bag")));
  EXPECT_THAT(refused(Value::MakeDict({{Value(1), Value(2)}})), IsError(ErrorCode::kUnsupported, HasSubstr("no text")));
}

TEST(RandomStatesText, OtherTextIsRefused) {
  for (const char* text : {"", "[]", "{}", R"({"layout": "l"})", R"({"layout": 1, "states": {}})", R"({"layout": "l", "states": {"k": {"__bytes__": "0"}}})", R"({"layout": "l", "states": {"k": {"__bytes__": "GG"}}})",
                           R"({"layout": "l", "states": {"k": {"__tensor__": ["U8", [3], "0001"]}}})", R"({"layout": "l", "states": {"k": {"__tensor__": ["U8", [-2], "0001"]}}})",
                           R"({"layout": "l", "states": {"k": {"__tensor__": ["Q9", [2], "0001"]}}})", R"({"layout": "l", "states": {"k": {"__tensor__": [9223372036854775807]}}})",
                           R"({"layout": "l", "states": {"k": {"__object__": ["calls", "m", "n", []]}}})", R"({"layout": "l", "states": {"k": {"__object__": ["reduce", "m", "n"]}}})"}) {
    EXPECT_THAT(DecodeRandomStates(text), IsError(ErrorCode::kCorrupt, HasSubstr("crossdock_random_states"))) << text;
  }
}

}  // namespace
}  // namespace crossdock::dialects::hf
