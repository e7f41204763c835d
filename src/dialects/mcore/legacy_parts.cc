// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_parts.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "dialects/mcore/args.h"
#include "dialects/mcore/keys.h"
#include "fmt/format.h"
#include "layout/pipeline_layout.h"

namespace crossdock::dialects::mcore {

Result<LegacyParts> LegacyParts::Make(const std::vector<Entry>& entries, const layout::ParallelLayout& layout, const Value& args, std::int64_t layers, bool files) {
  LegacyParts out(entries, layout);
  out.files_ = files;
  out.spec_ = LayerSpecOf(args);
  out.tied_ = TiesEmbeddings(args);
  out.groups_experts_ = GroupsExperts(args);
  CROSSDOCK_RETURN_IF_ERROR(out.SortEntries(files));
  CROSSDOCK_ASSIGN_OR_RETURN(out.stages_, layout::MakeStageMap(layout, layers));
  if (!layout.pipeline_layout.empty()) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> cells, layout::ParsePipelineLayout(layout.pipeline_layout));
    CROSSDOCK_ASSIGN_OR_RETURN(const layout::MtpCell placed, layout::FindMtp(cells, layout.pp));
    out.mtp_stage_ = placed.stage;
  }
  return out;
}

Status LegacyParts::SortEntries(bool files) {
  for (std::size_t i = 0; i < entries_->size(); ++i) {
    const Entry& entry = (*entries_)[i];
    const TensorKey key = ParseTensorKey(entry.name);
    const auto index = static_cast<std::int32_t>(i);
    const auto state = std::ranges::find(kBucketSlots, key.slot.value_or(Slot::kParam));
    if (key.kind == TensorKey::Kind::kModel) {
      sources_[key.model_key].param = index;
    } else if (key.kind == TensorKey::Kind::kState && key.slot == Slot::kMuonMu) {
      sources_[key.model_key].momentum = index;
    } else if (key.kind == TensorKey::Kind::kState && state != kBucketSlots.end()) {
      sources_[key.model_key].states[static_cast<std::size_t>(state - kBucketSlots.begin())] = index;
    } else {
      return MakeError(ErrorCode::kUnsupported, "the legacy form has no place for this optimizer state").WithTensor(entry.name)
          .WithHint("write `--to megatron`, or leave the state behind with --no-optim");
    }
  }
  for (const auto& [key, source] : sources_) {
    if (files && IsVision(key) && (source.momentum >= 0 || std::ranges::any_of(source.states, [](std::int32_t entry) { return entry >= 0; }))) {
      return MakeError(ErrorCode::kUnsupported, "the legacy form numbers optimizer states in the order in which a trainer builds its modules, which is not known of a vision tower")
          .WithTensor(key).WithHint("write `--to megatron`, or leave the state behind with --no-optim");
    }
    CROSSDOCK_RETURN_IF_ERROR(ReadSource(key, source));
    has_experts_ = has_experts_ || IsOfExperts(key);
  }
  return OkStatus();
}

Status LegacyParts::ReadSource(const std::string& key, const StateEntries& source) {
  if (source.param < 0) {
    return MakeError(ErrorCode::kIncomplete, "optimizer state without its parameter").WithTensor(key)
        .WithExpected("the parameter").WithFound("its state alone").WithHint("--no-optim leaves all state behind");
  }
  const bool master = source.states[0] >= 0;
  const bool adam = source.states[1] >= 0 && source.states[2] >= 0;
  const bool none = source.states[1] < 0 && source.states[2] < 0;
  with_optimizer_ = with_optimizer_ || master || source.momentum >= 0;
  with_muon_ = with_muon_ || source.momentum >= 0;
  if (source.momentum >= 0 ? master && none : adam ? master : none && !master) return OkStatus();
  return MakeError(ErrorCode::kIncomplete, "a parameter has a part of its optimizer state only").WithTensor(key)
      .WithExpected("master weights and both moments, or master weights and Muon's momentum")
      .WithHint("--no-optim leaves all state behind");
}

bool LegacyParts::PredictsTokens() const {
  const auto first = sources_.lower_bound(std::string(kMtpPrefix));
  return first != sources_.end() && first->first.starts_with(kMtpPrefix);
}

