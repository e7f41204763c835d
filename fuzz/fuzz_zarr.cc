// SPDX-License-Identifier: Apache-2.0
// Any bytes as the `.zarray` of a Megatron tensor with a few chunk files: an error, or a catalog that keeps its promises.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "formats/zarr/megatron_zarr.h"
#include "io/memory_storage.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdock;
  constexpr std::int64_t kFileBytes = 16;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Of a grid of two axes, one, or none: what the metadata has no place for is an error, and so is what is missing.
  for (const std::vector<std::string>& names : {std::vector<std::string>{"0.0", "0.1", "1.0", "1.1"}, {"0", "1"}, {"0"}, {}}) {
    io::MemoryStorage storage;
    if (!io::MakeDirs(storage, "c/w") || !io::WriteSmallFile(storage, "c/w/.zarray", bytes)) std::abort();
    for (const std::string& name : names) {
      if (!io::WriteSmallFile(storage, "c/w/" + name, std::string(kFileBytes, 'x'))) std::abort();
    }
    const auto reader = formats::zarr::OpenMegatronZarr(storage, "c");
    if (!reader) continue;
    const Entry& entry = (*reader)->catalog().entries.at(0);
    std::vector<Box> boxes;
    for (const Chunk& chunk : entry.chunks) {
      if (chunk.file < 0 || chunk.bytes.offset < 0 || chunk.bytes.end() > kFileBytes) std::abort();
      const auto length = ByteSize(entry.dtype, chunk.box.sizes);
      if (!length || *length != chunk.bytes.length) std::abort();
      boxes.push_back(chunk.box);
    }
    if (!CheckCover(entry.shape, boxes)) std::abort();
  }
  return 0;
}
