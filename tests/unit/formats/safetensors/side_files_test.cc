// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "formats/safetensors/directory.h"
#include "formats/safetensors/safetensors.h"
#include "result_matchers.h"
#include "test_files.h"

namespace crossdock::formats::safetensors {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SideFiles, AreEverythingButWeightsConfigAndHiddenFiles) {
  io::MemoryStorage storage;
  for (const char* name : {"README.md", "additional_chat_templates/tool.jinja", "config.json", "generation_config.json", "merges.txt",
                           "model.safetensors", "model.safetensors.index.json", "modeling_x.py", "original/params.json",
                           "optimizer.pt", "pytorch_model.bin.index.json", "qwen.tiktoken", "sub/config.json", "x.gguf", ".gitattributes",
                           ".cache/huggingface/x", "checkpoint-500/trainer_state.json"}) {
    Put(storage, std::string("/m/") + name, "12");
  }
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const auto files, ListSideFiles(storage, "/m", &notices));
  std::vector<std::string> paths;
  for (const SideFile& file : files) {
    paths.push_back(file.path);
    EXPECT_EQ(file.size, 2);
    EXPECT_EQ(file.copy_from, "/m/" + file.path);
  }
  EXPECT_THAT(paths, ElementsAre("README.md", "additional_chat_templates/tool.jinja", "generation_config.json", "merges.txt",
                                 "modeling_x.py", "qwen.tiktoken", "sub/config.json"));
  EXPECT_THAT(notices, Contains(HasSubstr("`original`")));
  EXPECT_THAT(notices, Contains(HasSubstr("`checkpoint-500`")));
}

TEST(TensorOrder, IsTheIndexsOrTheFiles) {
  io::MemoryStorage storage;
  Put(storage, "/a/model.safetensors", TinyFile({"z", "y"}));
  Put(storage, "/b/model.safetensors.index.json", R"({"weight_map":{"q":"gone.safetensors","p":"gone.safetensors"}})");
  Put(storage, "/c/config.json", "{}");
  ASSERT_OK_AND_ASSIGN(const auto of_file, ReadTensorOrder(storage, "/a"));
  EXPECT_THAT(of_file, ElementsAre("z", "y"));
  ASSERT_OK_AND_ASSIGN(const auto of_index, ReadTensorOrder(storage, "/b"));  // a template's weights need not be there
  EXPECT_THAT(of_index, ElementsAre("q", "p"));
  ASSERT_OK_AND_ASSIGN(const auto of_none, ReadTensorOrder(storage, "/c"));
  EXPECT_THAT(of_none, ElementsAre());
}

}  // namespace
}  // namespace crossdock::formats::safetensors
