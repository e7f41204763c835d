// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "formats/dcp/dcp.h"
#include "formats/dcp/metadata_writer.h"
#include "formats/torch_zip/blob.h"
#include "formats/torch_zip/torch_file.h"

namespace crossdock::formats {
namespace {

/// From this size on, the data of a chunk starts at a page of its file: direct I/O and in-kernel copies need that, and
/// the gap before it is lost in the noise. Readers look at offsets only.
constexpr std::int64_t kAlignFrom = 1 << 20;
constexpr std::int64_t kPage = 4096;
constexpr std::string_view kObjectPrefix = "object:";
constexpr std::string_view kScalarPrefix = "scalar:";
constexpr std::string_view kStandardJson =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})";

Error TooLarge() { return MakeError(ErrorCode::kUnsupported, "an output file would be too large"); }

class DcpWriter : public CheckpointWriter {
 public:
  explicit DcpWriter(DcpFlavour flavour) : flavour_(flavour) {}

  Result<Placement> LayOut(Catalog target) override {
    CROSSDOCK_CHECK(!laid_out_);
    laid_out_ = true;
    Placement out;
    out.catalog = std::move(target);
    out.catalog.format = "dcp";
    out.catalog.files.clear();
    out.catalog.object_refs.clear();
    MakeFiles(out.catalog);
    CROSSDOCK_RETURN_IF_ERROR(PlaceObjects(out.catalog, out.frames));
    CROSSDOCK_RETURN_IF_ERROR(PlaceChunks(out.catalog));
    CROSSDOCK_RETURN_IF_ERROR(PrepareSmallFiles(out.catalog));
    out.wants_crc32 = true;
    return out;
  }

  Result<std::vector<Frame>> Seal(const Catalog& placed, std::int32_t entry_index, std::int32_t chunk_index,
                                  std::uint32_t crc32) const override {
    const Entry& entry = placed.entries.at(static_cast<std::size_t>(entry_index));
    const Chunk& chunk = entry.chunks.at(static_cast<std::size_t>(chunk_index));
    CROSSDOCK_ASSIGN_OR_RETURN(const torch_zip::BlobLayout layout, torch_zip::LayOutBlob(entry.dtype, chunk.box.sizes));
    torch_zip::BlobFrames frames = torch_zip::MakeBlobFrames(layout, crc32);
    std::vector<Frame> out;
    out.push_back({chunk.file, chunk.bytes.offset - layout.header_size, std::move(frames.header)});
    out.push_back({chunk.file, chunk.bytes.end(), std::move(frames.trailer)});
    return out;
  }

