// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/muon_partition.h"

#include <algorithm>

#include "dialects/mcore/keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {

Result<Owner> OwnerOf(const family::Binding& binding, const family::DialectTensor& tensor, const HasState& has) {
  std::array<const std::string*, 3> first{};
  for (const std::int32_t ordinal : tensor.hub) {
    const std::string& name = family::HubNameOf(binding, ordinal);
    const bool muon = has(name, Slot::kMuonMu);
    const bool adam = has(name, Slot::kAdamMu) || has(name, Slot::kAdamNu);
    const Owner owner = muon ? Owner::kMuon : adam ? Owner::kAdam : Owner::kNone;
    if (first[static_cast<std::size_t>(owner)] == nullptr) first[static_cast<std::size_t>(owner)] = &name;
  }
  const std::string* muon = first[static_cast<std::size_t>(Owner::kMuon)];
  const std::string* adam = first[static_cast<std::size_t>(Owner::kAdam)];
  if (muon != nullptr && adam != nullptr) {
    return MakeError(ErrorCode::kUnsupported, "parts of one Megatron tensor belong to Muon and to Adam: its optimizer has no place for that")
        .WithTensor(tensor.name)
        .WithExpected("the state of one of them for all parts")
        .WithFound(fmt::format("muon_mu of {}, adam_mu of {}", Printable(*muon), Printable(*adam)))
        .WithHint("--no-optim leaves the optimizer state behind");
  }
  return muon != nullptr ? Owner::kMuon : adam != nullptr ? Owner::kAdam : Owner::kNone;
}

bool GoesToMuon(const family::DialectTensor& tensor) {
  const std::string_view name = WithinLanguageModel(tensor.name);
  if (name == "embedding.word_embeddings.weight" || name == "output_layer.weight") return false;
  const int axes = static_cast<int>(tensor.shape.size()) - (tensor.stack_axis >= 0 ? 1 : 0) - (tensor.expert_axis >= 0 ? 1 : 0);
  return axes == 2;
}

}  // namespace crossdock::dialects::mcore
