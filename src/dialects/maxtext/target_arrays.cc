// SPDX-License-Identifier: Apache-2.0
#include "base/names.h"
#include "dialects/maxtext/target_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "dialects/maxtext/chunk_grid.h"

namespace crossdock::dialects::maxtext {
namespace {

using expr::Expr;
using family::DialectTensor;

/// optax's quintic Newton-Schulz coefficients: state of the optimizer, hence part of the checkpoint.
constexpr std::array kCoefficients = {3.4445, -4.775, 2.0315};

class Builder {
 public:
  explicit Builder(const TargetRequest& request)
      : hub_(*request.hub), family_(*request.hub->family), binding_(*request.binding), options_(*request.options), consumer_(request.consumer), step_(request.step) {
    for (const HubTensor& tensor : hub_.tensors) {
      tensors_[{tensor.name, tensor.slot}] = &tensor;
      present_[static_cast<std::size_t>(tensor.slot)] = true;
    }
    for (const DialectTensor& bias : binding_.biases) biases_[bias.name] = &bias;
  }

  Result<TargetArrays> Run() {
    CROSSDOCK_RETURN_IF_ERROR(ChooseOptimizer());
    if (options_.params_from_master && !Has(Slot::kMaster)) {
      return MakeError(ErrorCode::kIncomplete, "--params-from master needs master weights, which the source does not hold");
    }
    for (const DialectTensor& tensor : binding_.tensors) {
      const auto bias = biases_.find(tensor.name);
      CROSSDOCK_RETURN_IF_ERROR(bias == biases_.end() ? One(tensor) : Bias(tensor, *bias->second));
    }
    CROSSDOCK_RETURN_IF_ERROR(ReportMissing());
    Counters();
    Finish();
    return std::move(out_);
  }

 private:
  // ---- the hub ----

  [[nodiscard]] bool Has(Slot slot) const { return present_[static_cast<std::size_t>(slot)]; }
  const HubTensor* Find(const std::string& name, Slot slot) const {
    const auto found = tensors_.find({name, slot});
    return found == tensors_.end() ? nullptr : found->second;
  }
  const std::string& HubName(std::int32_t ordinal) const { return family::HubNameOf(binding_.numbered, ordinal); }
  bool All(const DialectTensor& tensor, Slot slot) const {
    return std::all_of(tensor.hub.begin(), tensor.hub.end(), [&](std::int32_t o) { return Find(HubName(o), slot) != nullptr; });
  }
  bool Any(const DialectTensor& tensor, Slot slot) const {
    return std::any_of(tensor.hub.begin(), tensor.hub.end(), [&](std::int32_t o) { return Find(HubName(o), slot) != nullptr; });
  }
  bool Kept(const std::string& name) const { return family::FitsAny(options_.keep_dtype, name) || family::FitsAny(family_.f32_islands, name); }

  Status ChooseOptimizer() {
    const auto wanted = options_.set_args.find("opt_type");
    const std::string type = wanted == options_.set_args.end() ? "" : wanted->second;
    if (Has(Slot::kMuonMu)) form_.kind = OptimizerKind::kMuon;
    if (!Has(Slot::kMuonMu) && Has(Slot::kAdamMu)) form_.kind = type == "adam_pax" ? OptimizerKind::kAdamPax : OptimizerKind::kAdamW;
    form_.linen = consumer_.linen();
    out_.optimizer = form_.kind;
    const bool fits = type.empty() || (form_.kind == OptimizerKind::kMuon ? type == "muon" : form_.kind != OptimizerKind::kNone && (type == "adamw" || type == "adam_pax"));
    if (fits) return OkStatus();
    return MakeError(ErrorCode::kUsage, "the source holds no state of this optimizer")
        .WithExpected(form_.kind == OptimizerKind::kMuon ? "opt_type=muon" : form_.kind == OptimizerKind::kNone ? "no opt_type: there is no optimizer state" : "opt_type=adamw or adam_pax")
        .WithFound(fmt::format("opt_type={}", Printable(type)))
        .WithHint("leave it out, or leave the state behind with --no-optim");
  }

