// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/spelling.h"

#include <map>

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

/// A family of one matrix an expert, with two forms that differ in their shapes and one that does not.
family::FamilyFile Rules(const std::string& spellings) {
  const std::string text = R"(
family = "toy"
[spellings]
)" + spellings + R"(
[letters]
h = { hf = "h" }
m = { hf = "m" }
layers = { hf = "layers" }
experts = { hf = "experts" }
[[group]]
rules = [["model.norm.weight", "h", "norm", "-"]]
[[group]]
index = "l in 0..layers, e in 0..experts"
hub   = "model.layers.{l}.e.{e}."
rules = [["{gate,up}.weight", "m,h", "-", "-"]]
)";
  auto file = family::ParseFamilyFile(text, "toy.toml");
  EXPECT_TRUE(file) << file.error().message;
  return *std::move(file);
}

constexpr const char* kForms = R"(
nested = { "model." = "model.text." }
fused  = [["model.layers.{l}.e.{e}.{gate,up}.weight", "model.layers.{l}.e.both : gate_up"]]
turned = [["model.layers.{l}.e.{e}.{gate,up}.weight", "model.layers.{l}.e.both : gate_up, T"]]
)";

family::Model Sizes(std::int64_t h, std::int64_t m) { return {{{"h", h}, {"m", m}, {"layers", 2}, {"experts", 3}}, {}, {}}; }

class Shapes {
 public:
  void Add(const std::string& name, Shape shape) { shapes_[name] = std::move(shape); }
  [[nodiscard]] ShapeLookup Lookup() const {
    return [this](std::string_view name) {
      const auto at = shapes_.find(std::string(name));
      return at == shapes_.end() ? nullptr : &at->second;
    };
  }

 private:
  std::map<std::string, Shape> shapes_;
};

TEST(FindSpelling, NamesAndShapesDecide) {
  const family::FamilyFile family = Rules(kForms);
  for (const auto& [shape, prefix, wanted] : std::vector<std::tuple<Shape, std::string, Spellings>>{{{3, 8, 6}, "model.", {"fused"}},
                                                                                                    {{3, 6, 8}, "model.", {"turned"}},
                                                                                                    {{3, 8, 6}, "model.text.", {"nested", "fused"}}}) {
    Shapes shapes;
    shapes.Add(prefix + "norm.weight", {6});
    for (const char* layer : {"0", "1"}) shapes.Add(prefix + "layers." + layer + ".e.both", shape);
    ASSERT_OK_AND_ASSIGN(const Spellings found, FindSpelling(family, Sizes(6, 4), shapes.Lookup(), "/source"));
    EXPECT_EQ(found, wanted);
  }
}

TEST(FindSpelling, TheReleasedFormWhenNothingIsNearer) {
  const family::FamilyFile family = Rules(kForms);
  ASSERT_OK_AND_ASSIGN(const Spellings found, FindSpelling(family, Sizes(6, 4), Shapes().Lookup(), "/source"));
  EXPECT_TRUE(found.empty());
}

TEST(FindSpelling, RefusesTwoThatFitAlike) {
  const family::FamilyFile family = Rules(kForms);
  Shapes shapes;
  shapes.Add("model.norm.weight", {8});
  for (const char* layer : {"0", "1"}) shapes.Add(std::string("model.layers.") + layer + ".e.both", {3, 8, 8});  // h = 2m
  EXPECT_THAT(FindSpelling(family, Sizes(8, 4), shapes.Lookup(), "/source"), IsError(ErrorCode::kUnsupported, ::testing::HasSubstr("two spellings")));
  const auto refused = FindSpelling(family, Sizes(8, 4), shapes.Lookup(), "/source");
  EXPECT_THAT(refused.error().found, ::testing::HasSubstr("`fused` and `turned`"));
}

