// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/target_tensors.h"

#include <algorithm>
#include <map>

#include "base/names.h"
#include "dialects/mcore/inventory.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/muon_partition.h"
#include "fmt/format.h"
#include "layout/pipeline_layout.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;
using family::DialectTensor;

/// The hub's tensors by name and slot.
class HubIndex {
 public:
  explicit HubIndex(const HubState& hub) {
    for (const HubTensor& tensor : hub.tensors) {
      tensors_[{tensor.name, tensor.slot}] = &tensor;
      present_[static_cast<std::size_t>(tensor.slot)] = true;
    }
  }
  [[nodiscard]] const HubTensor* Find(const std::string& name, Slot slot) const {
    const auto found = tensors_.find({name, slot});
    return found == tensors_.end() ? nullptr : found->second;
  }
  [[nodiscard]] bool Has(Slot slot) const { return present_[static_cast<std::size_t>(slot)]; }

 private:
  std::map<std::pair<std::string_view, Slot>, const HubTensor*> tensors_;
  std::array<bool, kAllSlots.size()> present_{};
};

bool IsDecoderLayer(std::string_view name) { return WithinLanguageModel(name).starts_with("decoder.layers."); }

class Builder {
 public:
  Builder(const HubState& hub, const family::Binding& binding, const layout::StageMap& stages, const TargetOptions& options)
      : family_(*hub.family), binding_(binding), stages_(stages), options_(options), index_(hub) {}

