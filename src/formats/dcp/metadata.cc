// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/metadata.h"

#include <algorithm>
#include <unordered_map>

#include "base/checked_math.h"
#include "formats/pickle/machine.h"
#include "formats/pickle/tensors.h"
#include "formats/pickle/torch_names.h"

namespace crossdock::formats::dcp {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

/// Parts in flight: at most the chunks of one tensor and a thousand items of a dict.
constexpr std::int64_t kMaxGraphBytes = std::int64_t{1} << 30;
constexpr std::int64_t kNoTensor = -1;
/// Handles of tensors are even, those of chunks odd, so that none is taken for the other.
std::int64_t TensorHandle(std::size_t index) { return static_cast<std::int64_t>(index) * 2; }
std::int64_t ChunkHandle(std::int64_t place) { return place * 2 + 1; }

Error Malformed(std::string what) {
  return MakeError(ErrorCode::kCorrupt, "the metadata of a checkpoint is malformed: " + std::move(what));
}

/// The class of an object, without its module: classes have moved between modules.
std::string_view ClassName(const Graph& graph, NodeId node) {
  const NodeId callee = graph.part(node, pickle::kCallee);
  return callee == kNoNode ? std::string_view() : graph.name(callee);
}

bool IsPlan(std::string_view name) {
  return name == "WriteItem" || name == "TensorWriteData" || name == "SavePlan" || name == "MCoreSavePlan";
}

NodeId Field(const Graph& graph, NodeId object, std::string_view key) {
  return graph.Find(graph.part(object, pickle::kState), key);
}

class Collector : public pickle::Observer {
 public:
  Metadata Take() { return std::move(out_); }
  [[nodiscard]] bool complete() const { return complete_; }

