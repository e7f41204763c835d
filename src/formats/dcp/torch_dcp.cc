// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/torch_dcp.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/checked_math.h"
#include "base/digits.h"
#include "fmt/format.h"

namespace crossdock::formats::dcp {
namespace {

constexpr std::string_view kModel = "model.";
constexpr std::string_view kOptimizer = "optimizer.";

/// Lists of the optimizer's dict, as parts of a key: of parameter groups, of groups of masters and of the masters in them. What is
/// numbered otherwise is a dict.
bool IsList(const std::vector<std::string>& path) {
  const std::size_t size = path.size();
  if (size >= 1 && (path[size - 1] == "param_groups" || path[size - 1] == "fp32_from_fp16_params")) return true;
  return size >= 2 && path[size - 2] == "fp32_from_fp16_params";
}

/// The dict on its way from joined keys: lists are dicts by number until all their items are there.
struct Tree {
  std::map<std::string, Tree, std::less<>> children;
  std::optional<Value> leaf;
};

/// No dict of a checkpoint is nested deeper; a longer rest of a key is one part.
constexpr int kMostNesting = 16;

void Insert(std::string_view key, Value value, Tree* tree) {
  for (int depth = 1; depth < kMostNesting; ++depth) {
    const std::size_t dot = key.find('.');
    if (dot == std::string_view::npos) break;
    tree = &tree->children[std::string(key.substr(0, dot))];
    key.remove_prefix(dot + 1);
  }
  tree->children[std::string(key)].leaf = std::move(value);
}

/// A number as a key is an integer: DCP writes both kinds alike, and the dicts here have no other.
std::optional<std::int64_t> NumberOf(std::string_view part) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
  return OnlyDigits(part) && error == std::errc{} ? std::optional(number) : std::nullopt;
}

/// A list where the numbers are 0, 1, ...; a gap stays a dict, which its reader refuses.
Value AsList(ValueDict items) {
  std::ranges::sort(items, {}, [](const auto& item) { return *item.first.as_int(); });
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (*items[i].first.as_int() != static_cast<std::int64_t>(i)) return Value::MakeDict(std::move(items));
  }
  ValueList list;
  for (auto& [key, item] : items) list.push_back(std::move(item));
  return Value::MakeList(std::move(list));
}

/// `path` leads to `tree` within the optimizer; its root is a list where a chain of optimizers was saved.
Result<Value> ToValue(Tree tree, bool lists, std::vector<std::string>* path) {
  if (tree.leaf && !tree.children.empty()) {
    std::string key;
    for (const std::string& part : *path) key += (key.empty() ? "" : ".") + part;
    return MakeError(ErrorCode::kCorrupt, "a key of a checkpoint is a value and the dict of further keys").WithTensor(key)
        .WithExpected("one of both").WithFound(fmt::format("`{}` and `{}.{}`", Printable(key), Printable(key), Printable(tree.children.begin()->first)))
        .WithHint("save the run again, to an empty directory");
  }
  if (tree.leaf) return *std::move(tree.leaf);
  ValueDict items;
  bool numbered = true;
  for (auto& [part, child] : tree.children) {
    const std::optional<std::int64_t> number = NumberOf(part);
    numbered = numbered && number;
    path->push_back(part);
    CROSSDOCK_ASSIGN_OR_RETURN(Value value, ToValue(std::move(child), lists, path));
    path->pop_back();
    items.emplace_back(number ? Value(*number) : Value(part), std::move(value));
  }
  if (lists && numbered && (path->empty() || IsList(*path))) return AsList(std::move(items));
  return Value::MakeDict(std::move(items));
}

Value TensorOf(const Entry& entry) {
  TensorValue out;
  out.dtype = entry.dtype;
  out.shape = entry.shape;
  out.strides = RowMajorStrides(entry.shape);
  out.storage = entry.name;
  out.storage_numel = CheckedCount(entry.shape);
  return Value(std::move(out));
}

/// Under torch's FSDP2 only data-parallel ranks hold parts that DCP tells apart.
Status CheckParallelism(const Value& file) {
  const Value* args = file.Find("args");
  if (args == nullptr) {
    return MakeError(ErrorCode::kIncomplete, "the checkpoint does not say under which parallelism it was saved").WithTensor("args")
        .WithExpected("the run's arguments").WithFound("none that could be read").WithHint("save the run again with `--ckpt-format torch_dist`");
  }
  for (const char* name : {"tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size"}) {
    const std::int64_t ranks = args->GetInt(name).value_or(1);
    if (ranks == 1) continue;
    return MakeError(ErrorCode::kUnsupported, "model-parallel ranks under torch's FSDP2 save different tensors under one name, of which one is left").WithTensor("args")
        .WithExpected(fmt::format("{} 1", name)).WithFound(std::to_string(ranks)).WithHint("save the run again with `--ckpt-format torch_dist`");
  }
  return OkStatus();
}

