// SPDX-License-Identifier: Apache-2.0
#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

HubState HubOf(const Catalog& source) {
  auto hub = ReadHub(source, {});
  if (!hub) std::abort();
  return *std::move(hub);
}

const Entry* FindEntry(const TargetState& target, std::string_view name) {
  const std::int32_t at = target.catalog.Find(name);
  return at < 0 ? nullptr : &target.catalog.entries[static_cast<std::size_t>(at)];
}

std::vector<std::string> SidePaths(const TargetState& target) {
  std::vector<std::string> paths;
  for (const SideFile& file : target.catalog.side_files) paths.push_back(file.path);
  return paths;
}

SideFile Copy(const std::string& path, const std::string& from) {
  SideFile file;
  file.path = path;
  file.copy_from = from;
  return file;
}

TEST(WriteHub, WritesWhatWasRead) {
  const Catalog source = TinyModel();
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(HubOf(source), {}));
  ASSERT_EQ(target.catalog.entries.size(), source.entries.size());
  ASSERT_EQ(target.exprs.size(), source.entries.size());
  for (std::size_t i = 0; i < source.entries.size(); ++i) {
    EXPECT_EQ(target.catalog.entries[i].name, source.entries[i].name);
    EXPECT_EQ(target.catalog.entries[i].dtype, DType::kBF16);
    EXPECT_EQ(expr::LeafOrdinals(target.exprs[i]), std::vector<int>{static_cast<int>(i)});
  }
  EXPECT_THAT(target.notices, Contains(HasSubstr("no tokenizer")));
  EXPECT_THAT(SidePaths(target), ::testing::ElementsAre("config.json"));
}

TEST(WriteHub, CastsAllButWhatIsKept) {
  TargetOptions options;
  options.dtype = DType::kF32;
  options.keep_dtype = {"*norm.weight"};
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(HubOf(TinyModel()), options));
  EXPECT_EQ(FindEntry(target, "lm_head.weight")->dtype, DType::kF32);
  EXPECT_EQ(FindEntry(target, "model.layers.0.input_layernorm.weight")->dtype, DType::kBF16);
  EXPECT_EQ(target.catalog.objects.at("config.json").GetString("dtype"), "float32");
  EXPECT_THAT(target.notices, Contains(HasSubstr("cast from BF16 to F32")));
}

TEST(WriteHub, WritesATiedHeadAgain) {  // user case B31
  Catalog source = TinyModel();
  source.objects["config.json"].Set("tie_word_embeddings", Value(true));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(HubOf(source), {}));
  const std::int32_t head = target.catalog.Find("lm_head.weight");
  ASSERT_GE(head, 0);
  EXPECT_EQ(expr::LeafOrdinals(target.exprs[static_cast<std::size_t>(head)]), std::vector<int>{source.Find("model.embed_tokens.weight")});
  Remove(&source, "lm_head.weight");
  ASSERT_OK_AND_ASSIGN(const TargetState without, WriteHub(HubOf(source), {}));
  EXPECT_EQ(FindEntry(without, "lm_head.weight"), nullptr);
  TargetOptions options;
  options.template_order = {"lm_head.weight", "model.embed_tokens.weight"};
  ASSERT_OK_AND_ASSIGN(const TargetState as_reference, WriteHub(HubOf(source), options));
  EXPECT_NE(FindEntry(as_reference, "lm_head.weight"), nullptr);
}

TEST(WriteHub, ChoosesSideFiles) {  // user case B116
  Catalog source = TinyModel();
  source.side_files = {Copy("LICENSE", "/source/LICENSE"), Copy("tokenizer.json", "/source/tokenizer.json")};
  TargetOptions options;
  options.template_side_files = {Copy("generation_config.json", "/t/generation_config.json"), Copy("LICENSE", "/t/LICENSE")};
  ASSERT_OK_AND_ASSIGN(const TargetState merged, WriteHub(HubOf(source), options));
  EXPECT_THAT(SidePaths(merged), ::testing::UnorderedElementsAre("config.json", "generation_config.json", "LICENSE", "tokenizer.json"));
  EXPECT_THAT(merged.notices, Not(Contains(HasSubstr("no tokenizer"))));
  options.template_side_files.push_back(Copy("tokenizer.model", "/t/tokenizer.model"));
  ASSERT_OK_AND_ASSIGN(const TargetState whole, WriteHub(HubOf(source), options));
  EXPECT_THAT(SidePaths(whole), Not(Contains("tokenizer.json")));  // two tokenizers are not mixed
}

TEST(WriteHub, NamesWhatStaysBehind) {
  HubState hub = HubOf(TinyModel());
  HubTensor moment = hub.tensors[0];
  moment.slot = Slot::kAdamMu;
  moment.dtype = DType::kF32;
  hub.tensors.push_back(moment);
  hub.counters.step = 7;
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(hub, {}));
  ASSERT_EQ(target.left_out.size(), 2U);
  EXPECT_EQ(target.left_out[0].count, 1);
  EXPECT_EQ(target.left_out[0].bytes, CheckedCount(moment.shape) * 4);
  EXPECT_THAT(target.left_out[1].name, HasSubstr("step 7"));
}

TEST(WriteHub, TakesMastersOnlyOnRequest) {  // user case B40
  const Catalog source = TinyModel();
  HubState hub = HubOf(source);
  TargetOptions options;
  options.params_from_master = true;
  EXPECT_THAT(WriteHub(hub, options), IsError(ErrorCode::kIncomplete, HasSubstr("master")));
  HubTensor master = *FindHub(hub, "model.norm.weight");
  master.slot = Slot::kMaster;
  master.dtype = DType::kF32;
  hub.tensors.push_back(master);
  ASSERT_OK_AND_ASSIGN(const TargetState taken, WriteHub(hub, options));
  EXPECT_EQ(FindEntry(taken, "model.norm.weight")->dtype, DType::kF32);
  ASSERT_OK_AND_ASSIGN(const TargetState plain, WriteHub(hub, {}));
  EXPECT_EQ(FindEntry(plain, "model.norm.weight")->dtype, DType::kBF16);
}

}  // namespace
}  // namespace crossdock::dialects::hf
