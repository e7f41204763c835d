// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/machine.h"

#include "formats/pickle/emitter.h"
#include "result_matchers.h"

namespace crossdock::formats::pickle {
namespace {

/// Takes the items of the dict stored under "many" and counts them.
class Counter : public Observer {
 public:
  Result<bool> OnBuild(Graph&, NodeId, NodeId) override { return false; }
  Result<bool> OnAppend(Graph&, NodeId, NodeId) override { return false; }
  Result<bool> OnSetItem(Graph& graph, NodeId below, NodeId key, NodeId) override {
    const std::string* name = below == kNoNode ? nullptr : graph.as_string(below);
    if (name == nullptr || *name != "many") return false;
    last = *graph.as_string(key);
    largest = std::max(largest, graph.size());
    ++count;
    return true;
  }
  std::int64_t count = 0;
  std::size_t largest = 0;
  std::string last;
};

TEST(Machine, ConsumedItemsNeedNoMemory) {
  constexpr int kItems = 1'000'000;
  Emitter out(false);
  out.Start();
  out.EmptyDict();
  out.Mark();
  out.Text("many");
  out.EmptyDict();
  for (int i = 0; i < kItems; ++i) {
    if (i % 1000 == 0) out.Mark();
    out.Text("key." + std::to_string(i));
    out.Size({i, 2, 3});
    if (i % 1000 == 999) out.SetItems();
  }
  out.SetItems();
  out.Stop();
  Graph graph(16 << 20);  // far less than a million items would need
  Counter counter;
  Machine machine(graph, &counter);
  ByteSource source(out.bytes());
  ASSERT_OK_AND_ASSIGN(const NodeId root, machine.Run(source));
  EXPECT_EQ(graph.kind(root), NodeKind::kDict);
  EXPECT_EQ(counter.count, kItems);
  EXPECT_EQ(counter.last, "key.999999");
  EXPECT_LT(counter.largest, 400'000U);
}

TEST(Machine, RefusesMoreMemoryThanAllowed) {
  Graph graph(1 << 20);
  Machine machine(graph);
  const std::string lists = "\x80\x02(" + std::string(10 << 20, ']') + "l.";
  ByteSource source{std::string_view(lists)};
  EXPECT_THAT(machine.Run(source), IsError(ErrorCode::kUnsafe, ::testing::HasSubstr("too much memory")));
}

TEST(Machine, CallsByAnythingButANameAreRefused) {
  Graph graph(1 << 20);
  Machine machine(graph);
  ByteSource source(std::string_view("N)R."));
  EXPECT_THAT(machine.Run(source), IsError(ErrorCode::kUnsafe, ::testing::HasSubstr("calls something")));
}

TEST(Machine, StateForAClassItselfIsRefused) {
  Graph graph(1 << 20);
  Machine machine(graph);
  ByteSource source(std::string_view("cargparse\nNamespace\n}b."));
  EXPECT_THAT(machine.Run(source), IsError(ErrorCode::kUnsafe, ::testing::HasSubstr("argparse.Namespace")));
}

}  // namespace
}  // namespace crossdock::formats::pickle
