// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/layout.h"

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::orbax {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OrbaxLayout : public ::testing::Test {
 protected:
  void Put(const std::string& path) {
    ASSERT_THAT(io::MakeDirs(storage_, io::ParentPath(path)), IsOk());
    ASSERT_THAT(io::WriteSmallFile(storage_, path, "{}"), IsOk());
  }
  io::MemoryStorage storage_;
};

TEST_F(OrbaxLayout, FindsTheItemOfAStepFromEitherLevel) {
  Put("/run/prefix_000012/_CHECKPOINT_METADATA");
  Put("/run/prefix_000012/items/_METADATA");
  Put("/run/prefix_000012/metrics/metrics");
  for (const char* path : {"/run/prefix_000012", "/run/prefix_000012/items"}) {
    ASSERT_OK_AND_ASSIGN(const ItemPlace place, FindItem(storage_, path));
    EXPECT_EQ(place.root, "/run/prefix_000012");
    EXPECT_EQ(place.item, "items");
    EXPECT_EQ(place.step, 12);
  }
  ASSERT_OK_AND_ASSIGN(const ItemPlace place, FindItem(storage_, "/run/prefix_000012"));
  EXPECT_THAT(place.others, ElementsAre("metrics"));
}

TEST_F(OrbaxLayout, AFlatCheckpointIsOnePlace) {
  Put("/flat/_CHECKPOINT_METADATA");
  Put("/flat/_METADATA");
  ASSERT_OK_AND_ASSIGN(const ItemPlace place, FindItem(storage_, "/flat"));
  EXPECT_EQ(place.item, "");
  EXPECT_EQ(place.dir(), "/flat");
  EXPECT_EQ(place.step, std::nullopt);
}

TEST_F(OrbaxLayout, ItemsWinsElseTheOnlyOne) {
  Put("/a/7/items/_METADATA");
  Put("/a/7/other/_METADATA");
  ASSERT_OK_AND_ASSIGN(const ItemPlace items, FindItem(storage_, "/a/7"));
  EXPECT_EQ(items.item, "items");
  EXPECT_THAT(items.others, ElementsAre("other"));
  Put("/b/7/state/_METADATA");
  ASSERT_OK_AND_ASSIGN(const ItemPlace state, FindItem(storage_, "/b/7"));
  EXPECT_EQ(state.item, "state");
  Put("/b/7/more/_METADATA");
  EXPECT_THAT(FindItem(storage_, "/b/7"), IsError(ErrorCode::kUsage, HasSubstr("`more`, `state`")));
}

TEST_F(OrbaxLayout, TunixsItemsAreReadTogether) {
  for (const char* path : {"model_params/_METADATA", "optimizer_state/_METADATA", "custom_metadata/metadata", "iter/process_0-of-1.json"}) Put(std::string("/a/7/") + path);
  ASSERT_OK_AND_ASSIGN(const ItemPlace both, FindItem(storage_, "/a/7"));
  EXPECT_THAT(both.together, ElementsAre("model_params", "optimizer_state"));
  EXPECT_THAT(both.others, ElementsAre("custom_metadata", "iter"));
  ASSERT_OK_AND_ASSIGN(const ItemPlace one, FindItem(storage_, "/a/7/model_params"));
  EXPECT_THAT(one.together, ElementsAre("model_params"));
  EXPECT_EQ(one.root, "/a/7");
  EXPECT_EQ(one.step, 7);
  Put("/b/7/model_params/_METADATA");
  ASSERT_OK_AND_ASSIGN(const ItemPlace lone, FindItem(storage_, "/b/7"));
  EXPECT_THAT(lone.together, ElementsAre("model_params"));
  Put("/b/7/optimizer_state.orbax-checkpoint-tmp/d/x");
  EXPECT_THAT(FindItem(storage_, "/b/7"), IsError(ErrorCode::kIncomplete, HasSubstr("optimizer_state")));
  Put("/a/7/optimizer_state/d/x");
  EXPECT_THAT(UnfinishedReason(storage_, "/a/7").value_or(""), HasSubstr("`optimizer_state`"));
}

TEST_F(OrbaxLayout, WhatWasBeingWrittenIsIncomplete) {
  Put("/run/7.orbax-checkpoint-tmp/items/_METADATA");
  EXPECT_THAT(FindItem(storage_, "/run/7.orbax-checkpoint-tmp"), IsError(ErrorCode::kIncomplete, HasSubstr("being written")));
  Put("/run/8/items.orbax-checkpoint-tmp-17/_METADATA");
  EXPECT_THAT(FindItem(storage_, "/run/8"), IsError(ErrorCode::kIncomplete, HasSubstr("not saved to its end")));
}

TEST_F(OrbaxLayout, SaysWhyAStepIsUnfinished) {
  Put("/run/7.orbax-checkpoint-tmp/items/_METADATA");
  EXPECT_EQ(UnfinishedReason(storage_, "/run/7.orbax-checkpoint-tmp"), "its name says that it was being written");
  Put("/run/8/items.orbax-checkpoint-tmp/_METADATA");
  EXPECT_EQ(UnfinishedReason(storage_, "/run/8"), "the checkpoint is incomplete: an item was not saved to its end");
  Put("/run/9/items/_METADATA");
  Put("/run/9/items/d/0");
  EXPECT_EQ(UnfinishedReason(storage_, "/run/9"), "`manifest.ocdbt` is missing in `items`, which Orbax writes last");
  Put("/run/9/items/manifest.ocdbt");
  EXPECT_EQ(UnfinishedReason(storage_, "/run/9"), std::nullopt);
  Put("/run/10/items/_METADATA");
  Put("/run/10/items/w/zarr.json");
  EXPECT_EQ(UnfinishedReason(storage_, "/run/10"), std::nullopt);
}

TEST_F(OrbaxLayout, OldFilesAreNamed) {
  Put("/old/7/items/checkpoint");
  EXPECT_THAT(FindItem(storage_, "/old/7"), IsError(ErrorCode::kUnsupported, HasSubstr("msgpack")));
  Put("/half/7/items/manifest.ocdbt");
  EXPECT_THAT(FindItem(storage_, "/half/7"), IsError(ErrorCode::kIncomplete, HasSubstr("no tree")));
  Put("/none/7/_CHECKPOINT_METADATA");
  Put("/none/7/metrics/metrics");
  EXPECT_THAT(FindItem(storage_, "/none/7"), IsError(ErrorCode::kIncomplete, HasSubstr("without arrays")));
}

}  // namespace
}  // namespace crossdock::formats::orbax
