// SPDX-License-Identifier: Apache-2.0
// Any bytes as model.safetensors.index.json: an error, or an index whose files lie below the directory, which is printed and
// read again as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "formats/safetensors/index.h"
#include "io/storage.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdock;
  using namespace crossdock::formats::safetensors;
  const auto index = ParseIndex(std::string(reinterpret_cast<const char*>(data), size), "index");
  if (!index) return 0;
  std::string text = IndexHead(1, index->total_size.value_or(0));
  for (std::size_t i = 0; i < index->items.size(); ++i) {
    const std::string& file = index->files.at(static_cast<std::size_t>(index->items[i].file));
    if (!io::CheckRelativePath(file)) std::abort();
    text += IndexLine(index->items[i].name, file, i + 1 == index->items.size());
  }
  const auto again = ParseIndex(text + IndexTail(), "again");
  if (!again || again->files != index->files || again->items.size() != index->items.size()) std::abort();
  for (std::size_t i = 0; i < index->items.size(); ++i) {
    if (again->items[i].name != index->items[i].name || again->items[i].file != index->items[i].file) std::abort();
  }
  return 0;
}
