// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/tree_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "family/formula.h"

namespace crossdock::dialects::maxtext {
namespace {

/// Whatever the source holds must have a place, or it would be lost in silence.
Status CheckComplete(const family::FamilyFile& family, const family::Binding& binding) {
  std::vector<bool> placed(binding.hub.size(), false);
  for (const family::DialectTensor& tensor : binding.tensors) {
    for (const std::int32_t ordinal : tensor.hub) placed[static_cast<std::size_t>(family::HubOf(binding, ordinal))] = true;
  }
  const auto first = std::find(placed.begin(), placed.end(), false);
  if (first == placed.end()) return OkStatus();
  const std::string& name = binding.hub[static_cast<std::size_t>(first - placed.begin())].name;
  const auto count = std::count(placed.begin(), placed.end(), false);
  const auto mtp = family.letters.find("mtp");
  return MakeError(ErrorCode::kUnsupported, fmt::format("MaxText has no place for {} tensors of this model of the family {}", count, family.name))
      .WithTensor(name)
      .WithHint(mtp != family.letters.end() ? "--mtp drop leaves layers of multi-token prediction behind" : "--to hf or full-state carry the model");
}

/// What MaxText presupposes of a model's sizes: [maxtext] of the family file, `needs`.
Status CheckNeeds(const family::FamilyFile& family, const family::Letters& letters) {
  const auto needs = family.maxtext_flags.find("needs");
  if (needs == family.maxtext_flags.end()) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const bool holds, family::EvaluateCondition(needs->second, Value::MakeDict(), letters));
  if (holds) return OkStatus();
  std::string found;
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Formula formula, family::ParseFormula(needs->second));
  for (const std::string& name : family::NamesOf(formula)) {
    if (const auto letter = letters.find(name); letter != letters.end()) found += fmt::format("{}{} = {}", found.empty() ? "" : ", ", name, letter->second);
  }
  return MakeError(ErrorCode::kUnsupported, fmt::format("MaxText cannot build a model of the family {} with these sizes", family.name))
      .WithExpected(needs->second)
      .WithFound(std::move(found))
      .WithHint(fmt::format("`crossdock families {}` tells what the letters are; --to hf or full-state carry the model", family.name));
}

}  // namespace

bool IsBuffer(const family::FamilyFile& family, const family::Binding& binding, const family::DialectTensor& tensor) {
  return !tensor.hub.empty() && std::all_of(tensor.hub.begin(), tensor.hub.end(), [&](std::int32_t ordinal) {
    return family::FitsAny(family.buffers, binding.hub[static_cast<std::size_t>(family::HubOf(binding, ordinal))].name);
  });
}

int VocabularyAxis(std::string_view name) {
  if (name == "token_embedder.embedding") return 0;
  return name == "decoder.logits_dense.kernel" ? 1 : -1;
}

Result<TreeBinding> BindTree(const family::FamilyFile& family, const family::Model& model, const LayerForm& form) {
  family::BindOptions options;
  options.dialect = "maxtext";
  options.stacked_layers = false;
  TreeBinding out;
  CROSSDOCK_RETURN_IF_ERROR(CheckNeeds(family, model.letters));
  CROSSDOCK_ASSIGN_OR_RETURN(out.numbered, family::Bind(family, model, options));
  CROSSDOCK_RETURN_IF_ERROR(CheckComplete(family, out.numbered));
  CROSSDOCK_ASSIGN_OR_RETURN(const Cycle cycle, CycleOf(family, model));
  CROSSDOCK_ASSIGN_OR_RETURN(out.tensors, ArrangeLayers(out.numbered.tensors, cycle, form));
  std::vector<family::DialectTensor> buffers;
  for (const family::DialectTensor& tensor : out.numbered.tensors) {
    if (IsBuffer(family, out.numbered, tensor)) buffers.push_back(tensor);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(out.biases, ArrangeLayers(std::move(buffers), cycle, {form.scanned, 0}));
  return out;
}

}  // namespace crossdock::dialects::maxtext
