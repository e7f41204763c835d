// SPDX-License-Identifier: Apache-2.0
/// \file  Where the parts of an Orbax checkpoint lie: a step with items in it, or one item alone.
/// Tunix saves a training state as two items, model_params and optimizer_state, which are read as one.
/// On disk (FORMAT.md, 1): STEP/_CHECKPOINT_METADATA, STEP/commit_success.txt, STEP/ITEM/_METADATA and the arrays; or all of it in
/// one directory ("flat"). What is being written has ".orbax-checkpoint-tmp" in its name.
/// Errors: kIncomplete (a temporary directory, no tree), kUsage (several items), kUnsupported (files of Orbax before 0.5).
/// Threads: functions are independent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "io/storage.h"

namespace crossdock::formats::orbax {

struct ItemPlace {
  std::string root;                   ///< the step, or the flat checkpoint
  std::string item;                   ///< "items"; empty when flat
  std::vector<std::string> together;  ///< items that are read as one, names beginning with the item's; empty: `item` alone, by its own names
  std::optional<std::int64_t> step;   ///< all digits after the last "_" of the root's name, or all of it
  std::vector<std::string> others;    ///< directories beside the item: other items, not read
  [[nodiscard]] std::string dir() const { return item.empty() ? root : io::JoinPath(root, item); }
};

/// One of Tunix's items.
[[nodiscard]] bool IsTunixItem(std::string_view name);
/// "7.orbax-checkpoint-tmp", "7.orbax-checkpoint-tmp-1700000000".
[[nodiscard]] bool IsTemporary(std::string_view name);
/// Why a step was not saved to its end: its name, an item that is being written or lacks its tree or its manifest. Nothing for
/// finished steps, and for those that cannot be read for another reason.
[[nodiscard]] std::optional<std::string> UnfinishedReason(io::Storage& storage, const std::string& path);
/// What lies here is an item: `_METADATA`, or the arrays of one.
[[nodiscard]] bool IsItem(io::Storage& storage, const std::string& dir);
/// `path` is a step, an item in one, or a flat checkpoint.
[[nodiscard]] Result<ItemPlace> FindItem(io::Storage& storage, const std::string& path);

}  // namespace crossdock::formats::orbax
