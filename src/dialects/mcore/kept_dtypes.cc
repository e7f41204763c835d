// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/kept_dtypes.h"

#include "dialects/mcore/args.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr const char* kNote = "crossdock_dtypes";

}  // namespace

KeptDTypes ReadKeptDTypes(const Catalog& catalog) {
  KeptDTypes kept;
  const Value* common = CommonState(catalog);
  const Value* note = common != nullptr ? common->Find(kNote) : nullptr;
  if (note == nullptr || note->as_dict() == nullptr) return kept;
  for (const auto& [name, value] : note->as_dict()->items) {
    const std::string* hub = name.as_string();
    const std::string* text = value.as_string();
    const std::optional<DType> dtype = text != nullptr ? DTypeFromName(*text) : std::nullopt;
    if (hub != nullptr && dtype && (*dtype == DType::kBF16 || *dtype == DType::kF16)) kept[*hub] = *dtype;
  }
  return kept;
}

void KeepDTypes(const KeptDTypes& kept, Value* common) {
  if (kept.empty()) return;
  Value note = Value::MakeDict();
  for (const auto& [name, dtype] : kept) note.Set(name, Value(DTypeName(dtype)));
  common->Set(kNote, std::move(note));
}

void CarryKeptDTypes(const Value& from, Value* to) {
  if (const Value* note = from.Find(kNote)) to->Set(kNote, *note);
}

}  // namespace crossdock::dialects::mcore