  Result<TargetTensors> Run() {
    out_.with_muon = index_.Has(Slot::kMuonMu);
    out_.with_optimizer = out_.with_muon || index_.Has(Slot::kAdamMu);
    if (options_.params_from_master && !index_.Has(Slot::kMaster)) {
      return MakeError(ErrorCode::kIncomplete, "--params-from master needs master weights, which the source does not hold");
    }
    CROSSDOCK_RETURN_IF_ERROR(PlaceMtp());
    for (const DialectTensor& tensor : binding_.tensors) {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<Chunk> chunks, ChunksOf(tensor));
      CROSSDOCK_RETURN_IF_ERROR(AddParam(tensor, chunks));
      if (!out_.with_optimizer || IsBuffer(tensor) || tensor.repeats) continue;
      CROSSDOCK_ASSIGN_OR_RETURN(const bool muon, IsMuons(tensor));
      CROSSDOCK_RETURN_IF_ERROR(AddState(tensor, Slot::kMaster, chunks));
      if (muon) CROSSDOCK_RETURN_IF_ERROR(AddState(tensor, Slot::kMuonMu, chunks));
      if (muon) continue;
      for (const Slot slot : {Slot::kAdamMu, Slot::kAdamNu}) CROSSDOCK_RETURN_IF_ERROR(AddState(tensor, slot, chunks));
    }
    if (!missing_.empty()) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("the source lacks {} tensors that Megatron's checkpoint must hold", missing_.size()))
          .WithTensor(missing_.front())
          .WithExpected(SomeNames(missing_))
          .WithHint(missing_.front().ends_with(')') ? "`--allow missing-optimizer` begins them with zeros, `--no-optim` leaves all state behind" : "");
    }
    Finish();
    return std::move(out_);
  }

 private:
  // ---- expressions ----

  bool Kept(const std::string& name) const { return family::FitsAny(options_.keep_dtype, name) || family::FitsAny(family_.f32_islands, name); }

  bool IsBuffer(const DialectTensor& tensor) const {
    return std::all_of(tensor.hub.begin(), tensor.hub.end(), [&](std::int32_t ordinal) {
      return family::FitsAny(family_.buffers, HubName(ordinal));
    });
  }

  [[nodiscard]] const std::string& HubName(std::int32_t ordinal) const { return family::HubNameOf(binding_, ordinal); }

  /// The tensor's expression with every hub tensor in `dtype`; `source` chooses the hub tensor for a name. What is computed with is
  /// computed in F32.
  template <typename Source>
  Result<Expr> Compose(const DialectTensor& tensor, Slot slot, DType dtype, Source source) {
    CROSSDOCK_ASSIGN_OR_RETURN(const Expr forward, expr::ForSlot(tensor.forward, slot));
    const bool computed = expr::HasArithmetic(forward);
    CROSSDOCK_ASSIGN_OR_RETURN(Expr made, expr::Substitute(forward, [&](int ordinal) -> Result<Expr> {
      CROSSDOCK_ASSIGN_OR_RETURN(Expr part, family::PartOf(binding_, ordinal, source(HubName(ordinal))->expr));
      return expr::Cast(std::move(part), computed ? DType::kF32 : dtype);
    }));
    CROSSDOCK_ASSIGN_OR_RETURN(made, expr::Cast(std::move(made), dtype));
    return expr::Simplify(made);
  }

  bool Complete(const DialectTensor& tensor, Slot slot) {
    bool complete = true;
    for (const std::int32_t ordinal : tensor.hub) {
      const std::string& name = HubName(ordinal);
      if (index_.Find(name, slot) != nullptr) continue;
      missing_.push_back(slot == Slot::kParam ? name : fmt::format("{} ({})", name, SlotName(slot)));
      complete = false;
    }
    return complete;
  }

  /// The dtype that a joined parameter has: the sources' own, the wider one where they differ, or what was asked for.
  DType ParamDType(const DialectTensor& tensor, Slot slot) {
    std::optional<DType> dtype;
    bool keep = false;
    bool mixed = false;
    for (const std::int32_t ordinal : tensor.hub) {
      const HubTensor* source = index_.Find(HubName(ordinal), slot);
      keep = keep || Kept(source->name);
      mixed = mixed || (dtype && *dtype != source->dtype);
      if (!dtype) dtype = source->dtype;
    }
    const DType own = mixed ? DType::kF32 : *dtype;
    if (mixed) ++widened_;
    if (options_.dtype && !keep && IsFloating(own)) return *options_.dtype;
    if (expr::HasArithmetic(tensor.forward) && (own == DType::kBF16 || own == DType::kF16)) {
      for (const std::int32_t ordinal : tensor.hub) out_.kept_dtypes[HubName(ordinal)] = own;
      return DType::kF32;
    }
    return own;
  }

  Status AddParam(const DialectTensor& tensor, const std::vector<Chunk>& chunks) {
    const bool from_master = options_.params_from_master;
    const Slot slot = from_master ? Slot::kMaster : Slot::kParam;
    if (!Complete(tensor, Slot::kParam) || (from_master && !Complete(tensor, Slot::kMaster))) return OkStatus();
    const DType dtype = ParamDType(tensor, Slot::kParam);
    for (const std::int32_t ordinal : tensor.hub) {
      const DType source = index_.Find(HubName(ordinal), slot)->dtype;
      if (source != dtype && !out_.kept_dtypes.contains(HubName(ordinal)) && (options_.dtype || from_master)) ++cast_[dtype];
    }
    CROSSDOCK_ASSIGN_OR_RETURN(Expr made, Compose(tensor, Slot::kParam, dtype, [&](const std::string& name) { return index_.Find(name, slot); }));
    const Result<std::int64_t> bytes = ByteSize(dtype, tensor.shape);
    if (!bytes) return bytes.error();
    bytes_by_dtype_[dtype] += *bytes;
    Push({tensor.name, Slot::kParam, dtype, tensor.shape, chunks}, std::move(made));
    return OkStatus();
  }

  /// The source's keys decide; where Megatron's rule would decide otherwise, that is told.
  Result<bool> IsMuons(const DialectTensor& tensor) {
    if (!out_.with_muon) return false;
    CROSSDOCK_ASSIGN_OR_RETURN(const Owner owner, OwnerOf(binding_, tensor, [&](const std::string& name, Slot slot) { return index_.Find(name, slot) != nullptr; }));
    if (owner == Owner::kNone) return GoesToMuon(tensor);  // told as missing under the slots that Megatron asks for
    const bool muon = owner == Owner::kMuon;
    if (muon != GoesToMuon(tensor)) (muon ? not_muon_ : not_adam_).push_back(tensor.name);
    return muon;
  }

  Status AddState(const DialectTensor& tensor, Slot slot, const std::vector<Chunk>& chunks) {
    const bool upcast = slot == Slot::kMaster && !index_.Has(Slot::kMaster);
    if (upcast) {
      ++upcast_;
      if (!Complete(tensor, Slot::kParam)) return OkStatus();
    } else if (!Complete(tensor, slot)) {
      return OkStatus();
    }
    const Slot source = upcast ? Slot::kParam : slot;
    CROSSDOCK_ASSIGN_OR_RETURN(Expr made, Compose(tensor, slot, DType::kF32, [&](const std::string& name) { return index_.Find(name, source); }));
    const OptimizerForm form = out_.with_muon ? OptimizerForm::kPlain : OptimizerForm::kDistributed;
    Push({SlotKey(slot, tensor.name, form), Slot::kParam, DType::kF32, tensor.shape, chunks}, std::move(made));
    return OkStatus();
  }

  void Push(Entry entry, Expr made) { pairs_.emplace_back(std::move(entry), std::move(made)); }

  // ---- chunks ----

  Chunk Part(Box box, int stage, int rank) const {
    Chunk chunk;
    chunk.box = std::move(box);
    chunk.shard = stage * options_.layout.ranks_per_stage() + rank;
    return chunk;
  }

  /// Where the layout string places the layers of multi-token prediction: all of the model's, or Megatron builds no such model.
  Status PlaceMtp() {
    const std::string& text = options_.layout.pipeline_layout;
    if (text.empty()) return OkStatus();
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> cells, layout::ParsePipelineLayout(text));
    CROSSDOCK_ASSIGN_OR_RETURN(const layout::MtpCell placed, layout::FindMtp(cells, options_.layout.pp));
    const auto letter = binding_.letters.find("mtp");
    const std::int64_t has = letter == binding_.letters.end() ? 0 : letter->second;
    if (placed.layers != has) {
      return MakeError(ErrorCode::kUsage, fmt::format("the pipeline layout `{}` does not hold the model's layers of multi-token prediction", Printable(text)))
          .WithExpected(fmt::format("{} times m", has))
          .WithFound(fmt::format("{}", placed.layers))
          .WithHint(has > 0 ? "write m before L, in the last cell or in one of its own; or leave the layers behind with --mtp drop" : "leave m out");
    }
    mtp_stage_ = placed.stage;
    return OkStatus();
  }

  int StageOf(const DialectTensor& tensor, std::int64_t layer) const {
    return IsDecoderLayer(tensor.name) ? stages_.StageOf(layer) : TopLevel(tensor.name);
  }

  int TopLevel(std::string_view name) const {
    return mtp_stage_ >= 0 && WithinLanguageModel(name).starts_with("mtp.") ? mtp_stage_ : StageOfTopLevel(name, stages_);
  }

  /// One chunk an expert (and layer), as Megatron writes them; expert rank r holds the r-th part of the experts.
  Result<std::vector<Chunk>> ExpertChunks(const DialectTensor& tensor) const {
    const int ranks = options_.layout.expert_tp();
    const auto axis = static_cast<std::size_t>(tensor.expert_axis);
    std::vector<Chunk> chunks;
    std::vector<Box> first;
    for (int rank = 0; rank < ranks; ++rank) {
      Result<std::vector<Box>> boxes = expr::ShardBoxes(tensor.forward, ranks, rank);
      if (!boxes) return std::move(std::move(boxes).error()).WithTensor(tensor.name);
      if (rank == 0) first = *boxes;
      if (rank > 0 && *boxes == first) break;  // replicated: rank 0 writes it
      for (const Box& box : *boxes) {
        for (std::int64_t e = box.offsets[axis]; e < box.offsets[axis] + box.sizes[axis]; ++e) {
          Box one = box;
          one.offsets[axis] = e;
          one.sizes[axis] = 1;
          AddCut(tensor, one, options_.layout.expert_rank(e, tensor.shape[axis], rank), true, chunks);
        }
      }
    }
    return chunks;
  }

  /// A box over stacked layers, cut so that each part belongs to one stage; and to one layer when `by_layer`.
  void AddCut(const DialectTensor& tensor, const Box& box, int tp_rank, bool by_layer, std::vector<Chunk>& chunks) const {
    if (tensor.stack_axis != 0 || !tensor.first_layer) {
      const int stage = tensor.first_layer ? StageOf(tensor, *tensor.first_layer) : TopLevel(tensor.name);
      chunks.push_back(Part(box, stage, tp_rank));
      return;
    }
    const std::int64_t end = box.offsets[0] + box.sizes[0];
    for (std::int64_t at = box.offsets[0]; at < end;) {
      const int stage = StageOf(tensor, *tensor.first_layer + at);
      std::int64_t next = at + 1;
      while (!by_layer && next < end && StageOf(tensor, *tensor.first_layer + next) == stage) ++next;
      Box part = box;
      part.offsets[0] = at;
      part.sizes[0] = next - at;
      chunks.push_back(Part(std::move(part), stage, tp_rank));
      at = next;
    }
  }

  /// Boxes that differ in their layers only, joined where the layers follow each other.
  static std::vector<Box> JoinLayers(const std::vector<Box>& boxes) {
    std::vector<Box> joined;
    for (const Box& box : boxes) {
      const auto before = std::find_if(joined.begin(), joined.end(), [&](const Box& other) {
        Box next = other;
        next.offsets[0] = other.offsets[0] + other.sizes[0];
        next.sizes[0] = box.sizes[0];
        return next == box;
      });
      if (before == joined.end()) {
        joined.push_back(box);
      } else {
        before->sizes[0] += box.sizes[0];
      }
    }
    return joined;
  }

  Result<std::vector<Chunk>> ChunksOf(const DialectTensor& tensor) const {
    if (tensor.expert_axis >= 0) return ExpertChunks(tensor);
    std::vector<Chunk> chunks;
    std::vector<Box> first;
    // Norms and biases of all layers of a stage are one chunk: their own would each cost more bytes than they hold.
    const bool by_layer = tensor.shape.size() > 2;
    // What repeats the embedding lies with the tower and is cut as the decoder is.
    const int ranks = IsVision(tensor.name) && !tensor.repeats ? options_.layout.tower_tp() : options_.layout.tp;
    for (int rank = 0; rank < ranks; ++rank) {
      Result<std::vector<Box>> boxes = expr::ShardBoxes(tensor.forward, ranks, rank);
      if (!boxes) return std::move(std::move(boxes).error()).WithTensor(tensor.name);
      if (rank == 0) first = *boxes;
      if (rank > 0 && *boxes == first) break;  // replicated: rank 0 writes it
      const bool join = !by_layer && tensor.stack_axis == 0;
      for (const Box& box : join ? JoinLayers(*boxes) : *boxes) AddCut(tensor, box, rank, by_layer, chunks);
    }
    return chunks;
  }

  void Finish() {
    std::sort(pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
    for (auto& [entry, made] : pairs_) {
      out_.entries.push_back(std::move(entry));
      out_.exprs.push_back(std::move(made));
    }
    const auto most = std::max_element(bytes_by_dtype_.begin(), bytes_by_dtype_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != bytes_by_dtype_.end()) out_.params_dtype = most->first;
    for (const auto& [dtype, count] : cast_) out_.notices.push_back(fmt::format("{} tensors are cast to {}", count, DTypeName(dtype)));
    if (widened_ > 0) out_.notices.push_back(fmt::format("{} joined tensors have parts of different dtypes and are widened to F32", widened_));
    if (!out_.kept_dtypes.empty()) {
      out_.notices.push_back(fmt::format("{} norms are stored minus one, as Megatron has them, and in F32: in their own type the sum would be rounded", out_.kept_dtypes.size()));
    }
    if (upcast_ > 0) out_.notices.push_back("the source has the optimizer's moments and no master weights: the parameters themselves, widened to F32, become the master weights");
    for (const auto& [names, has, asked] : {std::tuple{&not_muon_, "Muon's momentum", "Adam's moments"}, std::tuple{&not_adam_, "Adam's moments", "Muon's momentum"}}) {
      if (names->empty()) continue;
      out_.notices.push_back(fmt::format("ATTENTION: the source has {} for {} tensors, and Megatron-Core by its own rule asks for {} there: {}. They are written as the source has them, and "
                                         "only a run that divides its parameters likewise loads them",
                                         has, names->size(), asked, SomeNames(*names, 8)));
    }
    if (!out_.with_optimizer && index_.Has(Slot::kMaster)) {
      out_.left_out.push_back({"master weights", "a Megatron checkpoint without Adam's moments holds no optimizer state", 1, 0});
    }
  }

  const family::FamilyFile& family_;
  const family::Binding& binding_;
  const layout::StageMap& stages_;
  const TargetOptions& options_;
  HubIndex index_;
  TargetTensors out_;
  std::vector<std::pair<Entry, Expr>> pairs_;
  std::vector<std::string> missing_;
  std::map<DType, std::int64_t> bytes_by_dtype_;
  std::vector<std::string> not_muon_;   ///< Muon's in the source, Adam's by Megatron's rule
  std::vector<std::string> not_adam_;
  int mtp_stage_ = -1;                  ///< as a layout string says; else they lie with the head
  std::map<DType, std::int64_t> cast_;  ///< asked for; what joining widens is told apart
  std::int64_t widened_ = 0;
  std::int64_t upcast_ = 0;
};

}  // namespace

int StageOfTopLevel(std::string_view name, const layout::StageMap& stages) {
  return WithinLanguageModel(name).starts_with("embedding.") || IsVision(name) ? 0 : stages.HeadStage();
}

Result<TargetTensors> MakeTargetTensors(const HubState& hub, const family::Binding& binding, const layout::StageMap& stages, const TargetOptions& options) {
  return Builder(hub, binding, stages, options).Run();
}

}  // namespace crossdock::dialects::mcore