/// Which of `words` stand in a file, read in blocks that overlap by their length: it may be as large as the run is.
Result<std::vector<bool>> WordsIn(io::Storage& storage, const std::string& path, const std::vector<std::string_view>& words) {
  constexpr std::int64_t kBlock = std::int64_t{4} << 20U, kOverlap = 256;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, storage.OpenRead(path));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
  std::vector<bool> found(words.size(), false);
  std::string block;
  for (std::int64_t at = 0; at < info.size; at += kBlock - kOverlap) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, info.size - at)));
    CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(at, std::as_writable_bytes(std::span(block))));
    for (std::size_t i = 0; i < words.size(); ++i) found[i] = found[i] || block.find(words[i]) != std::string::npos;
    if (std::ranges::all_of(found, std::identity())) break;
  }
  return found;
}

/// The keys of one of the objects of plain_state.h, with their values.
const ValueDict& ItemsOf(const Catalog& catalog, const char* object) {
  static const ValueDict none;
  const auto found = catalog.objects.find(object);
  return found == catalog.objects.end() || found->second.as_dict() == nullptr ? none : found->second.as_dict()->items;
}

Value ModelOf(const std::vector<std::string>& order, const Catalog& catalog) {
  Value model = Value::MakeDict();
  for (const std::string& key : order) {
    const std::int32_t entry = key.starts_with(kModel) ? catalog.Find(key) : -1;
    if (entry >= 0) model.as_dict()->items.emplace_back(Value(key.substr(kModel.size())), TensorOf(catalog.entries[static_cast<std::size_t>(entry)]));
  }
  for (const auto& [key, value] : ItemsOf(catalog, "items")) {  // extra states
    if (key.as_string()->starts_with(kModel)) model.as_dict()->items.emplace_back(Value(key.as_string()->substr(kModel.size())), value);
  }
  return model;
}

}  // namespace

std::optional<MegatronDcp> LooksMegatronDcp(io::Storage& storage, const std::string& dir) {
  const Result<std::vector<bool>> names = WordsIn(storage, io::JoinPath(dir, ".metadata"),
                                                  {"checkpoint_version", "model.module.decoder.layers.", "model.module.module.decoder.layers.", "model.decoder.layers."});
  if (!names || !(*names)[0]) return std::nullopt;
  if ((*names)[1] || (*names)[2]) return MegatronDcp::kFsdpDtensor;
  return (*names)[3] ? std::optional(MegatronDcp::kTorchDcp) : std::nullopt;
}

Status MakeRankFile(const std::vector<std::string>& order, Catalog& catalog) {
  Tree rest, optimizer;
  const auto add = [&](const std::string& key, Value value) {
    if (key.starts_with(kOptimizer)) {
      Insert(std::string_view(key).substr(kOptimizer.size()), std::move(value), &optimizer);
    } else if (!key.starts_with(kModel)) {
      Insert(key, std::move(value), &rest);
    }
  };
  for (const char* object : {"items", "scalars"}) {
    for (const auto& [key, value] : ItemsOf(catalog, object)) add(*key.as_string(), value);
  }
  for (const Entry& entry : catalog.entries) {
    if (entry.name.starts_with(kOptimizer)) add(entry.name, TensorOf(entry));
  }
  std::vector<std::string> path;
  CROSSDOCK_ASSIGN_OR_RETURN(Value file, ToValue(std::move(rest), false, &path));
  CROSSDOCK_RETURN_IF_ERROR(CheckParallelism(file));
  file.Set("model", ModelOf(order, catalog));
  if (!optimizer.children.empty()) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value state, ToValue(std::move(optimizer), true, &path));
    file.Set("optimizer", std::move(state));
  }
  std::erase_if(catalog.entries, [](const Entry& entry) { return !entry.name.starts_with(kModel) && !entry.name.starts_with(kOptimizer); });
  catalog.object_refs.clear();
  catalog.objects.erase("items");
  catalog.objects.erase("scalars");
  catalog.objects[kRankFile] = std::move(file);
  catalog.objects[kByDcp] = Value(true);
  catalog.format = "mp_rank";
  return OkStatus();
}

}  // namespace crossdock::formats::dcp
