// SPDX-License-Identifier: Apache-2.0
#include "convert/lora_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/names.h"
#include "dialects/maxtext/step_words.h"
#include "dialects/tunix/view.h"
#include "kernels/cast.h"

namespace crossdock::convert {
namespace {

using formats::ElementStream;

constexpr std::string_view kFirst = "_lora_a";
constexpr std::string_view kSecond = "_lora_b";
constexpr std::string_view kAlpha = "lora_alpha";
constexpr int kScanAxis = 1;
constexpr std::size_t kKernelsKept = 4;

/// How the axes of a kernel fall to its factors. `scanned` >= 0: layers lie along that axis, which is none of the others.
struct Division {
  int scanned = -1;
  std::vector<std::size_t> in, out;         ///< axes of the kernel
  std::int64_t layers = 1, rows = 1, columns = 1, rank = 1;
};

/// The factors of one kernel, as [layers][rows][rank] and [layers][rank][columns].
struct Factors {
  std::vector<float> a, b;
};

std::int64_t ProductOf(const Shape& shape, const std::vector<std::size_t>& axes) {
  std::int64_t out = 1;
  for (const std::size_t axis : axes) out *= shape[axis];
  return out;
}

/// Nothing where the shapes do not fit each other.
std::optional<Division> Divide(const Shape& kernel, const Shape& a, const Shape& b, bool scanned) {
  Division out;
  if (a.size() < 2 || b.size() < 2 || a.back() != b[0]) return std::nullopt;
  out.rank = a.back();
  std::int64_t rows = CheckedCount(a) / out.rank;
  std::int64_t columns = CheckedCount(b) / out.rank;
  if (scanned) {
    if (kernel.size() < 3 || a.size() < 3 || b.size() < 3 || a[kScanAxis] != kernel[kScanAxis] || b[kScanAxis] != kernel[kScanAxis]) return std::nullopt;
    out.scanned = kScanAxis;
    out.layers = kernel[kScanAxis];
    rows /= out.layers;
    columns /= out.layers;
  }
  for (std::size_t axis = 0; axis < kernel.size(); ++axis) {
    if (static_cast<int>(axis) == out.scanned) continue;
    (ProductOf(kernel, out.in) < rows ? out.in : out.out).push_back(axis);
  }
  out.rows = ProductOf(kernel, out.in);
  out.columns = ProductOf(kernel, out.out);
  const bool fits = out.rows == rows && out.columns == columns && !out.out.empty() && out.out.back() == kernel.size() - 1;
  return fits ? std::optional(out) : std::nullopt;
}

/// All elements of a stored array as F32, row-major.
Result<std::vector<float>> ReadWhole(io::Storage& storage, const formats::CheckpointReader& reader, std::int32_t index) {
  const Catalog& catalog = reader.catalog();
  const Entry& entry = catalog.entries[static_cast<std::size_t>(index)];
  const auto element = static_cast<std::size_t>(ElementSize(entry.dtype));
  std::vector<float> out(static_cast<std::size_t>(CheckedCount(entry.shape)));
  const Dims strides = RowMajorStrides(entry.shape);
  for (std::size_t c = 0; c < entry.chunks.size(); ++c) {
    const Chunk& chunk = entry.chunks[c];
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(io::JoinPath(catalog.root, catalog.files[static_cast<std::size_t>(chunk.file)].path)));
    std::vector<std::byte> bytes(static_cast<std::size_t>(chunk.box.count()) * element);
    if (chunk.encoding == ChunkEncoding::kEncoded) {
      CROSSDOCK_ASSIGN_OR_RETURN(const auto stream, reader.OpenEncoded(index, static_cast<std::int32_t>(c), *file));
      CROSSDOCK_RETURN_IF_ERROR(stream->Read(bytes));
    } else {
      CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange range, reader.Locate(index, static_cast<std::int32_t>(c)));
      CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(range.offset, bytes));
    }
    for (std::int64_t i = 0; i < chunk.box.count(); ++i) {
      std::int64_t rest = i;
      std::int64_t at = 0;
      for (std::size_t axis = entry.shape.size(); axis-- > 0;) {
        at += (chunk.box.offsets[axis] + rest % chunk.box.sizes[axis]) * strides[axis];
        rest /= chunk.box.sizes[axis];
      }
      out[static_cast<std::size_t>(at)] = static_cast<float>(kernels::LoadAsDouble(bytes.data() + static_cast<std::size_t>(i) * element, entry.dtype));
    }
  }
  return out;
}

