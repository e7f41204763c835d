// SPDX-License-Identifier: Apache-2.0
// A file is laid out in one pass over its object: the pickle names its storages in the order of first use, and the zip has its
// entries in that order. Names, sizes and positions are all known then; only the CRC-32s of the tensors are not:
//  1. LayOut's frames hold every byte that is no tensor's, with CRCs of zero;
//  2. when a tensor is written, Seal gives its CRC for the two places where it stands. Whatever the order, and however often the
//     run is interrupted and resumed, the bytes in the end are the same.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/endian.h"
#include "formats/mp_rank/mp_rank.h"
#include "formats/mp_rank/rank_dirs.h"
#include "formats/pickle/writer.h"
#include "formats/torch_zip/zip_writer.h"

namespace crossdock::formats::mp_rank {
namespace {

using torch_zip::ZipWriter;

class MpRankWriter final : public CheckpointWriter {
 public:
  Result<Placement> LayOut(Catalog target) override {
    CROSSDOCK_CHECK(!laid_out_);
    laid_out_ = true;
    Placement out;
    Catalog& catalog = out.catalog;
    catalog = std::move(target);
    catalog.format = "mp_rank";
    catalog.files.clear();
    places_.resize(catalog.entries.size());
    for (const std::string& name : FileNames(catalog)) CROSSDOCK_RETURN_IF_ERROR(PlaceFile(name, catalog, out.frames));
    for (const Entry& entry : catalog.entries) {
      if (entry.chunks.at(0).file < 0) return Misplaced(entry.name, "a place in a file's object", "none");
    }
    out.wants_crc32 = true;
    return out;
  }

  Result<std::vector<Frame>> Seal(const Catalog& placed, std::int32_t entry_index, std::int32_t chunk_index,
                                  std::uint32_t crc32) const override {
    const auto index = static_cast<std::size_t>(entry_index);
    const Chunk& chunk = placed.entries.at(index).chunks.at(static_cast<std::size_t>(chunk_index));
    std::string bytes(sizeof(crc32), '\0');
    StoreLittle(bytes.data(), crc32);
    return std::vector<Frame>{{chunk.file, places_[index].header, bytes}, {chunk.file, places_[index].directory, bytes}};
  }

  Status WriteMetadata(const Catalog& /*placed*/, io::Storage& /*storage*/, const std::string& /*dir*/) override { return OkStatus(); }
  std::vector<FileRef> MetadataFiles() const override { return {}; }

 private:
  /// In the order in which a reader finds them: by rank, the model's file first.
  static std::vector<std::string> FileNames(const Catalog& catalog) {
    std::vector<std::string> out;
    for (const auto& [name, value] : catalog.objects) {
      if (IsRankDir(io::ParentPath(name))) out.push_back(name);
    }
    std::ranges::sort(out, {}, [](const std::string& name) {
      return std::pair(io::ParentPath(name), std::pair(io::BaseName(name) != kModelFile, io::BaseName(name)));
    });
    return out;
  }

  /// The dialect's names and its objects must agree; that they do not is an error of this program, told as such.
  static Error Misplaced(const std::string& name, std::string expected, std::string found) {
    return MakeError(ErrorCode::kUnsupported, "a tensor and the object it belongs to contradict each other")
        .WithTensor(name)
        .WithExpected(std::move(expected))
        .WithFound(std::move(found));
  }

  Status PlaceFile(const std::string& name, Catalog& catalog, std::vector<Frame>& frames) {
    const auto file = static_cast<std::int32_t>(catalog.files.size());
    Result<pickle::Pickled> pickled = pickle::WritePickle(catalog.objects.at(name), pickle::Outside::kAllowed);
    if (!pickled) return std::move(pickled).error().WithPath(name);
    const std::string base = io::BaseName(name);
    ZipWriter zip(base.substr(0, base.rfind('.')));
    std::int64_t begin = 0;
    const auto flush = [&](std::string bytes, std::int64_t next) {
      frames.push_back({file, begin, std::move(bytes)});
      begin = next;
    };
    zip.Add("data.pkl", pickled->bytes);
    zip.Add("byteorder", "little");
    std::size_t entries = 2;
    std::vector<std::pair<std::size_t, std::size_t>> holes;   // entry of the catalog, entry of the zip
    auto outside = pickled->outside.cbegin();
    for (std::size_t i = 0; i < pickled->storages.size(); ++i, ++entries) {
      const std::string key = "data/" + std::to_string(i);
      if (pickled->storages[i] != nullptr) {
        zip.Add(key, *pickled->storages[i]);
        continue;
      }
      CROSSDOCK_ASSIGN_OR_RETURN(const std::size_t index, EntryOf(catalog, *outside++));
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t size, ByteSize(catalog.entries[index].dtype, catalog.entries[index].shape));
      zip.AddHole(key, size, 0);
      const auto end = CheckedAdd(zip.position(), size);
      if (!end) return MakeError(ErrorCode::kUnsupported, "an output file would be too large").WithPath(name);
      Chunk& chunk = catalog.entries[index].chunks[0];
      chunk.file = file;
      chunk.bytes = {zip.position(), size};
      chunk.encoding = ChunkEncoding::kRaw;
      holes.emplace_back(index, entries);
      flush(zip.TakeHead(), *end);
    }
    zip.Add("version", "3\n");
    std::string tail = zip.Finish();
    const std::int64_t size = begin + static_cast<std::int64_t>(tail.size());
    flush(std::move(tail), size);
    for (const auto& [index, entry] : holes) places_[index] = zip.PlacesOf(entry);
    catalog.files.push_back({name, {size, 0, 0}});
    return OkStatus();
  }

  /// The entry that a tensor of an object stands for, each once.
  static Result<std::size_t> EntryOf(const Catalog& catalog, const TensorValue& tensor) {
    const std::int32_t found = catalog.Find(tensor.storage);
    if (found < 0) return Misplaced(tensor.storage, "an entry of that name", "none");
    const Entry& entry = catalog.entries[static_cast<std::size_t>(found)];
    if (entry.dtype != tensor.dtype || entry.shape != tensor.shape) {
      return Misplaced(entry.name, ToString(entry.shape), ToString(tensor.shape));
    }
    if (entry.chunks.size() != 1 || entry.chunks[0].file >= 0) return Misplaced(entry.name, "one chunk in one place", "another");
    return static_cast<std::size_t>(found);
  }

  bool laid_out_ = false;
  std::vector<ZipWriter::CrcPlaces> places_;                 // by entry
};

}  // namespace

std::unique_ptr<CheckpointWriter> MakeMpRankWriter() { return std::make_unique<MpRankWriter>(); }

}  // namespace crossdock::formats::mp_rank
