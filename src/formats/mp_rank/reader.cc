// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "formats/dcp/object_files.h"
#include "formats/mp_rank/mp_rank.h"
#include "formats/mp_rank/rank_dirs.h"
#include "formats/mp_rank/tensor_paths.h"
#include "formats/placed_reader.h"
#include "formats/torch_zip/torch_file.h"
#include "formats/torch_zip/view_chunks.h"

namespace crossdock::formats::mp_rank {
namespace {

constexpr std::int64_t kMostChunks = std::int64_t{1} << 22U;     // of one file
constexpr std::int64_t kLargestLoaded = std::int64_t{1} << 20U;  // bytes of a tensor that travels with the object
constexpr std::int64_t kMostLoaded = std::int64_t{64} << 20U;    // bytes of all such tensors of a file

/// State that belongs to the object rather than to the tensors: see FORMAT.md, "What we read".
bool IsSmallState(std::string_view file, std::string_view path, const TensorValue& tensor) {
  if (CheckedCount(tensor.shape) == 0) return true;
  const bool model_file = file == kModelFile;
  if (model_file && path.starts_with("model")) return false;
  if (tensor.shape.empty()) return true;
  const bool optimizer = !model_file || path.starts_with("optimizer");
  return !optimizer || path.find("/grad_scaler/") != std::string_view::npos;
}

/// One torch file: its tensors become entries, its object is kept.
class FileReader {
 public:
  FileReader(io::Storage& storage, const std::string& dir, std::string_view file, Catalog* catalog)
      : storage_(storage), name_(io::JoinPath(dir, file)), file_(file), catalog_(*catalog) {}

  Status Read() {
    const std::string path = io::JoinPath(catalog_.root, name_);
    CROSSDOCK_ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, storage_.OpenRead(path));
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
    CROSSDOCK_ASSIGN_OR_RETURN(const torch_zip::TorchFile torch, torch_zip::ReadTorchFile(*file, {0, info.size}));
    number_ = static_cast<std::int32_t>(catalog_.files.size());
    catalog_.files.push_back({name_, {info.size, info.mtime_ns, info.inode}});
    Result<Value> value = MapTensorPaths(torch.value, "", [&](const std::string& place, const TensorValue& t) -> Result<TensorValue> {
      Result<TensorValue> out = IsSmallState(file_, place, t) ? Load(*file, torch, t) : AddEntry(torch, name_ + "#" + place, t);
      if (!out) return std::move(out).error().WithPath(path).WithTensor(place);
      return out;
    });
    if (!value) return std::move(value).error();
    catalog_.objects[name_] = std::move(value).value();
    return OkStatus();
  }

 private:
  Result<TensorValue> Load(const io::ReadFile& file, const torch_zip::TorchFile& torch, const TensorValue& tensor) {
    CROSSDOCK_ASSIGN_OR_RETURN(TensorValue out, torch_zip::LoadTensor(file, torch, tensor, std::min(kLargestLoaded, kMostLoaded - loaded_)));
    loaded_ += static_cast<std::int64_t>(out.bytes->size());
    return out;
  }

  Result<TensorValue> AddEntry(const torch_zip::TorchFile& torch, const std::string& name, const TensorValue& tensor) {
    const auto storage = torch.storages.find(tensor.storage);
    if (storage == torch.storages.end()) return MakeError(ErrorCode::kCorrupt, "a tensor's storage is missing");
    CROSSDOCK_ASSIGN_OR_RETURN(std::vector<Chunk> chunks, torch_zip::ChunksOfView(tensor, storage->second, number_));
    chunks_ += static_cast<std::int64_t>(chunks.size());
    if (chunks_ > kMostChunks) {
      return MakeError(ErrorCode::kUnsupported, "the views of a file are scattered over too many pieces of their storages")
          .WithExpected("at most " + std::to_string(kMostChunks))
          .WithHint("save the checkpoint with contiguous tensors");
    }
    catalog_.entries.push_back({name, Slot::kParam, tensor.dtype, tensor.shape, std::move(chunks)});
    TensorValue out;
    out.dtype = tensor.dtype;
    out.shape = tensor.shape;
    out.strides = RowMajorStrides(tensor.shape);
    out.storage = name;
    out.storage_numel = CheckedCount(tensor.shape);
    return out;
  }

  io::Storage& storage_;
  std::string name_;        // relative to the iteration
  std::string file_;        // its last part
  Catalog& catalog_;
  std::int32_t number_ = -1;
  std::int64_t loaded_ = 0;
  std::int64_t chunks_ = 0;
};

Result<Catalog> ReadCatalog(io::Storage& storage, const std::string& dir) {
  Catalog catalog;
  catalog.format = "mp_rank";
  catalog.root = io::AbsolutePath(dir);
  catalog.step = dcp::StepOfIteration(catalog.root);
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<RankDir> ranks, ListRankDirs(storage, catalog.root));
  for (const RankDir& rank : ranks) {
    CROSSDOCK_RETURN_IF_ERROR(FileReader(storage, rank.name, kModelFile, &catalog).Read());
    if (rank.distributed) CROSSDOCK_RETURN_IF_ERROR(FileReader(storage, rank.name, kDistributedFile, &catalog).Read());
    for (const std::string& other : rank.others) {
      const bool muon = other.starts_with("layer_wise_optimizer_");
      catalog.notices.push_back("`" + Printable(io::JoinPath(rank.name, other)) + "` is not read" +
                                (muon ? ": it holds the state of layer-wise Muon" : ""));
    }
  }
  catalog.SortEntries();
  const auto same = [](const Entry& a, const Entry& b) { return a.name == b.name; };
  const auto twice = std::ranges::adjacent_find(catalog.entries, same);
  if (twice != catalog.entries.end()) {
    return MakeError(ErrorCode::kUnsupported, "two tensors of a file have the same path").WithPath(catalog.root).WithTensor(twice->name);
  }
  CROSSDOCK_RETURN_IF_ERROR(dcp::LoadHfFolder(storage, catalog.root, catalog));
  return catalog;
}

}  // namespace

Result<std::unique_ptr<CheckpointReader>> OpenMpRank(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, ReadCatalog(storage, dir));
  return std::unique_ptr<CheckpointReader>(std::make_unique<PlacedReader>(std::move(catalog), "the files of ranks"));
}

}  // namespace crossdock::formats::mp_rank