/// Layers first: `axis` 1 of the array goes before the first axis.
std::vector<float> LayersFirst(std::vector<float> values, std::int64_t first, std::int64_t layers) {
  if (layers == 1) return values;
  std::vector<float> out(values.size());
  const auto rest = static_cast<std::int64_t>(values.size()) / (first * layers);
  for (std::int64_t i = 0; i < first; ++i) {
    for (std::int64_t l = 0; l < layers; ++l) {
      std::copy_n(values.begin() + (i * layers + l) * rest, rest, out.begin() + (l * first + i) * rest);
    }
  }
  return out;
}

/// Bytes of a chunk that is stored as it is.
class RawStream final : public ElementStream {
 public:
  RawStream(const io::ReadFile& file, std::int64_t offset) : file_(file), at_(offset) {}
  Status Read(std::span<std::byte> out) override {
    CROSSDOCK_RETURN_IF_ERROR(file_.ReadAt(at_, out));
    at_ += static_cast<std::int64_t>(out.size());
    return OkStatus();
  }

 private:
  const io::ReadFile& file_;
  std::int64_t at_;
};

/// A chunk of a kernel with what the factors add, a row of its last axis at a time.
class MergedStream final : public ElementStream {
 public:
  MergedStream(std::unique_ptr<ElementStream> kernel, const Entry& entry, Box box, const Division& division, std::shared_ptr<const Factors> factors, double scale)
      : kernel_(std::move(kernel)), dtype_(entry.dtype), shape_(entry.shape), box_(std::move(box)), division_(division), factors_(std::move(factors)), scale_(scale),
        row_(static_cast<std::size_t>(box_.sizes.back() * ElementSize(dtype_))), done_(row_.size()), sums_(static_cast<std::size_t>(box_.sizes.back())) {}

  Status Read(std::span<std::byte> out) override {
    while (!out.empty()) {
      if (done_ == row_.size()) CROSSDOCK_RETURN_IF_ERROR(NextRow());
      const std::size_t n = std::min(out.size(), row_.size() - done_);
      std::copy_n(row_.begin() + static_cast<std::ptrdiff_t>(done_), n, out.begin());
      done_ += n;
      out = out.subspan(n);
    }
    return OkStatus();
  }

 private:
  Status NextRow() {
    CROSSDOCK_RETURN_IF_ERROR(kernel_->Read(row_));
    Dims at = box_.offsets;
    std::int64_t rest = next_++;
    for (std::size_t axis = shape_.size() - 1; axis-- > 0;) {
      at[axis] += rest % box_.sizes[axis];
      rest /= box_.sizes[axis];
    }
    const std::int64_t layer = division_.scanned < 0 ? 0 : at[static_cast<std::size_t>(division_.scanned)];
    const std::int64_t row = Flat(at, division_.in);
    const float* a = factors_->a.data() + (layer * division_.rows + row) * division_.rank;
    const float* b = factors_->b.data() + layer * division_.rank * division_.columns + Flat(at, division_.out);
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for (std::int64_t r = 0; r < division_.rank; ++r) {
      const double weight = a[r];
      const float* column = b + r * division_.columns;
      for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += weight * static_cast<double>(column[i]);
    }
    const auto size = static_cast<std::size_t>(ElementSize(dtype_));
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      std::byte* element = row_.data() + i * size;
      kernels::StoreFromDouble(kernels::LoadAsDouble(element, dtype_) + scale_ * sums_[i], element, dtype_);
    }
    done_ = 0;
    return OkStatus();
  }

  [[nodiscard]] std::int64_t Flat(const Dims& at, const std::vector<std::size_t>& axes) const {
    std::int64_t out = 0;
    for (const std::size_t axis : axes) out = out * shape_[axis] + at[axis];
    return out;
  }

  std::unique_ptr<ElementStream> kernel_;
  const DType dtype_;
  const Shape shape_;
  const Box box_;
  const Division division_;
  const std::shared_ptr<const Factors> factors_;
  const double scale_;
  std::int64_t next_ = 0;
  std::vector<std::byte> row_;
  std::size_t done_;
  std::vector<double> sums_;
};