  // ---- expressions ----

  /// The dtype that the hub tensors have in a slot; F32 where they differ.
  std::optional<DType> OwnDType(const DialectTensor& tensor, Slot slot) const {
    std::optional<DType> dtype;
    for (const std::int32_t ordinal : tensor.hub) {
      const DType own = Find(HubName(ordinal), slot)->dtype;
      if (dtype && *dtype != own) return DType::kF32;
      dtype = own;
    }
    return dtype;
  }

  /// A tensor's expression: moved in `dtype`; what is computed with is computed in F32 and cast then.
  Result<Expr> Compose(const DialectTensor& tensor, Slot slot, Slot source, DType dtype) {
    CROSSDOCK_ASSIGN_OR_RETURN(const Expr forward, expr::ForSlot(tensor.forward, slot));
    const bool computed = expr::HasArithmetic(forward);
    CROSSDOCK_ASSIGN_OR_RETURN(Expr made, expr::Substitute(forward, [&](int ordinal) -> Result<Expr> {
      CROSSDOCK_ASSIGN_OR_RETURN(Expr part, family::PartOf(binding_.numbered, ordinal, Find(HubName(ordinal), source)->expr));
      return expr::Cast(std::move(part), computed ? DType::kF32 : dtype);
    }));
    CROSSDOCK_ASSIGN_OR_RETURN(made, expr::Cast(std::move(made), dtype));
    CROSSDOCK_ASSIGN_OR_RETURN(made, PadVocabulary(tensor, std::move(made)));
    return expr::Simplify(made);
  }

  Result<Expr> PadVocabulary(const DialectTensor& tensor, Expr made) const {
    const int axis = VocabularyAxis(tensor.name);
    if (axis < 0 || !options_.padded_vocab) return made;
    Shape shape = made->shape;
    const auto at = static_cast<std::size_t>(axis);
    if (*options_.padded_vocab < shape[at]) {
      return MakeError(ErrorCode::kUsage, "the padded vocabulary is smaller than the vocabulary")
          .WithExpected(fmt::format("--padded-vocab-size of at least {}", shape[at]))
          .WithFound(fmt::format("{}", *options_.padded_vocab));
    }
    shape[at] = *options_.padded_vocab;
    if (shape == made->shape) return made;
    return expr::Pad(std::move(made), Dims::Filled(shape.size(), 0), shape);
  }

  /// Zeros in the form of a tensor, without a source of their own: a part of nothing, padded.
  Result<Expr> Zeros(const DialectTensor& tensor) const {
    const HubTensor& any = *Find(HubName(tensor.hub.front()), Slot::kParam);
    CROSSDOCK_ASSIGN_OR_RETURN(Expr flat, expr::Reshape(any.expr, {CheckedCount(any.shape)}));
    CROSSDOCK_ASSIGN_OR_RETURN(flat, expr::Slice(std::move(flat), Box{{0}, {0}}));
    CROSSDOCK_ASSIGN_OR_RETURN(flat, expr::Cast(std::move(flat), DType::kF32));
    CROSSDOCK_ASSIGN_OR_RETURN(flat, expr::Pad(std::move(flat), Dims{0}, {CheckedCount(tensor.shape)}));
    return expr::Reshape(std::move(flat), tensor.shape);
  }

  DType ParamDType(const DialectTensor& tensor, Slot source) {
    const DType own = *OwnDType(tensor, source);
    const bool keep = std::any_of(tensor.hub.begin(), tensor.hub.end(), [&](std::int32_t o) { return Kept(HubName(o)); });
    const bool computed = expr::HasArithmetic(tensor.forward);
    if (computed) computed_.push_back(tensor.name);
    if (options_.dtype && !keep && IsFloating(own)) {
      if (*options_.dtype != own) ++cast_;
      if (computed && BitsOf(*options_.dtype) < 32) ++rounded_;
      return *options_.dtype;
    }
    return computed ? DType::kF32 : own;
  }

  // ---- arrays ----

