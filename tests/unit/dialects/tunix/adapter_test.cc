// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/adapter.h"

#include "result_matchers.h"
#include "tunix_samples.h"

namespace crossdock::dialects::tunix {
namespace {

LeafNode Tree(const std::string& lines) {
  Result<LeafNode> made = LeavesOf(Step(lines), "model_params");
  EXPECT_TRUE(made.has_value());
  return *std::move(made);
}

TEST(TunixAdapter, IsFoundAtTheRootOnceAndNowhereElse) {
  EXPECT_EQ(AdapterOfParams(Tree(Params("base."))), "base");
  EXPECT_EQ(AdapterOfParams(Tree(Params(""))), "");
  EXPECT_EQ(AdapterOfParams(Tree(Params("") + "model_params.base.kernel.value\n")), "") << "a module of the model's own";
  EXPECT_EQ(AdapterOfParams(Tree(Params("base.") + "model_params.rngs.params.count.value = 1\n")), "base") << "with variables of its own";
  EXPECT_EQ(AdapterOfParams(Tree("model_params.base.base.kernel.value\n")), "base");
}

TEST(TunixAdapter, OfMomentsIsToldByTheParametersNames) {
  const std::set<std::string> names = {"base.kernel", kKernel, kTable};
  EXPECT_EQ(AdapterOfState(Tree("model_params.base.kernel.value\n"), names), "") << "moments of the module `base` alone";
  EXPECT_EQ(AdapterOfState(Tree("model_params.base.base.kernel.value\n"), names), "base");
  EXPECT_EQ(AdapterOfState(Tree(Params("base.")), names), "base");
  EXPECT_EQ(AdapterOfState(Tree(Params("")), names), "");
}

TEST(TunixAdapter, WithinIsTheNodeItselfWithoutOne) {
  const LeafNode tree = Tree(Params("base."));
  EXPECT_EQ(&Within(tree, ""), &tree);
  EXPECT_EQ(&Within(tree, "base"), tree.Find("base"));
}

}  // namespace
}  // namespace crossdock::dialects::tunix
