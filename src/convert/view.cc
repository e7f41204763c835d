// SPDX-License-Identifier: Apache-2.0
// A read is a small conversion: the tensor's expression cut to the box, planned over the stored tensors that it stands on and no others,
// and worked off with the caller's memory in the place of a file.
#include "convert/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "convert/convert_source.h"
#include "convert/scratch_dir.h"
#include "convert/source.h"
#include "convert/target.h"
#include "crossdock/nearest.h"
#include "execute/executor.h"
#include "formats/live/buffer_storage.h"
#include "formats/live/live.h"
#include "plan/planner.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): the room's own names

/// A few tensors of a checkpoint, as a checkpoint: what a plan over one tensor costs does not depend on how many others there are.
class SomeTensors final : public formats::CheckpointReader {
 public:
  SomeTensors(const formats::CheckpointReader& all, std::vector<int> entries) : all_(all), entries_(std::move(entries)) {
    const Catalog& from = all.catalog();
    catalog_.format = from.format;
    catalog_.root = from.root;
    std::map<std::int32_t, std::int32_t> files;
    for (const int entry : entries_) {
      catalog_.entries.push_back(from.entries[static_cast<std::size_t>(entry)]);
      for (Chunk& chunk : catalog_.entries.back().chunks) {
        const auto [place, added] = files.emplace(chunk.file, static_cast<std::int32_t>(catalog_.files.size()));
        if (added) catalog_.files.push_back(from.files[static_cast<std::size_t>(chunk.file)]);
        chunk.file = place->second;
      }
    }
  }
  const Catalog& catalog() const override { return catalog_; }
  Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override { return all_.Locate(Of(entry), chunk); }
  Result<std::unique_ptr<formats::ElementStream>> OpenEncoded(std::int32_t entry, std::int32_t chunk, const io::ReadFile& file) const override {
    return all_.OpenEncoded(Of(entry), chunk, file);
  }
  Result<Value> LoadObject(const ObjectRef& ref) const override { return all_.LoadObject(ref); }

  /// The place of an entry of the whole checkpoint among these.
  [[nodiscard]] int PlaceOf(int entry) const {
    return static_cast<int>(std::ranges::find(entries_, entry) - entries_.begin());
  }

 private:
  [[nodiscard]] std::int32_t Of(std::int32_t entry) const { return entries_[static_cast<std::size_t>(entry)]; }
  const formats::CheckpointReader& all_;
  const std::vector<int> entries_;   ///< of the whole checkpoint, ascending
  Catalog catalog_;
};

/// Nothing was asked for that changes what a Hugging Face directory holds.
bool AsStored(const formats::Found& found, const ConvertOptions& options) {
  const ConvertOptions none;
  return found.kind == formats::Kind::kHf && !options.dtype && options.keep_dtype.empty() && options.experts == none.experts && options.mtp == none.mtp &&
         options.params_from == none.params_from && !options.hf_template && !options.family && !options.rules && options.set_args.empty() && !options.scan_axis;
}

std::vector<std::pair<std::string, std::string>> MetadataOf(const Catalog& catalog) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto found = catalog.objects.find("__metadata__");
  const Value::Dict* dict = found == catalog.objects.end() ? nullptr : found->second.as_dict();
  if (dict == nullptr) return {{"format", "pt"}};
  for (const auto& [key, value] : dict->items) {
    if (key.as_string() != nullptr && value.as_string() != nullptr) out.emplace_back(*key.as_string(), *value.as_string());
  }
  return out;
}

class SourceView final : public View {
 public:
  explicit SourceView(io::Storage& storage) : storage_(&storage) {}
  explicit SourceView(std::unique_ptr<io::Storage> storage) : owned_(std::move(storage)), storage_(owned_.get()) {}