  void Row(KeyPath path, std::string_view type) {
    Value row = Value::MakeDict();
    row.Set("path", Value::MakeList(std::move(path)));
    row.Set("value_type", Value(type));
    rows_.push_back(std::move(row));
  }

  /// `tensor` tells the axes of layers and experts.
  void Array(KeyPath path, DType dtype, Expr made, const DialectTensor& tensor) {
    Entry entry{ArrayName(path), Slot::kParam, dtype, made->shape, {}};
    Row(std::move(path), "np.ndarray");
    arrays_.push_back({std::move(entry), std::move(made), {tensor.stack_axis, tensor.expert_axis}});
  }

  /// An array is one chunk; where chunks are compressed, several of a size that follows from all arrays together.
  void CutArrays() {
    std::int64_t total = 0;
    for (const Made& array : arrays_) {
      const Result<std::int64_t> bytes = ByteSize(array.entry.dtype, array.entry.shape);
      total += bytes ? *bytes : 0;
    }
    for (Made& array : arrays_) {
      Entry& entry = array.entry;
      const Shape chunk = options_.zstd_level > 0 ? ChunkShape(entry.shape, ElementSize(entry.dtype), array.stacks, ChunkBytes(total)) : entry.shape;
      entry.chunks = CutIntoChunks(entry.shape, chunk);
    }
  }

  void Scalar(KeyPath path, DType dtype, ValueList values, ValueList shape = {}) {
    Value scalar = Value::MakeDict();
    scalar.Set("dtype", Value(DTypeName(dtype)));
    scalar.Set("shape", Value::MakeList(std::move(shape)));
    scalar.Set("values", Value::MakeList(std::move(values)));
    out_.scalars.Set(ArrayName(path), std::move(scalar));
    Row(std::move(path), "np.ndarray");
  }

  static KeyPath ParamPath(std::string_view name) { return PathTo({Value("params"), Value("params")}, name); }

  /// False when a hub tensor is missing, which is told later with all others.
  bool Complete(const DialectTensor& tensor, Slot slot) {
    for (const std::int32_t ordinal : tensor.hub) {
      if (Find(HubName(ordinal), slot) == nullptr) missing_.push_back(slot == Slot::kParam ? HubName(ordinal) : fmt::format("{} ({})", HubName(ordinal), SlotName(slot)));
    }
    return All(tensor, slot);
  }

  Status Param(const DialectTensor& tensor, KeyPath path) {
    const Slot source = options_.params_from_master && Any(tensor, Slot::kMaster) ? Slot::kMaster : Slot::kParam;
    if (!Complete(tensor, source)) return OkStatus();
    const DType dtype = ParamDType(tensor, source);
    CROSSDOCK_ASSIGN_OR_RETURN(Expr made, Compose(tensor, Slot::kParam, source, dtype));
    const Result<std::int64_t> bytes = ByteSize(dtype, made->shape);
    if (!bytes) return bytes.error();
    bytes_by_dtype_[dtype] += *bytes;
    Array(std::move(path), dtype, std::move(made), tensor);
    return OkStatus();
  }

  Status One(const DialectTensor& tensor) {
    CROSSDOCK_RETURN_IF_ERROR(Param(tensor, ParamPath(tensor.name)));
    if (form_.kind == OptimizerKind::kNone) return OkStatus();
    CROSSDOCK_ASSIGN_OR_RETURN(const bool muon, IsMuons(tensor));
    if (form_.kind == OptimizerKind::kMuon && muon != GoesToMuon(consumer_, tensor.name, tensor.shape.size())) (muon ? not_muon_ : not_adam_).push_back(tensor.name);
    for (const Slot slot : {Slot::kMuonMu, Slot::kAdamMu, Slot::kAdamNu}) {
      if (slot == Slot::kMuonMu && form_.kind != OptimizerKind::kMuon) continue;
      KeyPath path = StatePath(form_, slot, tensor.name);
      if ((slot == Slot::kMuonMu) != muon) {
        Row(std::move(path), "None");
      } else if (Complete(tensor, slot)) {
        const DType dtype = expr::HasArithmetic(tensor.forward) ? DType::kF32 : *OwnDType(tensor, slot);
        CROSSDOCK_ASSIGN_OR_RETURN(Expr made, Compose(tensor, slot, slot, dtype));
        Array(std::move(path), dtype, std::move(made), tensor);
      }
    }
    return OkStatus();
  }

