// SPDX-License-Identifier: Apache-2.0
#include "formats/mp_rank/tensor_paths.h"

#include "result_matchers.h"

namespace crossdock::formats::mp_rank {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Value Tensor(std::int64_t rows) {
  TensorValue t;
  t.shape = {rows};
  return Value(t);
}

TEST(TensorPaths, SpellsKeys) {
  EXPECT_EQ(KeyText(Value("a.b")), "a.b");
  EXPECT_EQ(KeyText(Value(12)), "12");
  EXPECT_EQ(KeyText(Value::MakeTuple({Value(DType::kBF16), Value(DType::kF32)})), "(torch.bfloat16, torch.float32)");
}

TEST(TensorPaths, WalksDictsListsAndAttributesInOrder) {
  Opaque space;
  space.form = Opaque::Form::kNewObj;
  space.module = "argparse";
  space.name = "Namespace";
  space.state = std::make_shared<Value>(Value::MakeDict({{Value("w"), Tensor(4)}}));
  Value inner = Value::MakeDict({{Value(7), Tensor(1)}, {Value("x"), Value::MakeList({Value(1), Tensor(2)})}});
  inner.as_dict()->ordered_class = true;
  const Value value = Value::MakeDict({{Value("o"), inner}, {Value("t"), Value::MakeTuple({Tensor(3)})}, {Value("args"), Value(space)}});
  std::vector<std::string> seen;
  ASSERT_OK_AND_ASSIGN(const Value mapped, MapTensorPaths(value, "", [&](const std::string& path, const TensorValue& t) -> Result<TensorValue> {
                         seen.push_back(path);
                         TensorValue out = t;
                         out.storage = path;
                         return out;
                       }));
  EXPECT_THAT(seen, ElementsAre("o/7", "o/x/1", "t/0", "args/w"));
  EXPECT_TRUE(mapped.Find("o")->as_dict()->ordered_class);
  EXPECT_TRUE(mapped.Find("t")->is_tuple());
  EXPECT_EQ(mapped.Find("args")->Find("w")->as_tensor()->storage, "args/w");
}

TEST(TensorPaths, StopsAtTheFirstError) {
  int calls = 0;
  const auto mapped = MapTensorPaths(Value::MakeList({Tensor(1), Tensor(2)}), "", [&](const std::string&, const TensorValue&) -> Result<TensorValue> {
    ++calls;
    return MakeError(ErrorCode::kCorrupt, "no");
  });
  EXPECT_THAT(mapped, IsError(ErrorCode::kCorrupt, HasSubstr("no")));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace crossdock::formats::mp_rank