  Status Prepare(ConvertOptions options, const Hooks& hooks) {
    if (hooks.on_progress) hooks.on_progress({"reading metadata", 0, 0, ""});
    options.to = "hf";
    options.no_optim = options.params_from != "master";   // where the master weights are
    memory_ = options.memory;
    threads_ = ThreadCount(options.threads);
    allow_nonfinite_ = Allows(options, "nonfinite");
    const SourceRequest request = RequestOf(options);
    CROSSDOCK_ASSIGN_OR_RETURN(source_, OpenSource(*storage_, request));
    notices_ = source_.found.notices;
    Tell(source_.reader->catalog().notices);
    if (AsStored(source_.found, options)) {
      TakeStored();
    } else {
      CROSSDOCK_RETURN_IF_ERROR(ReadSourceHub(request, &source_));
      CROSSDOCK_ASSIGN_OR_RETURN(dialects::TargetState state, ArrangeTarget(source_, formats::Kind::kHf, options));
      Tell(source_.hub.notices);
      Tell(state.notices);
      metadata_ = MetadataOf(state.catalog);
      for (std::size_t i = 0; i < state.exprs.size(); ++i) Take(state.catalog.entries[i], std::move(state.exprs[i]));
      source_.hub = {};
      source_.view.reset();
    }
    if (hooks.on_notice) {
      for (const std::string& notice : notices_) hooks.on_notice(notice);
    }
    return OkStatus();
  }

  const std::vector<ViewTensor>& tensors() const override { return tensors_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override { return metadata_; }
  const std::vector<std::string>& notices() const override { return notices_; }

  std::vector<std::size_t> InFileOrder() const override {
    using Place = std::tuple<std::int32_t, std::int64_t, std::size_t>;
    std::vector<Place> places;
    for (std::size_t i = 0; i < exprs_.size(); ++i) {
      Place first{INT32_MAX, 0, i};
      for (const int leaf : expr::LeafOrdinals(exprs_[i])) {
        for (const Chunk& chunk : source_.reader->catalog().entries[static_cast<std::size_t>(leaf)].chunks) {
          first = std::min(first, Place{chunk.file, chunk.bytes.offset, i});
        }
      }
      places.push_back(first);
    }
    std::ranges::sort(places);
    std::vector<std::size_t> out;
    for (const Place& place : places) out.push_back(std::get<2>(place));
    return out;
  }

  Result<std::size_t> Find(std::string_view name) const override {
    const auto found = std::ranges::lower_bound(tensors_, name, {}, &ViewTensor::name);
    if (found != tensors_.end() && found->name == name) return static_cast<std::size_t>(found - tensors_.begin());
    std::vector<std::string_view> known;
    for (const ViewTensor& tensor : tensors_) known.emplace_back(tensor.name);
    return MakeError(ErrorCode::kUsage, "there is no such tensor").WithPath(source_.found.path).WithTensor(std::string(name)).WithHint(DidYouMean(name, known));
  }

  Result<std::int64_t> Read(std::size_t index, const ViewBox& wanted, std::span<std::byte> out, const Hooks& hooks) const override {
    CROSSDOCK_ASSIGN_OR_RETURN(const Box box, BoxOf(index, wanted));
    const expr::Expr& whole = exprs_[index];
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(whole->dtype, box.sizes));
    if (static_cast<std::int64_t>(out.size()) != bytes) {
      return MakeError(ErrorCode::kUsage, "the memory given has another size than what is to be read")
          .WithTensor(tensors_[index].name)
          .WithExpected(fmt::format("{} bytes", bytes))
          .WithFound(fmt::format("{} bytes", out.size()));
    }
    if (bytes == 0) return std::int64_t{0};
    return Fill(index, box, out, hooks);
  }