TEST(SpellingOfNames, AsksForShapesWhereNamesAreShared) {
  const family::FamilyFile family = Rules(kForms);
  const std::vector<std::string> names = {"model.norm.weight", "model.layers.0.e.both", "model.layers.1.e.both"};
  EXPECT_THAT(SpellingOfNames(family, Sizes(6, 4), names, Shapes().Lookup(), "the template"), IsError(ErrorCode::kUnsupported, ::testing::HasSubstr("two spellings")));
  Shapes shapes;
  shapes.Add("model.layers.0.e.both", {3, 6, 8});
  ASSERT_OK_AND_ASSIGN(const Spellings found, SpellingOfNames(family, Sizes(6, 4), names, shapes.Lookup(), "the template"));
  EXPECT_EQ(found, Spellings{"turned"});
}

TEST(WithExperts, KnowsTheReleasedFormAndTheFamilysOwn) {
  const family::FamilyFile family = Rules(kForms);
  ASSERT_OK_AND_ASSIGN(const Spellings single, WithExperts(family, "single", {"nested", "fused"}));
  EXPECT_EQ(single, Spellings{"nested"});
  ASSERT_OK_AND_ASSIGN(const Spellings turned, WithExperts(family, "turned", {"fused"}));
  EXPECT_EQ(turned, Spellings{"turned"});
  EXPECT_THAT(WithExperts(family, "nested", {}), IsError(ErrorCode::kUsage, ::testing::HasSubstr("no such form")));
}

HubState Hub(const family::FamilyFile& family, DType odd) {
  HubState hub;
  hub.family = &family;
  hub.model = Sizes(6, 4);
  int leaf = 0;
  for (const char* layer : {"0", "1"}) {
    for (const char* expert : {"0", "1", "2"}) {
      for (const char* part : {"gate", "up"}) {
        const DType dtype = leaf == 5 ? odd : DType::kBF16;
        hub.tensors.push_back({std::string("model.layers.") + layer + ".e." + expert + "." + part + ".weight", Slot::kParam, dtype, {4, 6}, expr::Leaf(leaf, dtype, {4, 6})});
        ++leaf;
      }
    }
  }
  hub.tensors.push_back({"model.norm.weight", Slot::kParam, DType::kBF16, {6}, expr::Leaf(leaf, DType::kBF16, {6})});
  return hub;
}

TEST(Spell, JoinsExpertsInTheirOrder) {
  const family::FamilyFile family = Rules(kForms);
  const HubState hub = Hub(family, DType::kBF16);
  ASSERT_OK_AND_ASSIGN(const std::vector<SpelledTensor> spelled, Spell(hub, {"fused"}));
  ASSERT_EQ(spelled.size(), 3U);
  EXPECT_EQ(spelled[1].tensor.name, "model.layers.1.e.both");
  EXPECT_EQ(spelled[1].tensor.shape, (Shape{3, 8, 6}));
  EXPECT_EQ(expr::LeafOrdinals(spelled[1].tensor.expr), (std::vector<int>{6, 7, 8, 9, 10, 11}));
  ASSERT_OK_AND_ASSIGN(const auto same, Spell(hub, {}));
  EXPECT_EQ(same.size(), hub.tensors.size());
}

TEST(Spell, WidensPartsOfDifferentTypes) {
  const family::FamilyFile family = Rules(kForms);
  ASSERT_OK_AND_ASSIGN(const std::vector<SpelledTensor> spelled, Spell(Hub(family, DType::kF16), {"fused"}));
  EXPECT_EQ(spelled[0].tensor.dtype, DType::kF32);
  EXPECT_EQ(spelled[1].tensor.dtype, DType::kBF16);
}

TEST(Spell, RefusesHalfATensor) {
  const family::FamilyFile family = Rules(kForms);
  HubState hub = Hub(family, DType::kBF16);
  std::erase_if(hub.tensors, [](const HubTensor& tensor) { return tensor.name == "model.layers.1.e.2.up.weight"; });
  EXPECT_THAT(Spell(hub, {"fused"}), IsError(ErrorCode::kIncomplete, ::testing::HasSubstr("lacks one of them")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