/// What is merged into one kernel: entries of the adapters' reader.
struct Pair {
  std::int32_t a = -1, b = -1;
  Division division;
};

class MergedReader final : public formats::CheckpointReader {
 public:
  struct Parts {
    io::Storage* storage = nullptr;
    std::unique_ptr<formats::CheckpointReader> base, adapters;
    Catalog catalog;
    std::vector<std::int32_t> of;           ///< entries of the base, for each of `catalog`
    std::map<std::int32_t, Pair> pairs;     ///< by entry of `catalog`
    double alpha = 1;
  };
  explicit MergedReader(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] const Catalog& catalog() const override { return parts_.catalog; }

  [[nodiscard]] Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    if (!parts_.pairs.contains(entry)) return parts_.base->Locate(Of(entry), chunk);
    const Entry& e = parts_.catalog.entries[static_cast<std::size_t>(entry)];
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(e.dtype, e.chunks[static_cast<std::size_t>(chunk)].box.sizes));
    return ByteRange{0, bytes};
  }

  [[nodiscard]] Result<std::unique_ptr<ElementStream>> OpenEncoded(std::int32_t entry, std::int32_t chunk, const io::ReadFile& file) const override {
    const auto pair = parts_.pairs.find(entry);
    if (pair == parts_.pairs.end()) return parts_.base->OpenEncoded(Of(entry), chunk, file);
    const Entry& stored = parts_.base->catalog().entries[static_cast<std::size_t>(Of(entry))];
    std::unique_ptr<ElementStream> kernel;
    if (stored.chunks[static_cast<std::size_t>(chunk)].encoding == ChunkEncoding::kEncoded) {
      CROSSDOCK_ASSIGN_OR_RETURN(kernel, parts_.base->OpenEncoded(Of(entry), chunk, file));
    } else {
      CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange range, parts_.base->Locate(Of(entry), chunk));
      kernel = std::make_unique<RawStream>(file, range.offset);
    }
    CROSSDOCK_ASSIGN_OR_RETURN(std::shared_ptr<const Factors> factors, FactorsOf(entry, pair->second));
    const double scale = parts_.alpha / static_cast<double>(pair->second.division.rank);
    return std::unique_ptr<ElementStream>(
        std::make_unique<MergedStream>(std::move(kernel), stored, stored.chunks[static_cast<std::size_t>(chunk)].box, pair->second.division, std::move(factors), scale));
  }

  [[nodiscard]] Result<Value> LoadObject(const ObjectRef& ref) const override { return parts_.base->LoadObject(ref); }

 private:
  [[nodiscard]] std::int32_t Of(std::int32_t entry) const { return parts_.of[static_cast<std::size_t>(entry)]; }

  /// Chunks of one kernel follow each other: the last few kernels' factors are kept.
  Result<std::shared_ptr<const Factors>> FactorsOf(std::int32_t entry, const Pair& pair) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [at, factors] : kept_) {
      if (at == entry) return factors;
    }
    const Division& division = pair.division;
    auto made = std::make_shared<Factors>();
    CROSSDOCK_ASSIGN_OR_RETURN(made->a, ReadWhole(*parts_.storage, *parts_.adapters, pair.a));
    CROSSDOCK_ASSIGN_OR_RETURN(made->b, ReadWhole(*parts_.storage, *parts_.adapters, pair.b));
    if (division.scanned >= 0) {
      made->a = LayersFirst(std::move(made->a), parts_.adapters->catalog().entries[static_cast<std::size_t>(pair.a)].shape[0], division.layers);
      made->b = LayersFirst(std::move(made->b), division.rank, division.layers);
    }
    if (kept_.size() == kKernelsKept) kept_.erase(kept_.begin());
    kept_.emplace_back(entry, made);
    return std::shared_ptr<const Factors>(made);
  }

  const Parts parts_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<std::int32_t, std::shared_ptr<const Factors>>> kept_;
};