  Result<bool> OnBuild(Graph& graph, NodeId object, NodeId state) override {
    const std::string_view name = ClassName(graph, object);
    if (name == "TensorStorageMetadata") {
      CROSSDOCK_ASSIGN_OR_RETURN(StoredTensor tensor, ReadTensor(graph, state));
      out_.tensors.push_back(std::move(tensor));
      graph.Collapse(object, TensorHandle(out_.tensors.size() - 1));
      return true;
    }
    if (name == "ChunkStorageMetadata") {
      // The cached plans refer to each chunk again, so that every one of them stays: it has to be small.
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t place, ReadChunk(graph, state));
      graph.Collapse(object, ChunkHandle(place));
      return true;
    }
    if (IsPlan(name)) {  // cached plans of the next save, as large as all the rest
      graph.Collapse(object, kNoTensor);
      return true;
    }
    if (name == "Metadata" || name == "MCoreMetadata") {
      // Pickle fills dicts before it stores them, so they were consumed already; what is left came in another way.
      for (std::string_view part : {"state_dict_metadata", "storage_data", "mcore_data"}) {
        const NodeId dict = graph.Find(state, part);
        if (dict == kNoNode && part != "mcore_data") return Malformed("no " + std::string(part)).WithFound("another object");
        const std::vector<NodeId> items = dict == kNoNode ? std::vector<NodeId>()
                                                          : std::vector<NodeId>(graph.refs(dict).begin(), graph.refs(dict).end());
        for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
          CROSSDOCK_RETURN_IF_ERROR(AddItem(graph, part, items[i], items[i + 1]));
        }
      }
      complete_ = true;
    }
    return false;
  }

  Result<bool> OnSetItem(Graph& graph, NodeId below, NodeId key, NodeId value) override {
    const std::string* part = below == kNoNode ? nullptr : graph.as_string(below);
    if (part == nullptr || (*part != "state_dict_metadata" && *part != "storage_data" && *part != "mcore_data")) return false;
    CROSSDOCK_RETURN_IF_ERROR(AddItem(graph, *part, key, value));
    return true;
  }

  Result<bool> OnAppend(Graph& graph, NodeId below, NodeId) override {
    const std::string* part = below == kNoNode ? nullptr : graph.as_string(below);
    return part != nullptr && *part == "all_local_plans";
  }

 private:
  Status AddItem(const Graph& graph, std::string_view part, NodeId key, NodeId value) {
    if (part == "storage_data") return AddPlace(graph, key, value);
    const std::string* name = graph.as_string(key);
    if (name == nullptr) return Malformed("a key that is no string");
    if (part == "mcore_data") {
      if (graph.Find(value, "nd_reformulated_orig_global_shape") != kNoNode) out_.flattened.push_back(*name);
      return OkStatus();
    }
    if (graph.kind(value) == NodeKind::kHandle) return NameTensor(std::get<std::int64_t>(graph.node(value).payload), *name);
    if (ClassName(graph, value) != "BytesStorageMetadata") return Malformed("`" + Printable(*name) + "` is neither tensor nor object");
    out_.objects.push_back(*name);
    return OkStatus();
  }

  Status NameTensor(std::int64_t index, const std::string& name) {
    if (index < 0 || index % 2 != 0) return Malformed("`" + Printable(name) + "` is neither tensor nor object");
    StoredTensor& tensor = out_.tensors[static_cast<std::size_t>(index / 2)];
    if (!tensor.name.empty()) return Malformed("two keys share one tensor").WithTensor(name);
    if (name.empty()) return Malformed("a tensor without a name");
    tensor.name = name;
    return OkStatus();
  }

  Result<StoredTensor> ReadTensor(const Graph& graph, NodeId state) {
    StoredTensor out;
    CROSSDOCK_RETURN_IF_ERROR(ReadProperties(graph, graph.Find(state, "properties"), out));
    const NodeId size = graph.Find(state, "size");
    const NodeId chunks = graph.Find(state, "chunks");
    if (size == kNoNode || chunks == kNoNode || graph.kind(chunks) != NodeKind::kList) return Malformed("a tensor without size or chunks");
    CROSSDOCK_ASSIGN_OR_RETURN(out.shape, ReadDims(graph, size));
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const std::int64_t count, ElementCount(out.shape));
    out.boxes.reserve(graph.refs(chunks).size());
    for (NodeId node : graph.refs(chunks)) {
      const std::int64_t handle = graph.kind(node) == NodeKind::kHandle ? std::get<std::int64_t>(graph.node(node).payload) : kNoTensor;
      if (handle < 0 || handle % 2 == 0) return Malformed("a chunk without offsets or sizes");
      out.boxes.push_back(static_cast<std::uint64_t>(handle / 2));
    }
    return out;
  }

  /// Puts a chunk's box among the coordinates; the answer is its place there.
  Result<std::int64_t> ReadChunk(const Graph& graph, NodeId state) {
    const NodeId offsets = graph.Find(state, "offsets");
    const NodeId sizes = graph.Find(state, "sizes");
    if (offsets == kNoNode || sizes == kNoNode) return Malformed("a chunk without offsets or sizes");
    CROSSDOCK_ASSIGN_OR_RETURN(const Dims at, ReadDims(graph, offsets));
    CROSSDOCK_ASSIGN_OR_RETURN(const Dims size, ReadDims(graph, sizes));
    if (at.size() != size.size()) return Malformed("a chunk whose offsets and sizes differ in their number of axes");
    const auto place = static_cast<std::int64_t>(out_.coordinates.size());
    out_.coordinates.push_back(static_cast<std::int64_t>(at.size()));
    out_.coordinates.insert(out_.coordinates.end(), at.begin(), at.end());
    out_.coordinates.insert(out_.coordinates.end(), size.begin(), size.end());
    return place;
  }

  /// State of TensorProperties: a tuple whose first item is the dtype, or (before 2.0) a dict.
  Status ReadProperties(const Graph& graph, NodeId properties, StoredTensor& out) {
    const NodeId state = properties == kNoNode ? kNoNode : graph.part(properties, pickle::kState);
    if (state == kNoNode) return Malformed("a tensor without properties");
    NodeId dtype = graph.Find(state, "dtype");
    if (graph.kind(state) == NodeKind::kTuple && !graph.refs(state).empty()) dtype = graph.refs(state)[0];
    if (dtype == kNoNode || graph.kind(dtype) != NodeKind::kGlobal) return Malformed("a tensor without a dtype");
    out.torch_dtype = graph.QualifiedName(dtype);
    if (graph.module(dtype) == "torch") out.dtype = pickle::DTypeFromTorch(graph.name(dtype));
    return OkStatus();
  }

  Result<Dims> ReadDims(const Graph& graph, NodeId node) {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto dims, pickle::DimsFrom(graph, node));
    if (!dims) return Malformed("a size that is no tuple of integers");
    if (std::any_of(dims->begin(), dims->end(), [](std::int64_t v) { return v < 0; })) return Malformed("a negative size");
    return *dims;
  }

  Status AddPlace(const Graph& graph, NodeId key, NodeId value) {
    const NodeId name = Field(graph, key, "fqn");
    const NodeId offset = Field(graph, key, "offset");
    const std::string* text = name == kNoNode ? nullptr : graph.as_string(name);
    if (text == nullptr) return Malformed("an item of storage_data without a key");
    Place place;
    place.name = Intern(*text, name_ids_, out_.names);
    if (offset != kNoNode && graph.kind(offset) != NodeKind::kNull) {
      CROSSDOCK_ASSIGN_OR_RETURN(const Dims dims, ReadDims(graph, offset));
      place.offsets = out_.coordinates.size();
      place.rank = static_cast<std::uint8_t>(dims.size());
      out_.coordinates.insert(out_.coordinates.end(), dims.begin(), dims.end());
    }
    CROSSDOCK_RETURN_IF_ERROR(ReadStorageInfo(graph, value, *text, place));
    out_.places.push_back(place);
    return OkStatus();
  }

  Status ReadStorageInfo(const Graph& graph, NodeId info, const std::string& name, Place& place) {
    const NodeId path = Field(graph, info, "relative_path");
    const NodeId offset = Field(graph, info, "offset");
    const NodeId length = Field(graph, info, "length");
    const std::string* file = path == kNoNode ? nullptr : graph.as_string(path);
    const std::int64_t* start = offset == kNoNode ? nullptr : graph.as_int(offset);
    const std::int64_t* size = length == kNoNode ? nullptr : graph.as_int(length);
    if (file == nullptr || start == nullptr || size == nullptr || *start < 0 || *size < 0 || !CheckedAdd(*start, *size)) {
      return Malformed("an item without file, offset or length").WithTensor(name);
    }
    const NodeId transforms = Field(graph, info, "transform_descriptors");
    if (transforms != kNoNode && !(graph.kind(transforms) == NodeKind::kNull || graph.refs(transforms).empty())) {
      std::string found;
      for (const NodeId item : graph.refs(transforms)) {
        if (const std::string* text = graph.as_string(item)) found += (found.empty() ? "`" : ", `") + Printable(*text) + "`";
      }
      return MakeError(ErrorCode::kUnsupported, "the data of a checkpoint is transformed (compressed) in its files")
          .WithTensor(name)
          .WithExpected("plain torch zips")
          .WithFound(std::move(found))
          .WithHint("save it again without stream transforms");
    }
    CROSSDOCK_RETURN_IF_ERROR(io::CheckRelativePath(*file));
    if (file->find('/') != std::string::npos) {
      return MakeError(ErrorCode::kUnsafe, "the metadata of a checkpoint names a file in another directory")
          .WithTensor(name)
          .WithFound(Printable(*file));
    }
    place.file = Intern(*file, file_ids_, out_.files);
    place.bytes = {*start, *size};
    return OkStatus();
  }

  static std::uint32_t Intern(const std::string& text, std::unordered_map<std::string, std::uint32_t>& ids,
                              std::vector<std::string>& all) {
    const auto [at, fresh] = ids.emplace(text, static_cast<std::uint32_t>(all.size()));
    if (fresh) all.push_back(text);
    return at->second;
  }

  Metadata out_;
  bool complete_ = false;
  std::unordered_map<std::string, std::uint32_t> name_ids_;  // looked up only
  std::unordered_map<std::string, std::uint32_t> file_ids_;
};

}  // namespace

Dims Metadata::OffsetsOf(const Place& place) const {
  Dims out;
  for (std::uint8_t i = 0; i < place.rank; ++i) out.push_back(coordinates[*place.offsets + i]);
  return out;
}

Box Metadata::BoxAt(std::uint64_t number) const {
  Box box;
  const auto rank = static_cast<std::uint64_t>(coordinates[number]);
  for (std::uint64_t i = 0; i < rank; ++i) {
    box.offsets.push_back(coordinates[number + 1 + i]);
    box.sizes.push_back(coordinates[number + 1 + rank + i]);
  }
  return box;
}

Result<Metadata> ParseMetadata(pickle::ByteSource& source) {
  Graph graph(kMaxGraphBytes);
  Collector collector;
  pickle::Machine machine(graph, &collector);
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const NodeId root, machine.Run(source));
  if (!collector.complete()) return Malformed("it holds something else").WithPath(source.path());
  Metadata out = collector.Take();
  std::erase_if(out.tensors, [](const StoredTensor& t) { return t.name.empty(); });  // never stored under a key
  return out;
}

}  // namespace crossdock::formats::dcp
