// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/metadata_writer.h"

#include <array>

#include "formats/pickle/emitter.h"
#include "formats/pickle/torch_names.h"

namespace crossdock::formats::dcp {
namespace {

constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata";
constexpr std::size_t kPiece = 1 << 20;
/// Items of a dict under one mark; a reader keeps them on its stack. Python's own pickler uses the same.
constexpr int kBatch = 1000;

class MetadataEmitter {
 public:
  MetadataEmitter(const Catalog& catalog, const Besides& besides,
                  const std::function<Result<BlobPlace>(const Entry&, const Chunk&)>& place, const Sink& sink)
      : catalog_(catalog), besides_(besides), place_(place), sink_(sink) {}

  Status Run() {
    out_.Start();
    OpenObject(kMetadata, "Metadata");
    CROSSDOCK_RETURN_IF_ERROR(StateDict());
    CROSSDOCK_RETURN_IF_ERROR(PlannerData());
    CROSSDOCK_RETURN_IF_ERROR(StorageData());
    out_.MemoText("storage_meta");
    out_.Null();
    CloseObject();
    out_.Stop();
    return sink_(out_.Flush());
  }

 private:
  void OpenObject(std::string_view module, std::string_view name) {
    out_.Global(module, name);
    out_.EmptyTuple();
    out_.NewObj();
    out_.EmptyDict();
    out_.Mark();
  }
  void CloseObject() {
    out_.SetItems();
    out_.Build();
  }

  /// After each item of a dict that was opened with StartItems.
  Status NextItem() {
    if (++batch_ == kBatch) {
      out_.SetItems();
      out_.Mark();
      batch_ = 0;
    }
    return out_.bytes().size() < kPiece ? OkStatus() : sink_(out_.Flush());
  }
  void StartItems(std::string_view key) {
    out_.MemoText(key);
    out_.EmptyDict();
    out_.Mark();
    batch_ = 0;
  }

  void Properties(DType dtype) {
    out_.MemoText("properties");
    out_.Global(kMetadata, "TensorProperties");
    out_.EmptyTuple();
    out_.NewObj();
    out_.Mark();
    out_.Global("torch", pickle::TorchName(dtype));
    out_.Global("torch.serialization", "_get_layout");
    out_.Mark();
    out_.MemoText("torch.strided");
    out_.TupleFromMark();
    out_.Reduce();
    out_.Bool(false);
    out_.Global(kMetadata, "_MEM_FORMAT_ENCODING");
    out_.Mark();
    out_.Int(0);
    out_.TupleFromMark();
    out_.Reduce();
    out_.Bool(false);
    out_.TupleFromMark();
    out_.Build();
  }

  void Tensor(DType dtype, const Shape& shape, std::span<const Chunk> chunks) {
    OpenObject(kMetadata, "TensorStorageMetadata");
    Properties(dtype);
    out_.MemoText("size");
    out_.Size(shape);
    out_.MemoText("chunks");
    out_.EmptyList();
    out_.Mark();
    for (const Chunk& chunk : chunks) {
      OpenObject(kMetadata, "ChunkStorageMetadata");
      out_.MemoText("offsets");
      out_.Size(chunk.box.offsets);
      out_.MemoText("sizes");
      out_.Size(chunk.box.sizes);
      CloseObject();
    }
    out_.Appends();
    CloseObject();
  }

  /// Where each flat key lies in the nested dict that was saved.
  Status PlannerData() {
    if (besides_.planner_data == nullptr) {
      out_.MemoText("planner_data");
      out_.Null();
      return OkStatus();
    }
    StartItems("planner_data");
    for (const auto& [key, path] : besides_.planner_data->as_dict()->items) {
      out_.MemoText(*key.as_string());
      out_.Mark();
      for (const Value& step : *path.as_sequence()) {
        if (const std::int64_t* index = step.as_int()) {
          out_.Int(*index);
        } else {
          out_.MemoText(*step.as_string());
        }
      }
      out_.TupleFromMark();
      CROSSDOCK_RETURN_IF_ERROR(NextItem());
    }
    out_.SetItems();
    return OkStatus();
  }

  Status StateDict() {
    StartItems("state_dict_metadata");
    for (const Entry& entry : catalog_.entries) {
      out_.MemoText(entry.name);
      Tensor(entry.dtype, entry.shape, entry.chunks);
      CROSSDOCK_RETURN_IF_ERROR(NextItem());
    }
    for (const ScalarPlace& scalar : besides_.scalars) {
      out_.MemoText(scalar.name);
      Tensor(scalar.dtype, {}, std::array{Chunk{}});
      CROSSDOCK_RETURN_IF_ERROR(NextItem());
    }
    for (const ObjectRef& object : catalog_.object_refs) {
      out_.MemoText(object.name);
      out_.Global(kMetadata, "BytesStorageMetadata");
      out_.EmptyTuple();
      out_.NewObj();
      CROSSDOCK_RETURN_IF_ERROR(NextItem());
    }
    out_.SetItems();
    return OkStatus();
  }

  void Index(const std::string& name, const Dims* offsets) {
    OpenObject(kMetadata, "MetadataIndex");
    out_.MemoText("fqn");
    out_.MemoText(name);
    if (offsets != nullptr) {
      out_.MemoText("offset");
      out_.Size(*offsets);
    }
    CloseObject();
  }

  void Info(const BlobPlace& place) {
    OpenObject("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out_.MemoText("relative_path");
    out_.MemoText(place.file);
    out_.MemoText("offset");
    out_.Int(place.bytes.offset);
    out_.MemoText("length");
    out_.Int(place.bytes.length);
    CloseObject();
  }

  Status StorageData() {
    StartItems("storage_data");
    for (const Entry& entry : catalog_.entries) {
      for (const Chunk& chunk : entry.chunks) {
        CROSSDOCK_ASSIGN_OR_RETURN(const BlobPlace place, place_(entry, chunk));
        Index(entry.name, &chunk.box.offsets);
        Info(place);
        CROSSDOCK_RETURN_IF_ERROR(NextItem());
      }
    }
    const Dims nowhere{};
    for (const ScalarPlace& scalar : besides_.scalars) {
      Index(scalar.name, &nowhere);
      Info({catalog_.files[static_cast<std::size_t>(scalar.file)].path, scalar.bytes});
      CROSSDOCK_RETURN_IF_ERROR(NextItem());
    }
    for (const ObjectRef& object : catalog_.object_refs) {
      Index(object.name, nullptr);
      Info({catalog_.files[static_cast<std::size_t>(object.file)].path, object.bytes});
      CROSSDOCK_RETURN_IF_ERROR(NextItem());
    }
    out_.SetItems();
    return OkStatus();
  }

  const Catalog& catalog_;
  const Besides& besides_;
  const std::function<Result<BlobPlace>(const Entry&, const Chunk&)>& place_;
  const Sink& sink_;
  pickle::Emitter out_;
  int batch_ = 0;
};

}  // namespace

Status EmitMetadata(const Catalog& catalog, const Besides& besides,
                    const std::function<Result<BlobPlace>(const Entry&, const Chunk&)>& place, const Sink& sink) {
  return MetadataEmitter(catalog, besides, place, sink).Run();
}

}  // namespace crossdock::formats::dcp
