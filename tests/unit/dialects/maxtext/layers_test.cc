// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/layers.h"

#include "expr/pull_back.h"
#include "result_matchers.h"

namespace crossdock::dialects::maxtext {
namespace {

using ::testing::HasSubstr;

family::DialectTensor Part(const std::string& name, std::int32_t leaf, const Shape& shape) {
  family::DialectTensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.hub = {leaf};
  tensor.forward = expr::Leaf(leaf, DType::kF32, shape);
  return tensor;
}

std::vector<family::DialectTensor> Layers(std::int64_t count, const Shape& shape) {
  std::vector<family::DialectTensor> parts;
  for (std::int64_t l = 0; l < count; ++l) parts.push_back(Part("decoder.layers_" + std::to_string(l) + ".mlp.wo.kernel", static_cast<std::int32_t>(l), shape));
  return parts;
}

Cycle Blocks(std::int64_t length, bool remainder) {
  Cycle cycle;
  cycle.length = length;
  cycle.remainder = remainder;
  return cycle;
}

TEST(LayerName, TakesTheContainerAndItsNumberApart) {
  const std::optional<LayerName> name = ParseLayerName("decoder.moe_layers_12.self_attention.out.kernel");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->container, "moe_layers");
  EXPECT_EQ(name->number, 12);
  EXPECT_EQ(name->rest, "self_attention.out.kernel");
  for (const char* other : {"decoder.layers.mlp.wo.kernel", "decoder.decoder_norm.scale", "token_embedder.embedding", "decoder.layers_x.a", "decoder.layers_1"}) {
    EXPECT_FALSE(ParseLayerName(other).has_value()) << other;
  }
}

TEST(ArrangeLayers, StacksAlongTheAxisWhereTheTensorHasIt) {
  struct Case {
    int axis;
    Shape layer, stacked;
  };
  for (const Case& one : {Case{1, {4, 6}, {4, 3, 6}}, Case{1, {4}, {4, 3}}, Case{1, {}, {3}}, Case{0, {4, 6}, {3, 4, 6}}, Case{2, {4, 6}, {4, 6, 3}}, Case{2, {4}, {3, 4}}}) {
    ASSERT_OK_AND_ASSIGN(const auto arranged, ArrangeLayers(Layers(3, one.layer), {}, {true, one.axis}));
    ASSERT_EQ(arranged.size(), 1U);
    EXPECT_EQ(arranged[0].name, "decoder.layers.mlp.wo.kernel");
    EXPECT_EQ(arranged[0].shape, one.stacked) << one.axis;
  }
}

TEST(ArrangeLayers, PutsCyclesInBlocksAndTheRestBesideThem) {
  ASSERT_OK_AND_ASSIGN(const auto arranged, ArrangeLayers(Layers(7, {4}), Blocks(3, true), {true, 1}));
  std::map<std::string, Shape> shapes;
  for (const auto& tensor : arranged) shapes[tensor.name] = tensor.shape;
  EXPECT_EQ(shapes, (std::map<std::string, Shape>{{"decoder.layers.layers_0.mlp.wo.kernel", {4, 2}},
                                                  {"decoder.layers.layers_1.mlp.wo.kernel", {4, 2}},
                                                  {"decoder.layers.layers_2.mlp.wo.kernel", {4, 2}},
                                                  {"decoder.layers_remainder.layers_0.mlp.wo.kernel", {4}}}));
  // Element 1 of the second place is layer 1 * 3 + 1.
  for (const auto& tensor : arranged) {
    if (tensor.name == "decoder.layers.layers_1.mlp.wo.kernel") {
      EXPECT_EQ(expr::PullBack(tensor.forward, Box{{2, 1}, {1, 1}})[0].leaf, 4);
    }
  }
  EXPECT_THAT(ArrangeLayers(Layers(7, {4}), Blocks(3, false), {true, 1}), IsError(ErrorCode::kUnsupported, HasSubstr("blocks of 3 layers")));
}

TEST(ArrangeLayers, StacksLocalLayersInTheirBlocks) {
  Cycle cycle = Blocks(4, true);
  cycle.local = "inner";
  cycle.global = "last";
  ASSERT_OK_AND_ASSIGN(const auto arranged, ArrangeLayers(Layers(10, {6, 7}), cycle, {true, 1}));
  std::map<std::string, const family::DialectTensor*> tensors;
  for (const auto& tensor : arranged) tensors[tensor.name] = &tensor;
  ASSERT_EQ(tensors.size(), 3U);
  const family::DialectTensor& inner = *tensors.at("decoder.layers.inner.mlp.wo.kernel");
  EXPECT_EQ(inner.shape, (Shape{6, 2, 3, 7}));  // two blocks of three
  EXPECT_EQ(inner.stack_axis, 1);
  for (const std::int64_t block : {0, 1}) {
    for (const std::int64_t place : {0, 1, 2}) {
      const std::vector<expr::Piece> pieces = expr::PullBack(inner.forward, Box{{4, block, place, 5}, {1, 1, 1, 1}});
      EXPECT_EQ(pieces[0].leaf, 4 * block + place);
      EXPECT_EQ(pieces[0].leaf_origin, (Dims{4, 5}));
    }
  }
  const family::DialectTensor& last = *tensors.at("decoder.layers.last.mlp.wo.kernel");
  EXPECT_EQ(last.shape, (Shape{6, 2, 7}));
  EXPECT_EQ(expr::PullBack(last.forward, Box{{0, 1, 0}, {1, 1, 1}})[0].leaf, 7);
  const family::DialectTensor& rest = *tensors.at("decoder.layers_remainder.inner.mlp.wo.kernel");
  EXPECT_EQ(rest.shape, (Shape{6, 2, 7}));      // layers 8 and 9
  EXPECT_EQ(expr::PullBack(rest.forward, Box{{0, 1, 0}, {1, 1, 1}})[0].leaf, 9);
  // Experts stay first of all.
  std::vector<family::DialectTensor> experts = Layers(4, {5, 6, 7});
  for (auto& tensor : experts) tensor.expert_axis = 0;
  ASSERT_OK_AND_ASSIGN(const auto routed, ArrangeLayers(experts, cycle, {true, 1}));
  EXPECT_EQ(routed[0].shape, (Shape{5, 1, 3, 6, 7}));
  EXPECT_EQ(routed[0].expert_axis, 0);
  ASSERT_OK_AND_ASSIGN(const auto first, ArrangeLayers(experts, cycle, {true, 0}));
  EXPECT_EQ(first[0].shape, (Shape{1, 3, 5, 6, 7}));
  EXPECT_EQ(first[0].expert_axis, 2);
}

TEST(ArrangeLayers, RefusesLocalLayersOfDifferentKinds) {
  Cycle cycle = Blocks(2, false);
  cycle.local = "inner";
  cycle.global = "last";
  std::vector<family::DialectTensor> parts = Layers(4, {4});
  parts.push_back(Part("decoder.layers_2.mlp.extra", 9, {4}));
  EXPECT_THAT(ArrangeLayers(parts, cycle, {true, 1}), IsError(ErrorCode::kUnsupported, HasSubstr("mlp.extra")));
}

TEST(ArrangeLayers, RefusesLayersOfDifferentKinds) {
  std::vector<family::DialectTensor> parts = Layers(3, {4});
  parts.push_back(Part("decoder.layers_1.mlp.extra", 9, {4}));
  EXPECT_THAT(ArrangeLayers(parts, {}, {true, 1}), IsError(ErrorCode::kUnsupported, HasSubstr("--no-scan-layers")));
  ASSERT_OK_AND_ASSIGN(const auto numbered, ArrangeLayers(parts, {}, {false, 1}));
  EXPECT_EQ(numbered.size(), 4U);
}

TEST(CycleOf, ReadsTheFamilysSection) {
  family::FamilyFile family;
  family.name = "some";
  family.maxtext_flags = {{"cycle", "2*step"}, {"remainder", "true"}};
  ASSERT_OK_AND_ASSIGN(const Cycle cycle, CycleOf(family, {{{"step", 3}}, {}, {}}));
  EXPECT_EQ(cycle.length, 6);
  EXPECT_TRUE(cycle.remainder);
  // Up to the first layer of a kind; without one, no block is whole.
  family.maxtext_flags = {{"cycle", "full"}, {"layer", "layer_"}, {"needs", "s == m"}};
  ASSERT_OK_AND_ASSIGN(const Cycle kind, CycleOf(family, {{}, {}, {{"full", {false, false, true, false}}}}));
  EXPECT_EQ(kind.length, 3);
  EXPECT_EQ(kind.layer, "layer_");
  ASSERT_OK_AND_ASSIGN(const Cycle none, CycleOf(family, {{}, {}, {{"full", {false, false}}}}));
  EXPECT_EQ(none.length, 3);
  family.maxtext_flags = {{"local", "inner"}};
  EXPECT_THAT(CycleOf(family, {}), IsError(ErrorCode::kUsage, HasSubstr("local = inner")));
  family.maxtext_flags = {{"cycle", "0"}};
  EXPECT_THAT(CycleOf(family, {}), IsError(ErrorCode::kUsage, HasSubstr("cycle = 0")));
  family.maxtext_flags = {{"cycles", "2"}};
  EXPECT_THAT(CycleOf(family, {}), IsError(ErrorCode::kUsage, HasSubstr("cycles = 2")));
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
