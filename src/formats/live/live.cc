// SPDX-License-Identifier: Apache-2.0
#include "formats/live/live.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/placed_reader.h"

namespace crossdock::formats::live {
namespace {

class LiveWriter final : public CheckpointWriter {
 public:
  Result<Placement> LayOut(Catalog target) override {
    CROSSDOCK_CHECK(!laid_out_);
    laid_out_ = true;
    Placement out;
    CROSSDOCK_ASSIGN_OR_RETURN(out.catalog, PlaceBuffers(std::move(target)));
    return out;
  }
  Result<std::vector<Frame>> Seal(const Catalog& /*placed*/, std::int32_t /*entry*/, std::int32_t /*chunk*/, std::uint32_t /*crc32*/) const override {
    return std::vector<Frame>();
  }
  Status WriteMetadata(const Catalog& /*placed*/, io::Storage& /*storage*/, const std::string& /*dir*/) override { return OkStatus(); }
  std::vector<FileRef> MetadataFiles() const override { return {}; }

 private:
  bool laid_out_ = false;
};

}  // namespace

std::string BufferName(const Entry& entry, std::size_t chunk) {
  return entry.chunks.size() == 1 ? entry.name : entry.name + "@" + std::to_string(chunk);
}

Result<Catalog> PlaceBuffers(Catalog catalog) {
  catalog.format = "live";
  catalog.files.clear();
  for (Entry& entry : catalog.entries) {
    for (std::size_t i = 0; i < entry.chunks.size(); ++i) {
      Chunk& chunk = entry.chunks[i];
      Result<std::int64_t> bytes = ByteSize(entry.dtype, chunk.box.sizes);
      if (!bytes || BitsOf(entry.dtype) % 8 != 0) {
        return MakeError(ErrorCode::kUnsupported, "tensors of this type are not handed over in memory").WithTensor(entry.name).WithFound(std::string(DTypeName(entry.dtype)));
      }
      chunk.file = static_cast<std::int32_t>(catalog.files.size());
      chunk.bytes = {0, *bytes};
      chunk.encoding = ChunkEncoding::kRaw;
      catalog.files.push_back({BufferName(entry, i), {*bytes, 0, 0}});
    }
  }
  return catalog;
}

std::unique_ptr<CheckpointWriter> MakeLiveWriter() { return std::make_unique<LiveWriter>(); }

Result<std::unique_ptr<CheckpointReader>> OpenLive(Catalog catalog) {
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog placed, PlaceBuffers(std::move(catalog)));
  return std::unique_ptr<CheckpointReader>(std::make_unique<PlacedReader>(std::move(placed), "buffers of a running trainer"));
}

}  // namespace crossdock::formats::live