/// A step by MaxText's names, over what its reader has.
struct Seen {
  Catalog catalog;
  std::vector<std::int32_t> entry_of;
};

Result<Seen> SeeStep(const formats::CheckpointReader& reader, formats::Kind kind) {
  Seen out;
  if (kind == formats::Kind::kTunix) {
    CROSSDOCK_ASSIGN_OR_RETURN(dialects::tunix::View view, dialects::tunix::SeeAsMaxText(reader.catalog()));
    out.catalog = std::move(view.catalog);
    out.entry_of = std::move(view.entry_of);
    return out;
  }
  out.catalog = reader.catalog();
  for (std::size_t i = 0; i < out.catalog.entries.size(); ++i) out.entry_of.push_back(static_cast<std::int32_t>(i));
  return out;
}

Result<double> AlphaOf(const SourceRequest& request, const Catalog& adapters) {
  for (const auto& [key, text] : request.set_args) {
    if (key != kAlpha) continue;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && std::isfinite(value)) return value;
    return MakeError(ErrorCode::kUsage, "`--set lora_alpha` takes a number").WithFound(Printable(text));
  }
  const auto metadata = adapters.objects.find("custom_metadata");
  for (const char* path : {"lora_alpha", "lora.lora_alpha", "lora.alpha"}) {
    const auto said = metadata == adapters.objects.end() ? std::nullopt : metadata->second.GetFloat(path);
    if (said) return *said;
  }
  return MakeError(ErrorCode::kUsage, "the step does not say LoRA's alpha, by which its adapters are scaled").WithPath(adapters.root)
      .WithExpected("lora_alpha in its custom metadata").WithHint("say it with --set lora_alpha=VALUE");
}

bool IsScanned(std::string_view name) { return name.find(".layers.") != std::string_view::npos || name.find("_layers.") != std::string_view::npos; }

bool IsOfModel(std::string_view name) { return name.starts_with("params.") || name.starts_with("nnx_aux.model."); }

}  // namespace

