// SPDX-License-Identifier: Apache-2.0
/// \file  Writes databases into a storage in memory and reads them as maps, for the tests of the tree.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "formats/ocdbt/database.h"
#include "formats/ocdbt/tree_writer.h"
#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::ocdbt {

using Keys = std::map<std::string, std::string>;

/// Values of more than `inlined` bytes lie in d/values.
inline Root WriteTree(io::Storage& storage, const std::string& dir, const Keys& keys, std::size_t inlined, std::int64_t node_bytes) {
  EXPECT_THAT(io::MakeDirs(storage, dir + "/d"), IsOk());
  const std::vector<std::string> files = {"d/values"};
  std::string values, nodes;
  TreeOptions options;
  options.node_file = "d/nodes";
  options.node_bytes = node_bytes;
  TreeWriter tree(files, options, [&](std::string_view record) {
    nodes += record;
    return OkStatus();
  });
  for (const auto& [key, value] : keys) {
    if (value.size() <= inlined) {
      EXPECT_THAT(tree.AddInline(key, value), IsOk());
    } else {
      EXPECT_THAT(tree.Add(key, {0, static_cast<std::int64_t>(values.size()), static_cast<std::int64_t>(value.size())}), IsOk());
      values += value;
    }
  }
  const auto root = tree.Finish();
  EXPECT_THAT(root, IsOk());
  EXPECT_THAT(io::WriteSmallFile(storage, dir + "/d/values", values), IsOk());
  EXPECT_THAT(io::WriteSmallFile(storage, dir + "/d/nodes", nodes), IsOk());
  Manifest manifest;
  manifest.newest = *root;
  EXPECT_THAT(io::WriteSmallFile(storage, dir + "/manifest.ocdbt", WriteManifest(manifest)), IsOk());
  return *root;
}

inline Result<Keys> ReadAll(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(Database database, Database::Open(storage, dir));
  Keys out;
  std::vector<std::string> order;
  CROSSDOCK_RETURN_IF_ERROR(database.Visit([&](const Item& item) -> Status {
    order.emplace_back(item.key);
    CROSSDOCK_ASSIGN_OR_RETURN(out[order.back()], database.ReadValue(item));
    return OkStatus();
  }));
  EXPECT_TRUE(std::ranges::is_sorted(order));
  return out;
}

}  // namespace crossdock::formats::ocdbt
