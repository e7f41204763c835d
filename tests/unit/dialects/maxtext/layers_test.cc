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
  ASSERT_OK_AND_ASSIGN(const auto arranged, ArrangeLayers(Layers(7, {4}), {3, true}, {true, 1}));
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
  EXPECT_THAT(ArrangeLayers(Layers(7, {4}), {3, false}, {true, 1}), IsError(ErrorCode::kUnsupported, HasSubstr("blocks of 3 layers")));
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
  ASSERT_OK_AND_ASSIGN(const Cycle cycle, CycleOf(family, {{"step", 3}}));
  EXPECT_EQ(cycle.length, 6);
  EXPECT_TRUE(cycle.remainder);
  family.maxtext_flags = {{"cycle", "0"}};
  EXPECT_THAT(CycleOf(family, {}), IsError(ErrorCode::kUsage, HasSubstr("cycle = 0")));
  family.maxtext_flags = {{"cycles", "2"}};
  EXPECT_THAT(CycleOf(family, {}), IsError(ErrorCode::kUsage, HasSubstr("cycles = 2")));
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