  /// Whose state the source has for a tensor. One array cannot hold both.
  Result<bool> IsMuons(const DialectTensor& tensor) const {
    if (form_.kind != OptimizerKind::kMuon) return false;
    if (All(tensor, Slot::kMuonMu)) return true;
    if (!Any(tensor, Slot::kMuonMu)) return false;
    return MakeError(ErrorCode::kUnsupported, "the layers or experts of one array belong to Muon and to Adam: the tree has no place for that")
        .WithTensor(tensor.name)
        .WithHint(tensor.stack_axis >= 0 ? "--no-scan-layers writes each layer on its own" : "--no-optim leaves the optimizer state behind");
  }

  /// A routed bias: no gradient, hence no moments; older releases have zeros there.
  Status Bias(const DialectTensor& tensor, const DialectTensor& bias) {
    if (consumer_.own_biases()) {
      CROSSDOCK_RETURN_IF_ERROR(Param(bias, ParamPath(bias.name)));
      if (!All(bias, Slot::kParam)) return OkStatus();
      return Param(bias, PathTo({Value("nnx_aux"), Value("model")}, bias.name));
    }
    CROSSDOCK_RETURN_IF_ERROR(Param(tensor, ParamPath(tensor.name)));
    if (form_.kind == OptimizerKind::kNone || !All(tensor, Slot::kParam)) return OkStatus();
    if (form_.kind == OptimizerKind::kMuon) Row(StatePath(form_, Slot::kMuonMu, tensor.name), "None");
    for (const Slot slot : {Slot::kAdamMu, Slot::kAdamNu}) {
      CROSSDOCK_ASSIGN_OR_RETURN(Expr zeros, Zeros(tensor));
      Array(StatePath(form_, slot, tensor.name), DType::kF32, std::move(zeros), tensor);
    }
    return OkStatus();
  }

  Status ReportMissing() const {
    if (missing_.empty()) return OkStatus();
    const bool state = missing_.front().ends_with(')');
    return MakeError(ErrorCode::kIncomplete, fmt::format("the source lacks {} tensors that MaxText's checkpoint must hold", missing_.size()))
        .WithTensor(missing_.front())
        .WithExpected(SomeNames(missing_, 8))
        .WithHint(state ? "`--allow missing-optimizer` begins them with zeros, `--no-optim` leaves all state behind" : "");
  }

  void Counters() {
    Scalar({Value("step")}, DType::kI32, {Value(step_)});
    if (form_.kind == OptimizerKind::kNone) {
      Row({Value("opt_state")}, "Dict");
      return;
    }
    for (const bool muon : {false, true}) {
      if (muon && form_.kind != OptimizerKind::kMuon) continue;
      const std::optional<std::int64_t> own = muon && hub_.counters.muon_count ? hub_.counters.muon_count : hub_.counters.adam_count;
      if (!own) out_.notices.push_back(fmt::format("{}'s counter is taken to be the step, {}", muon ? "Muon" : "Adam", step_));
      CounterPaths paths = CountersOf(form_, muon);
      Scalar(std::move(paths.count), DType::kI32, {Value(own.value_or(step_))});
      if (!paths.schedule.empty()) Scalar(std::move(paths.schedule), DType::kI32, {Value(step_)});
    }
    for (KeyPath& path : EmptyStates(form_)) Row(std::move(path), "None");
    if (form_.kind != OptimizerKind::kMuon) return;
    ValueList coefficients;
    for (const double one : kCoefficients) coefficients.emplace_back(one);
    Scalar(CoefficientsPath(form_), DType::kF32, std::move(coefficients), {Value(static_cast<std::int64_t>(kCoefficients.size()))});
  }

  // ---- the end ----