 private:
  void Tell(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      if (std::ranges::find(notices_, line) == notices_.end()) notices_.push_back(line);
    }
  }

  void Take(const Entry& entry, expr::Expr expr) {
    const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
    tensors_.push_back({entry.name, std::string(DTypeName(entry.dtype)), {entry.shape.begin(), entry.shape.end()}, bytes ? *bytes : 0});
    exprs_.push_back(std::move(expr));
  }

  void TakeStored() {
    const Catalog& catalog = source_.reader->catalog();
    metadata_ = MetadataOf(catalog);
    for (std::size_t i = 0; i < catalog.entries.size(); ++i) {
      const Entry& entry = catalog.entries[i];
      Take(entry, expr::Leaf(static_cast<int>(i), entry.dtype, entry.shape));
    }
  }

  Result<Box> BoxOf(std::size_t index, const ViewBox& wanted) const {
    Box box;
    CROSSDOCK_ASSIGN_OR_RETURN(box.offsets, Dims::FromSpan(wanted.offsets));
    CROSSDOCK_ASSIGN_OR_RETURN(box.sizes, Dims::FromSpan(wanted.sizes));
    const Shape& shape = exprs_[index]->shape;
    if (box.offsets.size() == box.sizes.size() && box.FitsIn(shape)) return box;
    return MakeError(ErrorCode::kUsage, "the region does not lie within the tensor")
        .WithTensor(tensors_[index].name)
        .WithExpected("a region of " + ToString(shape))
        .WithFound(box.offsets.size() == box.sizes.size() ? ToString(box) : "offsets and sizes of different lengths");
  }

  Result<std::int64_t> Fill(std::size_t index, const Box& box, std::span<std::byte> out, const Hooks& hooks) const {
    CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr part, expr::Slice(exprs_[index], box));
    part = expr::Simplify(part);
    std::vector<int> leaves = expr::LeafOrdinals(part);
    std::ranges::sort(leaves);
    leaves.erase(std::ranges::unique(leaves).begin(), leaves.end());
    const SomeTensors source(*source_.reader, leaves);
    const auto leaf = [&](int entry) -> Result<expr::Expr> {
      const int place = source.PlaceOf(entry);
      const Entry& stored = source.catalog().entries[static_cast<std::size_t>(place)];
      return expr::Leaf(place, stored.dtype, stored.shape);
    };
    CROSSDOCK_ASSIGN_OR_RETURN(part, expr::Substitute(part, leaf));

    Catalog wanted;
    Chunk chunk;
    chunk.box = Box::Whole(box.sizes);
    wanted.entries.push_back({tensors_[index].name, Slot::kParam, part->dtype, box.sizes, {std::move(chunk)}});
    const auto writer = formats::live::MakeLiveWriter();
    CROSSDOCK_ASSIGN_OR_RETURN(const formats::Placement placement, writer->LayOut(std::move(wanted)));
    plan::PlanOptions how_planned;
    how_planned.memory = memory_;
    how_planned.threads = threads_;
    CROSSDOCK_ASSIGN_OR_RETURN(const plan::Plan plan, plan::MakePlan(source.catalog(), placement.catalog, std::span(&part, 1), how_planned));

    formats::live::BufferStorage memory("memory");
    CROSSDOCK_RETURN_IF_ERROR(memory.Add(placement.catalog.files.front().path, out));
    ScratchDir scratch(*storage_);
    if (HoldsEncoded(source.catalog())) {
      CROSSDOCK_RETURN_IF_ERROR(scratch.Make());
      memory.KeepOthersIn(*storage_, scratch.path());
    }
    execute::ExecuteOptions how;
    how.threads = threads_;
    how.memory = memory_;
    how.allow_nonfinite = allow_nonfinite_;
    how.into_existing = true;
    how.exact_reads = true;
    how.stop = hooks.stop;
    how.on_progress = [&hooks](const execute::Progress& p) {
      if (hooks.on_progress) hooks.on_progress({"reading", p.bytes_done, p.bytes_total, p.current});
    };
    CROSSDOCK_ASSIGN_OR_RETURN(const execute::ExecuteReport report, execute::Execute(plan, *storage_, source, memory, memory.root(), placement, {}, *writer, how));
    return report.bytes_read;
  }

  const std::unique_ptr<io::Storage> owned_;
  io::Storage* const storage_;
  Source source_;
  std::vector<ViewTensor> tensors_;
  std::vector<expr::Expr> exprs_;   ///< one a tensor; leaves are entries of the reader's catalog
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<std::string> notices_;
  std::int64_t memory_ = 0;
  int threads_ = 1;
  bool allow_nonfinite_ = false;
};

Result<std::unique_ptr<View>> Prepared(std::unique_ptr<SourceView> view, const ConvertOptions& options, const Hooks& hooks) {
  CROSSDOCK_RETURN_IF_ERROR(view->Prepare(options, hooks));
  return std::unique_ptr<View>(std::move(view));
}

}  // namespace

namespace convert {

Result<std::unique_ptr<View>> OpenView(io::Storage& storage, const ConvertOptions& options, const Hooks& hooks) {
  return Prepared(std::make_unique<SourceView>(storage), options, hooks);
}

}  // namespace convert

Result<std::unique_ptr<View>> View::Open(const ConvertOptions& options, const Hooks& hooks) {
  return Prepared(std::make_unique<SourceView>(io::MakeLocalStorage()), options, hooks);
}

}  // namespace crossdock