Status MergeLora(io::Storage& storage, const SourceRequest& request, Source* source) {
  if (!request.lora_base) return OkStatus();
  if (!formats::IsOrbax(source->found.kind)) {
    return MakeError(ErrorCode::kUsage, "`--lora-base` merges adapters of a Tunix or MaxText step").WithPath(source->found.path).WithFound(std::string(formats::KindName(source->found.kind)));
  }
  // Adapters of one step belong to the weights of that step, not to the newest of the run.
  const bool same_run = io::AbsolutePath(*request.lora_base) == io::AbsolutePath(request.path);
  CROSSDOCK_ASSIGN_OR_RETURN(const formats::Found base, formats::Recognise(storage, *request.lora_base, same_run ? request.step : std::nullopt, std::nullopt));
  if (!formats::IsOrbax(base.kind)) {
    return MakeError(ErrorCode::kUsage, "the base of LoRA's adapters must be a step of MaxText or Tunix, whose names they have").WithPath(base.path)
        .WithFound(std::string(formats::KindName(base.kind))).WithHint("convert it first: `--to maxtext`, layers scanned or not as the adapters'");
  }
  MergedReader::Parts parts;
  parts.storage = &storage;
  CROSSDOCK_ASSIGN_OR_RETURN(parts.base, formats::Open(storage, base));
  parts.adapters = std::move(source->reader);
  CROSSDOCK_ASSIGN_OR_RETURN(const Seen weights, SeeStep(*parts.base, base.kind));
  CROSSDOCK_ASSIGN_OR_RETURN(const Seen adapters, SeeStep(*parts.adapters, source->found.kind));
  CROSSDOCK_ASSIGN_OR_RETURN(parts.alpha, AlphaOf(request, adapters.catalog));

  Catalog& made = parts.catalog;
  made = weights.catalog;
  made.entries.clear();
  made.step = adapters.catalog.step;
  for (std::size_t i = 0; i < weights.catalog.entries.size(); ++i) {
    const Entry& entry = weights.catalog.entries[i];
    if (!IsOfModel(entry.name) || dialects::tunix::IsLora(entry.name)) continue;
    made.entries.push_back(entry);
    parts.of.push_back(weights.entry_of[i]);
  }
  std::vector<std::string> missing;
  std::vector<std::string> beside;
  for (std::size_t i = 0; i < adapters.catalog.entries.size(); ++i) {
    const Entry& a = adapters.catalog.entries[i];
    if (!IsOfModel(a.name)) continue;
    if (a.name.ends_with(kSecond)) {
      const std::string first = a.name.substr(0, a.name.size() - kSecond.size()) + std::string(kFirst);
      if (adapters.catalog.Find(first) < 0) missing.push_back(first);
      continue;
    }
    if (!a.name.ends_with(kFirst)) {
      beside.push_back(a.name);
      continue;
    }
    const std::string kernel = a.name.substr(0, a.name.size() - kFirst.size());
    const std::int32_t at = made.Find(kernel);
    const std::int32_t second = adapters.catalog.Find(kernel + std::string(kSecond));
    if (at < 0 || second < 0) {
      missing.push_back(at < 0 ? kernel : kernel + std::string(kSecond));
      continue;
    }
    Entry& entry = made.entries[static_cast<std::size_t>(at)];
    const Entry& b = adapters.catalog.entries[static_cast<std::size_t>(second)];
    const std::optional<Division> division = Divide(entry.shape, a.shape, b.shape, IsScanned(kernel));
    if (!division || !IsFloating(entry.dtype) || !IsFloating(a.dtype) || !IsFloating(b.dtype)) {
      return MakeError(ErrorCode::kCorrupt, "an adapter does not fit the weight that it belongs to").WithPath(made.root).WithTensor(kernel)
          .WithExpected(fmt::format("a kernel that {} times {} makes", ToString(a.shape), ToString(b.shape))).WithFound(fmt::format("{} {}", DTypeName(entry.dtype), ToString(entry.shape)));
    }
    for (Chunk& chunk : entry.chunks) chunk.encoding = ChunkEncoding::kEncoded;
    parts.pairs[at] = {adapters.entry_of[i], adapters.entry_of[static_cast<std::size_t>(second)], *division};
  }
  if (!missing.empty()) {
    return MakeError(ErrorCode::kIncomplete, "adapters belong to weights that are not there").WithPath(made.root).WithTensor(missing.front()).WithExpected(SomeNames(missing))
        .WithHint("the base is of the same model, and its layers are scanned or not as the adapters' are");
  }
  if (parts.pairs.empty()) {
    return MakeError(ErrorCode::kUsage, "`--lora-base` is given, but the source holds no adapters of LoRA").WithPath(source->found.path).WithExpected("arrays `..._lora_a` and `..._lora_b`");
  }
  if (!beside.empty() && base.path != source->found.path) {
    made.notices.push_back(fmt::format("ATTENTION: of the adapters' step the adapters alone are taken; {} other arrays of the model, which may have been trained too, are not, and the base's stand: {}", beside.size(), SomeNames(beside)));
  }
  Value scalars = Value::MakeDict();
  const auto counted = adapters.catalog.objects.find("scalars");
  if (const Value* step = counted == adapters.catalog.objects.end() ? nullptr : counted->second.Find("step")) scalars.Set("step", *step);
  made.objects["scalars"] = std::move(scalars);
  const auto metadata = adapters.catalog.objects.find("custom_metadata");
  made.objects["custom_metadata"] = metadata == adapters.catalog.objects.end() ? Value::MakeDict() : dialects::maxtext::WordsOfStep(metadata->second);
  made.notices.push_back(fmt::format("adapters of LoRA in {} are merged into {} kernels: W + {} / rank a b, rounded to the weights' dtypes; the way back does not give the base's again", Printable(source->found.path), parts.pairs.size(), parts.alpha));
  made.notices.emplace_back("the optimizer's state is left out: the adapters' belongs to them, the base's is of before");
  source->also_read = source->found.path;
  source->found = base;
  source->found.kind = formats::Kind::kMaxText;
  source->found.step = adapters.catalog.step;
  source->reader = std::make_unique<MergedReader>(std::move(parts));
  return OkStatus();
}

}  // namespace crossdock::convert