  /// metadata.json comes last: its absence marks an unfinished checkpoint.
  Status WriteMetadata(const Catalog& placed, io::Storage& storage, const std::string& dir) override {
    const std::string path = io::JoinPath(dir, ".metadata");
    CROSSDOCK_RETURN_IF_ERROR(RemoveLeftover(storage, path));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.Create(path));
    std::int64_t at = 0;
    const dcp::Sink append = [&](std::string_view piece) -> Status {
      const std::int64_t here = std::exchange(at, at + static_cast<std::int64_t>(piece.size()));
      return file->WriteAt(here, std::as_bytes(std::span(piece)));
    };
    CROSSDOCK_RETURN_IF_ERROR(Emit(placed, append));
    CROSSDOCK_RETURN_IF_ERROR(file->Sync());
    for (const auto& [name, bytes] : small_files_) {
      CROSSDOCK_RETURN_IF_ERROR(RemoveLeftover(storage, io::JoinPath(dir, name)));
      CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, io::JoinPath(dir, name), bytes));
    }
    return OkStatus();
  }

  std::vector<FileRef> MetadataFiles() const override {
    std::vector<FileRef> out = {{".metadata", {.size = metadata_size_}}};
    for (const auto& [name, bytes] : small_files_) {
      out.push_back({name, {.size = static_cast<std::int64_t>(bytes.size())}});
    }
    return out;
  }

 private:
  /// One file a shard, by number; the objects need the first one.
  void MakeFiles(Catalog& catalog) {
    for (const Entry& entry : catalog.entries) {
      for (const Chunk& chunk : entry.chunks) files_.emplace(chunk.shard, 0);
    }
    const bool any_object = std::any_of(catalog.objects.begin(), catalog.objects.end(), [](const auto& object) {
      return object.first.starts_with(kObjectPrefix) || object.first.starts_with(kScalarPrefix);
    });
    if (any_object) files_.emplace(0, 0);
    for (auto& [shard, index] : files_) {
      index = static_cast<std::int32_t>(catalog.files.size());
      catalog.files.push_back({"__" + std::to_string(shard) + "_0.distcp", {}});
    }
  }

  Status PlaceObjects(Catalog& catalog, std::vector<Frame>& frames) {
    Frame all;
    for (const auto& [key, value] : catalog.objects) {
      const bool scalar = key.starts_with(kScalarPrefix);
      if (!scalar && !key.starts_with(kObjectPrefix)) continue;
      const std::string name = key.substr(scalar ? kScalarPrefix.size() : kObjectPrefix.size());
      auto bytes = torch_zip::WriteTorchFile(value, "archive");
      if (!bytes) return Error(bytes.error()).WithTensor(name);
      FileRef& file = catalog.files[static_cast<std::size_t>(files_.at(0))];
      const ByteRange range{file.identity.size, static_cast<std::int64_t>(bytes->size())};
      if (scalar) {
        CROSSDOCK_CHECK(value.as_tensor() != nullptr && value.as_tensor()->shape.empty());
        scalars_.push_back({name, value.as_tensor()->dtype, files_.at(0), range});
      } else {
        catalog.object_refs.push_back({name, files_.at(0), range});
      }
      if (all.file < 0) all = {files_.at(0), range.offset, {}};
      all.bytes += *bytes;
      file.identity.size = range.end();
    }
    all.bytes.shrink_to_fit();
    if (all.file >= 0) frames.push_back(std::move(all));
    // As bytes they are in the frame by now; a deep model has tens of thousands.
    std::erase_if(catalog.objects, [](const auto& object) {
      return object.first.starts_with(kObjectPrefix) || object.first.starts_with(kScalarPrefix);
    });
    return OkStatus();
  }

  Status PlaceChunks(Catalog& catalog) {
    for (Entry& entry : catalog.entries) {
      for (Chunk& chunk : entry.chunks) {
        auto layout = torch_zip::LayOutBlob(entry.dtype, chunk.box.sizes);
        if (!layout) return Error(layout.error()).WithTensor(entry.name);
        chunk.file = files_.at(chunk.shard);
        chunk.encoding = ChunkEncoding::kRaw;
        std::int64_t& size = catalog.files[static_cast<std::size_t>(chunk.file)].identity.size;
        auto data = CheckedAdd(size, layout->header_size + kPage);
        if (!data) return TooLarge();
        *data -= kPage;
        if (layout->data_size >= kAlignFrom) data = RoundUp(*data, kPage);
        const auto end = CheckedAdd(*data, layout->data_size + layout->trailer_size);
        if (!end) return TooLarge();
        chunk.bytes = {*data, layout->data_size};
        size = *end;
      }
    }
    return OkStatus();
  }

  Status PrepareSmallFiles(const Catalog& catalog) {
    if (flavour_ == DcpFlavour::kMegatron) CROSSDOCK_RETURN_IF_ERROR(PrepareMegatronFiles(catalog));
    metadata_size_ = 0;
    return Emit(catalog, [&](std::string_view piece) -> Status {
      metadata_size_ += static_cast<std::int64_t>(piece.size());
      return OkStatus();
    });
  }

  Status PrepareMegatronFiles(const Catalog& catalog) {
    if (const auto common = catalog.objects.find("common"); common != catalog.objects.end()) {
      CROSSDOCK_ASSIGN_OR_RETURN(std::string bytes, torch_zip::WriteTorchFile(common->second, "common"));
      small_files_.emplace_back("common.pt", std::move(bytes));
    }
    const auto json = catalog.objects.find("metadata.json");
    small_files_.emplace_back("metadata.json",
                              json == catalog.objects.end() ? std::string(kStandardJson) : ToJson(json->second, 0));
    return OkStatus();
  }

  Status Emit(const Catalog& catalog, const dcp::Sink& sink) const {
    const auto paths = catalog.objects.find("planner_data");
    const dcp::Besides besides{scalars_, paths == catalog.objects.end() ? nullptr : &paths->second};
    return dcp::EmitMetadata(
        catalog, besides,
        [&](const Entry& entry, const Chunk& chunk) -> Result<dcp::BlobPlace> {
          CROSSDOCK_ASSIGN_OR_RETURN(const auto layout, torch_zip::LayOutBlob(entry.dtype, chunk.box.sizes));
          return dcp::BlobPlace{catalog.files[static_cast<std::size_t>(chunk.file)].path,
                                {chunk.bytes.offset - layout.header_size, layout.total()}};
        },
        sink);
  }

  /// What an interrupted run left in the staging directory.
  static Status RemoveLeftover(io::Storage& storage, const std::string& path) {
    return io::Exists(storage, path) ? storage.RemoveFile(path) : OkStatus();
  }

  DcpFlavour flavour_;
  bool laid_out_ = false;
  std::vector<dcp::ScalarPlace> scalars_;
  std::map<std::int32_t, std::int32_t> files_;        // shard -> index of its file
  std::vector<std::pair<std::string, std::string>> small_files_;  // in the order of writing
  std::int64_t metadata_size_ = 0;
};

}  // namespace

std::unique_ptr<CheckpointWriter> MakeDcpWriter(DcpFlavour flavour) { return std::make_unique<DcpWriter>(flavour); }

}  // namespace crossdock::formats
