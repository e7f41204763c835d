// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_names.h"

#include "dialects/mcore/extra_state.h"
#include "dialects/mcore/keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr std::string_view kHeadPrefix = "output_layer.";
constexpr std::string_view kOfExperts = ".mlp.experts.experts.";

std::string_view ModuleOf(std::string_view name) { return name.substr(0, name.rfind('.')); }

bool IsNorm(std::string_view module) { return module.ends_with("layernorm"); }

/// Whether the module's state has an extra state, and of which kind: all layers of TransformerEngine have one with data; of
/// Megatron's own only the linear ones, and it is None.
void AddExtraState(std::string_view module, LayerSpec spec, std::vector<StateItem>& out) {
  const std::string_view inner = WithinLanguageModel(module);
  const bool tower = IsMegatronsOwnTower(module) && IsTransformerEngine(module);
  if (!tower && !inner.starts_with("decoder.") && !inner.starts_with("mtp.")) return;
  if (module.ends_with(".self_attention") || module.ends_with(".conv1d")) return;   // a gated delta net's own
  if (module.ends_with("mlp.router") || module.ends_with("mlp.shared_experts")) return;   // of Megatron's own, with parameters themselves
  const bool own = spec == LayerSpec::kLocal;
  if (own && IsNorm(module)) return;
  out.push_back({fmt::format("{}._extra_state", module), false, own});
}

}  // namespace

std::string RankDirName(int tensor_rank, int stage, int stages, int expert_rank, int expert_ranks) {
  std::string name = fmt::format("mp_rank_{:02}", tensor_rank);
  if (stages > 1) name += fmt::format("_{:03}", stage);
  if (expert_ranks > 1) name += fmt::format("_{:03}", expert_rank);
  return name;
}

std::string ModuleName(std::string_view model_key, std::int64_t local_layer, LayerSpec spec) {
  const std::string_view inner = WithinLanguageModel(model_key);
  if (inner.size() != model_key.size()) {
    return std::string(model_key.substr(0, model_key.size() - inner.size())) + ModuleName(inner, local_layer, spec);
  }
  if (!model_key.starts_with(kLayersPrefix)) return std::string(model_key);
  std::string_view rest = model_key.substr(kLayersPrefix.size());
  if (LayerNumber(model_key)) rest = rest.substr(rest.find('.') + 1);
  return fmt::format("{}{}.{}", kLayersPrefix, local_layer, spec == LayerSpec::kLocal ? WithOwnLatentNorms(WithOwnNorms(rest)) : std::string(rest));
}

std::string MtpModuleName(std::string_view model_key, LayerSpec spec) {
  constexpr std::string_view kInner = ".transformer_layer.";
  const std::size_t at = model_key.find(kInner);
  if (at == std::string_view::npos) return std::string(model_key);
  const std::string_view rest = model_key.substr(at + kInner.size());
  return fmt::format("{}.mtp_model_layer.{}", model_key.substr(0, at), spec == LayerSpec::kLocal ? WithOwnLatentNorms(WithOwnNorms(rest)) : std::string(rest));
}

std::string TowerModuleName(std::string_view model_key, std::int64_t block) {
  for (const std::string_view list : {std::string_view(".layers."), std::string_view(".deepstack_merger_list.")}) {
    const std::size_t at = model_key.find(list);
    if (at != std::string_view::npos) return fmt::format("{}{}.{}", model_key.substr(0, at + list.size()), block, model_key.substr(at + list.size()));
  }
  return std::string(model_key);
}

bool IsOfExperts(std::string_view model_key) { return model_key.find(kOfExperts) != std::string_view::npos; }

std::string ExpertName(std::string_view module_name, std::int64_t local_expert, bool grouped) {
  const std::size_t at = module_name.find(kOfExperts);
  const std::string_view rest = module_name.substr(at + kOfExperts.size());
  const std::string module = fmt::format("{}.mlp.experts.", module_name.substr(0, at));
  return grouped ? fmt::format("{}{}{}", module, rest, local_expert) : fmt::format("{}local_experts.{}.{}", module, local_expert, rest);
}

bool GroupsExperts(const Value& args) {
  return LayerSpecOf(args) == LayerSpec::kTransformerEngine && args.GetBool("moe_grouped_gemm").value_or(true);
}

std::optional<Slot> LegacySlot(std::string_view name) {
  if (!name.starts_with("mp_rank_")) return std::nullopt;
  const std::size_t hash = name.find(".pt#");
  if (hash == std::string_view::npos) return std::nullopt;
  if (name.ends_with("/exp_avg")) return Slot::kAdamMu;
  if (name.ends_with("/exp_avg_sq")) return Slot::kAdamNu;
  if (name.ends_with("/momentum_buffer")) return Slot::kMuonMu;
  const std::string_view path = name.substr(hash + 4);
  return path.starts_with("model") ? Slot::kParam : Slot::kMaster;
}

std::vector<StateItem> WithExtraStates(const std::vector<std::string>& parameters, LayerSpec spec, std::string_view prefix, bool head) {
  std::vector<StateItem> out;
  std::string attention;   // the block whose core attention was listed
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i];
    // A gated delta net has no core attention.
    const std::size_t block = name.find(".self_attention.linear_") != std::string::npos ? name.find(".self_attention.") : std::string::npos;
    if (spec == LayerSpec::kTransformerEngine && block != std::string::npos && name.compare(0, block, attention) != 0) {
      attention = name.substr(0, block);
      out.push_back({attention + ".self_attention.core_attention._extra_state", false, false});
    }
    out.push_back({name, true, false});
    const std::string_view module = ModuleOf(name);
    if (i + 1 == parameters.size() || ModuleOf(parameters[i + 1]) != module) AddExtraState(module, spec, out);
  }
  if (head) out.push_back({fmt::format("{}{}_extra_state", prefix, kHeadPrefix), false, true});
  return out;
}

}  // namespace crossdock::dialects::mcore