Result<std::vector<LocalChunk>> LegacyParts::OfStage(int stage) const {
  std::vector<LocalChunk> out;
  for (int index = 0; index < stages_.vpp; ++index) {
    const layout::StageMap::ModelChunk& part = stages_.At(stage, index);
    const bool predicts = PredictsTokens() && (mtp_stage_ < 0 ? part.head : mtp_stage_ == stage && index + 1 == stages_.vpp);
    std::vector<LocalParameter> parameters;
    for (const auto& [key, source] : sources_) CROSSDOCK_RETURN_IF_ERROR(AddOf(key, source, part, predicts, &parameters));
    if (tied_ && part.head && !part.embedding) AddTiedHead(&parameters);
    LocalChunk chunk;
    chunk.head = part.head;
    if (files_) {
      // A language model within a larger one registers as one that is alone; what stands beside it comes first.
      std::vector<std::string> names;
      std::unordered_map<std::string, LocalParameter*> by_name;
      for (LocalParameter& parameter : parameters) {
        if (IsVision(parameter.name)) {
          chunk.parameters.push_back(parameter);
          continue;
        }
        names.emplace_back(WithinLanguageModel(parameter.name));
        chunk.prefix = parameter.name.substr(0, parameter.name.size() - names.back().size());
        by_name.emplace(names.back(), &parameter);
      }
      std::ranges::sort(chunk.parameters, {}, &LocalParameter::name);   // module by module
      Result<std::vector<std::string>> ordered = InRegistrationOrder(std::move(names), spec_);
      if (!ordered) return std::move(std::move(ordered).error()).WithHint("`--to megatron` holds tensors of every name");
      for (const std::string& name : *ordered) chunk.parameters.push_back(std::move(*by_name.at(name)));
    } else {
      chunk.parameters = std::move(parameters);
    }
    out.push_back(std::move(chunk));
  }
  return out;
}

Status LegacyParts::AddOf(const std::string& key, const StateEntries& source, const layout::StageMap::ModelChunk& part, bool predicts,
                          std::vector<LocalParameter>* out) const {
  if (IsVision(key)) {
    if (part.embedding) AddTower(key, source, out);
  } else if (HasLayerAxis(key)) {
    for (std::int64_t i = 0; i < part.count; ++i) {
      CROSSDOCK_RETURN_IF_ERROR(AddLayers({ModuleName(key, i, spec_), &source, {part.first + i, -1}, 0}, out));
    }
  } else if (const std::optional<std::int64_t> layer = LayerNumber(key)) {
    if (*layer < part.first || *layer >= part.first + part.count) return OkStatus();
    return AddLayers({ModuleName(key, *layer - part.first, spec_), &source, {}, 0}, out);
  } else if (key.starts_with(kMtpPrefix)) {
    if (predicts) return AddLayers({MtpModuleName(key, spec_), &source, {}, 0}, out);
  } else if (WithinLanguageModel(key).starts_with("embedding.") ? part.embedding || predicts : part.head) {
    out->push_back({key, &source, {}, 0});
  }
  return OkStatus();
}

/// A tower stands whole on the first stage.
void LegacyParts::AddTower(const std::string& key, const StateEntries& source, std::vector<LocalParameter>* out) const {
  const std::int64_t blocks = IsStackOfTower(key) && !EntryAt(source.param).shape.empty() ? EntryAt(source.param).shape[0] : 0;
  for (std::int64_t block = 0; block < blocks; ++block) out->push_back({TowerModuleName(key, block), &source, {block, -1}, 0});
  if (blocks == 0) out->push_back({key, &source, {}, 0});
}

/// A layer's parameter, or those of a rank's experts that it stands for.
Status LegacyParts::AddLayers(LocalParameter parameter, std::vector<LocalParameter>* out) const {
  if (!IsOfExperts(parameter.name)) {
    out->push_back(std::move(parameter));
    return OkStatus();
  }
  const Entry& entry = EntryAt(parameter.source->param);
  const std::size_t axis = parameter.part.layer >= 0 ? 1 : 0;
  const std::int64_t experts = entry.shape.size() > axis ? entry.shape[axis] : 0;
  if (experts < 1 || experts % layout_->ep != 0) {
    return MakeError(ErrorCode::kUnsupported, "the experts do not divide among the expert-parallel ranks").WithTensor(entry.name)
        .WithExpected(fmt::format("a multiple of --ep {} on axis {}", layout_->ep, axis))
        .WithFound(ToString(entry.shape));
  }
  const std::string name = parameter.name;
  parameter.experts = experts / layout_->ep;
  for (std::int64_t e = 0; e < parameter.experts; ++e) {
    parameter.name = ExpertName(name, e, groups_experts_);
    parameter.part.expert = e;
    out->push_back(parameter);
  }
  return OkStatus();
}

/// The head of a tied model is the embedding; where another chunk holds that, it has a copy.
void LegacyParts::AddTiedHead(std::vector<LocalParameter>* out) const {
  for (const char* prefix : {"", "language_model.", "foundation_model."}) {
    const std::string head = prefix + std::string(kHeadKey);
    const auto embedding = sources_.find(prefix + std::string(kEmbeddingKey));
    if (embedding != sources_.end() && !sources_.contains(head)) out->push_back({head, &embedding->second, {}, 0});
  }
}

}  // namespace crossdock::dialects::mcore
