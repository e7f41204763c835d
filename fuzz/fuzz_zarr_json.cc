// SPDX-License-Identifier: Apache-2.0
// Any bytes as a zarr.json, with a few objects under every key that a small grid has: an error, or chunks that cover the array and
// streams that give as many bytes as they should or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "formats/zarr/chunk_grid.h"
#include "formats/zarr/chunk_stream.h"
#include "formats/zarr/zarr_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdock;
  using namespace crossdock::formats::zarr;
  const auto array = ParseZarrJson({reinterpret_cast<const char*>(data), size});
  if (!array) return 0;
  for (const std::size_t bytes : {std::size_t{16}, std::size_t{36}, std::size_t{128}}) {
    ObjectStore store;
    store.find = [&](const std::string&) -> Result<std::optional<Stored>> {
      return std::optional(Stored{0, {0, static_cast<std::int64_t>(bytes)}, std::string(bytes, 'x')});
    };
    const auto placed = PlaceChunks(*array, store);
    if (!placed) continue;
    std::vector<Box> boxes;
    for (std::size_t c = 0; c < placed->chunks.size(); ++c) {
      const Chunk& chunk = placed->chunks[c];
      boxes.push_back(chunk.box);
      const auto inlined = placed->inlined.find(static_cast<std::int32_t>(c));
      if (inlined == placed->inlined.end()) std::abort();
      const auto stream = OpenChunk(*array, chunk.box, StoredBytes(inlined->second), false);
      const auto length = ByteSize(array->dtype, chunk.box.sizes);
      if (!length) std::abort();
      if (!stream || *length > 1 << 20) continue;
      std::vector<std::byte> out(static_cast<std::size_t>(*length));
      (void)(*stream)->Read(out);
    }
    if (boxes.size() < 1000 && !CheckCover(array->shape, boxes)) std::abort();
  }
  return 0;
}
