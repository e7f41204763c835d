// SPDX-License-Identifier: Apache-2.0
// Any bytes as the `.metadata` of a checkpoint with one data file: an error, or a catalog that keeps its promises.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "formats/dcp/dcp.h"
#include "io/memory_storage.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdock;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  io::MemoryStorage storage;
  if (!io::MakeDirs(storage, "c") || !io::WriteSmallFile(storage, "c/.metadata", bytes)) std::abort();
  for (const char* name : {"c/__0_0.distcp", "c/__1_0.distcp"}) {
    if (!io::WriteSmallFile(storage, name, std::string(100'000, '\0'))) std::abort();
  }
  const auto reader = formats::OpenDcp(storage, "c");
  if (!reader) return 0;
  for (const Entry& entry : (*reader)->catalog().entries) {
    std::vector<Box> boxes;
    for (const Chunk& chunk : entry.chunks) {
      if (chunk.file < 0 || chunk.bytes.offset < 0 || chunk.bytes.end() > 100'000) std::abort();
      boxes.push_back(chunk.box);
    }
    if (!CheckCover(entry.shape, boxes)) std::abort();
    if (!entry.chunks.empty() && (*reader)->Locate((*reader)->catalog().Find(entry.name), 0)) std::abort();  // the files hold zeros
  }
  return 0;
}