  void TellMasters() {
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    bool wider = false;
    for (const HubTensor& tensor : hub_.tensors) {
      if (tensor.slot != Slot::kMaster) continue;
      const Result<std::int64_t> size = ByteSize(tensor.dtype, tensor.shape);
      bytes += size ? *size : 0;
      ++count;
      const HubTensor* param = Find(tensor.name, Slot::kParam);
      wider = wider || (param != nullptr && BitsOf(tensor.dtype) > BitsOf(param->dtype));
    }
    if (count == 0) return;
    if (options_.params_from_master) {
      out_.notices.emplace_back("the parameters are the master weights (--params-from master)");
      return;
    }
    out_.left_out.push_back({"master weights", "MaxText keeps none: it steps on the parameters themselves", count, bytes});
    if (wider) out_.notices.emplace_back("the master weights are finer than the parameters that are written; --params-from master writes them instead, and training goes on exactly");
  }

  void Finish() {
    CutArrays();
    std::sort(arrays_.begin(), arrays_.end(), [](const Made& a, const Made& b) { return a.entry.name < b.entry.name; });
    for (Made& array : arrays_) {
      out_.entries.push_back(std::move(array.entry));
      out_.exprs.push_back(std::move(array.expr));
    }
    const auto name = [](const Value& row) { return ArrayName(*row.Find("path")->as_sequence()); };
    std::sort(rows_.begin(), rows_.end(), [&](const Value& a, const Value& b) { return name(a) < name(b); });
    out_.tree = Value::MakeList(std::move(rows_));
    const auto most = std::max_element(bytes_by_dtype_.begin(), bytes_by_dtype_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != bytes_by_dtype_.end()) out_.params_dtype = most->first;
    TellMasters();
    if (cast_ > 0) out_.notices.push_back(fmt::format("{} arrays are cast to {}", cast_, DTypeName(*options_.dtype)));
    if (!computed_.empty()) {
      out_.notices.push_back(fmt::format("{} arrays hold scaled or shifted values, computed in F32{}: {}", computed_.size(),
                                         rounded_ > 0 ? fmt::format(" and rounded to {}, so that the way back gives other values", DTypeName(*options_.dtype)) : " and stored so", SomeNames(computed_, 4)));
    }
    if (!not_muon_.empty() || !not_adam_.empty()) {
      std::vector<std::string> differ = not_muon_;
      differ.insert(differ.end(), not_adam_.begin(), not_adam_.end());
      out_.notices.push_back(fmt::format("ATTENTION: the source keeps {} arrays with Muon and {} with Adam that {} by its own rule gives to the other: {}. They are written as the source has them; "
                                         "a run that does not divide its parameters so begins the state of these anew",
                                         not_muon_.size(), not_adam_.size(), consumer_.name(), SomeNames(differ, 8)));
    }
    if (options_.padded_vocab) out_.notices.push_back(fmt::format("the vocabulary has {} rows (--padded-vocab-size); those beyond the model's are zeros", *options_.padded_vocab));
  }

  const HubState& hub_;
  const family::FamilyFile& family_;
  const TreeBinding& binding_;
  const TargetOptions& options_;
  const Consumer consumer_;
  const std::int64_t step_;
  StateForm form_;
  std::map<std::pair<std::string_view, Slot>, const HubTensor*> tensors_;
  std::array<bool, kAllSlots.size()> present_{};
  std::map<std::string, const DialectTensor*> biases_;
  TargetArrays out_;
  struct Made {
    Entry entry;
    Expr expr;
    std::vector<int> stacks;  ///< its axes of layers and experts; -1: none
  };
  std::vector<Made> arrays_;
  ValueList rows_;
  std::vector<std::string> missing_;
  std::vector<std::string> computed_;
  std::vector<std::string> not_muon_;
  std::vector<std::string> not_adam_;
  std::map<DType, std::int64_t> bytes_by_dtype_;
  std::int64_t cast_ = 0;
  std::int64_t rounded_ = 0;
};

}  // namespace

Result<TargetArrays> MakeTargetArrays(const TargetRequest& request) { return Builder(request).Run(); }

}  // namespace crossdock::dialects::maxtext
