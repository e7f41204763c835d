// SPDX-License-Identifier: Apache-2.0
// Any bytes as an OCDBT record, with its envelope and as the body within a sound one: an error, or a record that keeps its promises.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/ocdbt/envelope.h"
#include "formats/ocdbt/manifest.h"
#include "formats/ocdbt/node.h"

namespace {

using namespace crossdock::formats::ocdbt;

void CheckPlace(const Extent& extent, std::size_t files) {
  if (extent.file >= files || extent.offset < 0 || extent.length < 0 || extent.offset > INT64_MAX - extent.length) std::abort();
}

void CheckNode(std::string_view record) {
  const auto node = ReadNode(record, "base/");
  if (!node) return;
  if (node->leaves.empty() == node->children.empty()) std::abort();
  for (const LeafEntry& entry : node->leaves) {
    if (!entry.inlined) CheckPlace(entry.extent, node->files.size());
  }
  for (const ChildEntry& entry : node->children) {
    CheckPlace(entry.extent, node->files.size());
    if (entry.shared > entry.key.size()) std::abort();
  }
  // What was understood is written and understood again.
  if (!node->files.empty()) return;
  const auto again = ReadNode(WriteNode(*node), "base/");
  if (!again || again->leaves.size() != node->leaves.size()) std::abort();
}

void CheckManifest(std::string_view record) {
  const auto manifest = ReadManifest(record);
  if (!manifest || !manifest->newest) return;
  if (manifest->newest->offset < 0 || manifest->newest->length < 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckNode(bytes);
  CheckManifest(bytes);
  CheckNode(Envelope(Record::kNode, bytes));
  CheckManifest(Envelope(Record::kManifest, bytes));
  return 0;
}
